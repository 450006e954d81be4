"""Options: every number in its range, files of them, and what goes before what."""

import math
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullcert.experiment.options import INPUTS, RANGES, Options, as_toml, flag_of, parse_widths, read_options, resolve
from fullcert.system.mistakes import Mistake

# --- ranges ---------------------------------------------------------------------------------------------------


def outside() -> list[tuple[str, Any]]:
    """For every number with a range: below its least, its limit, and what is not a number."""
    kinds = {entry.name: entry.type for entry in fields(Options)}
    found: list[tuple[str, Any]] = []
    for name, (least, limit) in RANGES.items():
        below = least - 1 if kinds[name] in (int, int | None) else math.nextafter(least, -math.inf)
        found += [(name, below), (name, limit)]
        if kinds[name] not in (int, int | None):
            found += [(name, math.nan), (name, -math.inf)]
    return found


@pytest.mark.parametrize(("name", "value"), [*outside(), ("seed", 10**400), ("hidden", "0"), ("channels", "3,")])
def test_bad_numbers_are_refused(name: str, value: float | str) -> None:
    with pytest.raises(Mistake, match=flag_of(name)):
        Options(**{name: value})


@pytest.mark.parametrize(("name", "ends"), RANGES.items())
def test_the_least_number_is_allowed(name: str, ends: tuple[float, float]) -> None:
    further = {"clip_gradients": 1.0} if name == "replace" else {}
    assert getattr(Options(**{name: ends[0], **further}), name) == ends[0]


def test_every_number_has_a_range() -> None:
    numbers = {e.name for e in fields(Options) if e.type in (int, float, int | None, float | None)}
    assert numbers == RANGES.keys()


@pytest.mark.parametrize("hidden", ["", "0", "16,", ",", "16,-2", "a", "1.5", "16;8", "²", "1" * 19])
def test_bad_widths_are_refused(hidden: str) -> None:
    with pytest.raises(Mistake, match="--hidden"):
        parse_widths(hidden)


def test_widths() -> None:
    assert parse_widths("16, 8,1") == (16, 8, 1) and parse_widths("none") == ()


def test_what_goes_together() -> None:
    with pytest.raises(Mistake, match="--data needs --target"):
        Options(data="people.csv")
    with pytest.raises(Mistake, match="--replace needs --clip-gradients"):
        Options(replace=1)


# --- defaults that follow from others -------------------------------------------------------------------------


def test_the_test_radius_is_the_training_radius_unless_said_otherwise() -> None:
    assert Options(epsilon=0.5).test_epsilon == 0.5
    assert Options(epsilon=0.5, test_epsilon=0.0).test_epsilon == 0.0


def test_tolerances_are_those_of_training_unless_said_otherwise() -> None:
    assert Options(tolerance=("age=1",)).test_tolerance == ("age=1",)
    assert Options(tolerance=("age=1",), test_tolerance=("age=2",)).test_tolerance == ("age=2",)
    assert Options(tolerance=("age=1",), test_tolerance=("none",)).test_tolerance == ()


@pytest.mark.parametrize(
    "threat",
    [
        *({name: ("age",)} for name in ("tolerance", "any_category", "missing")),
        *({name: 1} for name in ("flip_labels", "target_tolerance", "remove")),
        {"replace": 1, "clip_gradients": 1.0},
    ],
)
def test_features_stay_where_another_threat_is_given(threat: dict[str, Any]) -> None:
    assert Options().epsilon == 0.001 and Options(**threat).epsilon == 0
    assert Options(**threat, epsilon=0.1).epsilon == 0.1


# --- files ----------------------------------------------------------------------------------------------------


def read(folder: Path, content: str | bytes) -> dict[str, Any]:
    path = folder / "options.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_options(path)


def test_keys_are_those_of_the_flags(tmp_path: Path) -> None:
    found = read(tmp_path, 'flip-labels = 3\nbatch_size = 7\nlr = 1\ntolerance = ["a=1", "b=2%"]\nignore = "name"\n')
    assert found == {
        **{"flip_labels": 3, "batch_size": 7, "lr": 1.0, "tolerance": ("a=1", "b=2%"), "ignore": ("name",)}
    }
    assert isinstance(found["lr"], float)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("colour = 1", "sets 'colour', and there is no such option"),
        ("out = 'runs'", "sets 'out'"),
        ("seed = 1.5", "'seed' .* must be int, not 1.5"),
        ("seed = true", "'seed' .* must be int"),
        ("lr = '1'", "'lr' .* must be float"),
        ("lr = true", "'lr' .* must be float"),
        ("regression = 1", "'regression' .* must be bool"),
        ("hidden = 16", "'hidden' .* must be str"),
        ("steps = 'all'", "'steps' .* must be int"),
        ("tolerance = [1]", "'tolerance' .* must be a word or a list of words"),
        ("tolerance = 1", "'tolerance' .* must be a word or a list of words"),
        ("[data]\npath = 1", "'data' .* must be str"),
        ("lr = 1970-01-01", "'lr' .* must be float"),
        ("flip-labels = 1\nflip_labels = 2", "twice"),
        ("seed = ", "is not TOML"),
        ("seed = 1\nseed = 2", "is not TOML"),
        (b"seed = '\xff'", "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(Mistake, match=words) as mistake:
        read(tmp_path, content)
    assert len(str(mistake.value).splitlines()) == 1 and str(tmp_path) in str(mistake.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(Mistake, match="cannot read"):
            read_options(path)


def again(options: Options, folder: Path) -> Options:
    return resolve({}, read(folder, as_toml(options)))


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(dataset="mnist-1-7", steps=3, lr=1e-300, lr_decay=1e22, at_most=5, clip_gradients=0.5),
        Options(
            data='a "b"\\c\nd.csv', target="\U0001f600 \x7f\t", tolerance=("a=1", "é=2%"), test_tolerance=("none",)
        ),
        Options(regression=True, data="x", target="y", missing=("age",), trusted="clean.csv", epsilon=0.25),
        resolve({"dataset": "iris"}, {}),
    ],
)
def test_written_options_give_the_same_run_again(options: Options, tmp_path: Path) -> None:
    assert again(options, tmp_path) == options
    assert set(tomllib.loads(as_toml(options))) == {k for k, v in asdict(options).items() if v is not None}


@settings(max_examples=60)
@given(word=st.text(st.characters(exclude_categories=["Cs"])), number=st.floats(0, allow_infinity=False))
def test_any_word_and_number_survive(word: str, number: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("options")
    options = Options(data=word, target=word, ignore=(word, word), epsilon=number, test_epsilon=number / 3)
    assert again(options, folder) == options


# --- what goes before what ------------------------------------------------------------------------------------


def test_the_flag_goes_before_the_file_the_file_before_the_rule() -> None:
    iris = resolve({"dataset": "iris"}, {})
    assert resolve({}, {}).lr != iris.lr == 1.0 == resolve({}, {"dataset": "iris"}).lr
    assert resolve({"dataset": "iris"}, {"lr": 0.5}).lr == 0.5
    assert resolve({"dataset": "iris", "lr": 0.25}, {"lr": 0.5}).lr == 0.25
    assert resolve({"dataset": "two-moons"}, {"dataset": "iris"}) == resolve({}, {})


def test_who_says_how_many_epochs_or_steps_says_how_long_a_run_is() -> None:
    by_rule = resolve({}, {})
    assert by_rule.steps is not None and by_rule.epochs >= by_rule.steps
    assert (resolve({"epochs": 70}, {}).epochs, resolve({"epochs": 70}, {}).steps) == (70, None)
    assert (resolve({"steps": 70}, {}).epochs, resolve({"steps": 70}, {}).steps) == (70, 70)
    assert (resolve({"epochs": 3, "steps": 70}, {}).epochs, resolve({"epochs": 3}, {"steps": 70}).steps) == (3, 70)


def test_a_table_has_a_linear_model_from_zero() -> None:
    own = resolve({"data": "people.csv", "target": "y", "dataset": "mnist"}, {})
    assert (own.hidden, own.init_scale, own.batch_size, own.epochs) == ("none", 0.0, 0, 5)
    assert resolve({"data": "people.csv", "target": "y", "regression": True}, {}).epochs == 10


def test_a_network_with_hidden_layers_does_not_start_from_nothing() -> None:
    """Zero is the middle of all linear models; a first layer of zeros leaves a deeper network nothing to learn from."""
    for deeper in ({"hidden": "8"}, {"model": "cnn"}, {"model": "net.py:make_model"}):
        assert resolve({"data": "people.csv", "target": "y", **deeper}, {}).init_scale == 1.0
        assert resolve({"dataset": "iris", **deeper}, {}).init_scale == 1.0
        assert resolve({"dataset": "iris", **deeper, "init_scale": 0.5}, {}).init_scale == 0.5


def test_whoever_names_a_part_of_the_network_has_all_of_it_trained() -> None:
    assert (resolve({}, {}).hidden, resolve({}, {}).frozen) == ("100", 1)
    for named in ({"hidden": "100"}, {"activation": "relu"}, {"domain": "interval"}, {"model": "net.py:make_model"}):
        assert resolve(named, {}).frozen == 0
    assert (resolve({"hidden": "8"}, {}).hidden, resolve({"activation": "relu"}, {}).hidden) == ("8", "16")


@pytest.mark.parametrize("name", INPUTS)
def test_pairs_of_classes_have_the_recipe_of_their_dataset(name: str) -> None:
    one, pair = resolve({"dataset": name}, {}), resolve({"dataset": f"{name}-1-7"}, {})
    assert asdict(one) == {**asdict(pair), "dataset": name}
