"""Modules under the paths of earlier versions: the same objects, and a warning that names the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

import boundflow as bf
from boundflow.same_program import written_code
from boundflow.same_program.former_paths import ENDS, FORMER, MOVED, moved

EACH = """
import importlib, warnings
from boundflow.same_program.former_paths import MOVED, QUIET, moved
import boundflow, fullcert
warnings.simplefilter("always")
for package in MOVED:
    quiet = {*QUIET, *(f"boundflow.{name}" for name in boundflow.__all__)}
    for old, new in moved(package).items():
        held = importlib.import_module(new)
        with warnings.catch_warnings(record=True) as said:
            found = importlib.import_module(old)
            if found is not held:  # a room that has this name
                name = next(name for name in vars(held) if name.isalpha() and name not in vars(found))
                assert getattr(found, name) is getattr(held, name), old
        assert old in quiet or any(f"{old}" in str(one.message) and new in str(one.message) for one in said), old
        assert held.__spec__.name == new, new
"""
AS_WRITTEN = """
import pickle, warnings
import boundflow as bf
def warned(line):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        exec(line, globals())
    (one,) = {str(one.message) for one in said}
    assert all(one.filename == "<string>" for one in said), said[0].filename
    return one
assert warned("from boundflow.bounded import Bounded").startswith("boundflow.bounded is boundflow.tensor.bounded now")
assert "boundflow.symbols.space.Symbols now" in warned("from boundflow.symbols import Symbols")
assert "boundflow.tensor.rule_table now" in warned("bf.rule_table")
assert Bounded is bf.Bounded and Symbols is bf.Symbols
with warnings.catch_warnings(action="error"):
    import boundflow.lift, boundflow.losses
    assert callable(bf.lift) and bf.losses.hinge  # public names stay what they are
with warnings.catch_warnings(action="error"):
    from fullcert.evidence import ball_training  # a file of a room that has the name of a module
    assert ball_training.__name__ == "fullcert.evidence.ball_training"
assert pickle.loads(b"cboundflow.recipe\\nRecipe\\n.") is bf.Recipe  # as files of earlier versions name it
"""


@pytest.mark.parametrize("code", [EACH, AS_WRITTEN])
def test_former_paths_are_the_modules_of_today(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_nobody_had_is_not_there() -> None:
    for name in ("nothing", "__wrapped__"):
        with pytest.raises(AttributeError):
            getattr(bf, name)
    with pytest.raises(ModuleNotFoundError):
        __import__("boundflow.nothing")


def test_what_a_digest_names_is_where_it_was() -> None:
    assert written_code.name(bf.losses.hinge)[0] == "boundflow.losses"
    assert len(FORMER) == sum(len(moved(package)) for package in MOVED)


def test_they_end() -> None:
    """With this version the finder goes, and digests, which name the version too, take the paths of then."""
    assert tuple(map(int, bf.__version__.split("."))) < tuple(map(int, ENDS.split(".")))
