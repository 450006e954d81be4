"""A user's network from a file: what it is given, and one sentence for each thing that can be wrong with it."""

import json
import os
import py_compile
import sys
from pathlib import Path

import pytest
import torch
from commands import Command, people, write_csv
from torch import nn

from fullcert.networks.model_files import build_model, code_now, load_factory
from fullcert.system.mistakes import Mistake

IMPORTS = "import torch\nfrom torch import nn\n"


def written(folder: Path, code: str, name: str = "net.py") -> Path:
    path = folder / name
    path.write_text(IMPORTS + code)
    return path


@pytest.mark.parametrize(
    ("signature", "inward", "outward"),
    [
        ("", "6", "3"),
        ("features, outputs", "features", "outputs"),
        ("shape, *, outputs=7", "shape[0] * shape[1]", "outputs"),
        ("outputs, width=5", "6", "outputs"),
    ],
)
def test_the_function_takes_any_of_the_three_arguments(
    tmp_path: Path, signature: str, inward: str, outward: str
) -> None:
    code = f"def make({signature}):\n    return nn.Sequential(nn.Flatten(), nn.Linear({inward}, {outward}))\n"
    model = build_model(f"{written(tmp_path, code)}:make", (2, 3), 3)
    assert model(torch.ones(4, 2, 3, dtype=torch.float64)).shape == (4, 3)
    assert all(parameter.dtype is torch.float64 for parameter in model.parameters())


def test_a_module_class_is_a_function_that_makes_a_model(tmp_path: Path) -> None:
    code = """
class Net(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.layer = nn.Linear(features, outputs)
    def forward(self, x):
        return self.layer(x)
"""
    assert isinstance(build_model(f"{written(tmp_path, code)}:Net", (4,), 2).layer, nn.Linear)


def test_the_seed_fixes_the_weights_and_nothing_else(tmp_path: Path) -> None:
    spec = f"{written(tmp_path, 'def make(): return nn.Linear(4, 2)')}:make"
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again, other = (build_model(spec, (4,), 2, seed).weight for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_folder_can_be_imported_from_during_the_import_only(tmp_path: Path) -> None:
    written(tmp_path, "def block(): return nn.Linear(4, 2)\n", "blocks_of_this_test.py")
    path = written(tmp_path, "from blocks_of_this_test import block\ndef make(): return block()\n")
    paths, names = list(sys.path), set(sys.modules)
    build_model(f"{path}:make", (4,), 2)
    assert sys.path == paths
    assert {name.partition("_model_")[0] for name in set(sys.modules) - names} == {"_fullcert", "blocks_of_this_test"}
    assert [entry.name for entry in tmp_path.glob("__pycache__/net*")] == []
    sys.modules.pop("blocks_of_this_test")


def test_what_a_file_imports_from_its_folder_is_what_stands_there(tmp_path: Path) -> None:
    """A module of this name was imported from another folder, and was compiled from another source of its size."""
    specs, digests = [], []
    for folder in ("one", "two"):
        (tmp_path / folder / "inner").mkdir(parents=True)
        (tmp_path / folder / "inner" / "size.py").write_text(f"SIZE = {folder == 'two':d}\n")
        (tmp_path / folder / "layers.py").write_text("from inner.size import SIZE\n")
        code = "from layers import SIZE\ndef make():\n    return nn.Linear(4, 2, bias=bool(SIZE))\n"
        specs.append(f"{written(tmp_path / folder, code)}:make")
    for _ in range(2):
        assert [build_model(spec, (4,), 2).bias is not None for spec in specs] == [False, True]
    size = tmp_path / "one" / "inner" / "size.py"
    compiled, before = py_compile.compile(str(size)), size.stat()
    size.write_text("SIZE = 1\n")
    os.utime(size, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert compiled is not None and Path(compiled).exists()
    for spec in specs:
        code = dict[str, str]()
        assert build_model(spec, (4,), 2, code=code).bias is not None
        assert code.keys() == {"", "layers.py", "inner/size.py"} and code_now(spec, code) == code
        digests.append(code)
    assert digests[0] == digests[1]
    size.write_text("SIZE = 2\n")
    assert code_now(specs[0], digests[0]) != digests[0]


def test_a_file_in_the_folder_with_the_name_of_another_module(tmp_path: Path) -> None:
    """Python gives out what it knows by that name, and no digest of the run would be of it."""
    written(tmp_path, "", "random.py")
    plain = "def make(): return nn.Linear(4, 2)\n"
    assert load_factory(f"{written(tmp_path, plain)}:make")
    for line in ("import random\n", "from random import seed\n"):
        with pytest.raises(Mistake, match=r"random is the name of another module.*random\.py: rename that"):
            load_factory(f"{written(tmp_path, line + plain)}:make")
    written(tmp_path, "import random\n", "layers_beside.py")
    with pytest.raises(Mistake, match="random is the name of another module"):
        load_factory(f"{written(tmp_path, 'import layers_beside' + chr(10) + plain)}:make")


def test_a_file_that_changes_the_path_itself(tmp_path: Path) -> None:
    path = written(tmp_path, "import sys\nsys.path.clear()\ndef make(): return nn.Linear(4, 2)\n")
    paths = list(sys.path)
    try:
        load_factory(f"{path}:make")
    finally:
        sys.path[:] = paths


MISTAKES = [
    ("def make(:\n    pass", "not valid Python: .* on line 3"),
    ("x = '\0'", "not valid Python"),
    ("\nraise KeyError('lost')", "net.py raised KeyError on line 4: 'lost'"),
    ("import sys\nsys.exit(3)", "net.py raised SystemExit on line 4: 3"),
    ("import no_such_package", "ModuleNotFoundError on line 3: No module named 'no_such_package'"),
    ("other = 1", "has nothing called 'make'"),
    ("make = 3", "make in .* is of type int"),
    ("def make(width): return nn.Linear(4, 2)", "wants an argument 'width'"),
    ("def make(features, /): return nn.Linear(4, 2)", "wants an argument 'features'"),
    ("def make():\n    return nn.Linear(4)", "net.py:make raised TypeError on line 4: .*out_features"),
    ("def make(): return [nn.Linear(4, 2)]", "returned list: it must return an nn.Module"),
    ("def make(): return nn.Linear(4, 2).weight", "returned Parameter: it must return an nn.Module"),
    ("def make(): return nn.Linear(4, 3)", r"output of shape \(2, 3\): it must be a tensor of shape \(2, 2\)"),
    ("def make(): return nn.Sequential(nn.Linear(4, 2), nn.Flatten(0))", r"output of shape \(4,\)"),
    ("def make(): return nn.LSTM(4, 2)", "output of type tuple"),
    ("def make(): return nn.Linear(5, 2)", r"given two inputs of shape \(4,\), RuntimeError: .*cannot be multiplied"),
    ("def make(): return nn.Flatten()", "has no parameter to train"),
    ("def make(): return nn.Linear(4, 2).requires_grad_(False)", "has no parameter to train"),
    (
        "class Net(nn.Linear):\n    def forward(self, x): return super().forward(x.float())\nmake = lambda: Net(4, 2)",
        "does not accept float64 input",
    ),
    (
        "class Net(nn.Linear):\n    def forward(self, x): return super().forward(x).float()\nmake = lambda: Net(4, 2)",
        "does not accept float64 input",
    ),
]


@pytest.mark.parametrize(("code", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(tmp_path: Path, code: str, sentence: str) -> None:
    path, paths, names = written(tmp_path, code), list(sys.path), set(sys.modules)
    with pytest.raises(Mistake, match=sentence) as mistake:
        build_model(f"{path}:make", (4,), 2)
    assert len(str(mistake.value).splitlines()) == 1 and sys.path == paths
    assert "import" not in code or set(sys.modules) == names  # a file that failed is not remembered


def test_two_outputs_for_two_classes_are_told_what_takes_them(tmp_path: Path) -> None:
    """`fullcert validate --outputs 2` had said that it can be certified."""
    path = written(tmp_path, "def make(): return nn.Linear(4, 2)")
    with pytest.raises(Mistake, match=r"shape \(2, 1\), since two classes need one output; --loss ce takes two$"):
        build_model(f"{path}:make", (4,), 1)


def test_the_line_is_found_however_the_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "def make():\n    raise KeyError('lost')\n")
    monkeypatch.chdir(tmp_path)
    for place in ("net.py", "./net.py", f"../{tmp_path.name}//net.py"):
        with pytest.raises(Mistake, match="KeyError on line 4"):
            build_model(f"{place}:make", (4,), 2)


@pytest.mark.parametrize("spec", ["net.py", "make_model", "net.py:", ":make_model", ""])
def test_a_spec_without_file_or_function(spec: str) -> None:
    with pytest.raises(Mistake, match="names no model: write the file and the function"):
        load_factory(spec)


def test_inputs_that_meet(tmp_path: Path) -> None:
    """The command answers for every row on its own."""
    code = "class Centred(nn.Linear):\n    def forward(self, x):\n        return super().forward(x - x.mean(0))\n"
    with pytest.raises(Mistake, match="lets the inputs of a batch meet: it must answer each input"):
        build_model(f"{written(tmp_path, code + 'def make(): return Centred(4, 2)')}:make", (4,), 2)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="cannot read the model file .*absent.py: No such file"):
        load_factory(f"{tmp_path / 'absent.py'}:make")
    with pytest.raises(Mistake, match="cannot read the model file"):
        load_factory(f"{tmp_path}:make")


NET = """
class Own(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.layer = nn.Linear(features, outputs)

    def forward(self, x):
        return 0.5 * self.layer(x)


def make(features, outputs):
    return Own(features, outputs)
"""


def test_a_run_with_a_network_of_the_user_is_asked_like_any_other(command: Command, tmp_path: Path) -> None:
    """On a dataset without columns, and in a vote: the file makes the network again."""
    net, quick = f"{written(tmp_path, NET)}:make", ("--flip-labels", "1", "--steps", "2", "--quiet")
    assert command("train", "--dataset", "two-moons", "--model", net, *quick, "--out", tmp_path / "moons").code == 0
    assert command("certify", tmp_path / "moons", "--withstands", "--quiet").code == 0
    attacked = command("attack", tmp_path / "moons", "--attacks", "random-corners", "--targets", "1", "--quiet")
    assert attacked.code == 0, attacked.err
    table = write_csv(tmp_path / "people.csv", people(60))
    vote = ("--data", table, "--target", "income", "--ignore", "pay", "--members", "2", "--model", net)
    assert command("train", *vote, *quick, "--out", tmp_path / "vote").code == 0
    told = command("certify", tmp_path / "vote", table, "--json", "-", "--quiet")
    assert told.code == 0 and len(json.loads(told.out)["rows"]) == 60
