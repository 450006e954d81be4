"""How columns become inputs, and what every allowed dataset would have made of them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullcert.data.encoding import DECLARED, FIXED, SAME, Encoding, Image, Number, Target, Words
from fullcert.data.fitted_encoding import Moves, make
from fullcert.data.tables import Table, as_words
from fullcert.system.mistakes import Mistake

STILL = Moves({})


def table(**columns: Any) -> Table:
    made = {name: np.array(column) for name, column in columns.items()}
    floats = {name: column.astype(np.float64) for name, column in made.items() if column.dtype.kind in "ifb"}
    return Table({**made, **floats}, Path("people.csv"))


def encoded(of: Table, **options: Any) -> Encoding:
    return make(of, "y", **{"regression": False, "fixed": {}, "moves": STILL, **options})


PEOPLE = table(age=[20, 30, 40, 50], town=["n", "s", "n", ""], zip=[1, 2.5, 1, math.nan], y=["no", "yes", "no", "yes"])


# --- inputs ---------------------------------------------------------------------------------------------------


def test_numbers_are_scaled_and_words_are_one_hot() -> None:
    made = encoded(PEOPLE, categorical=["zip"])
    assert made.features == ("age", "town=n", "town=s", "zip=1", "zip=2.5")
    inputs = made.inputs(PEOPLE)
    assert np.allclose(inputs[:, 0], (np.array([20, 30, 40, 50]) - 35) / np.sqrt(125))
    assert inputs[:, 1:].tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert made.places("town") == [1, 2] and made.column("age") == made.columns[0]
    assert made.target.classes == ("no", "yes") and made.target.encoded(PEOPLE.columns["y"]).tolist() == [0, 1, 0, 1]


def test_unseen_and_missing_categories_are_zeros() -> None:
    made = encoded(PEOPLE, ignore=["zip"])
    assert made.inputs(table(age=[35], town=["east"])).tolist() == [[0, 0, 0]]


def test_whole_numbers_are_the_same_category_however_they_are_written() -> None:
    assert as_words(np.array([1.0, -0.0, 2.5, 1e20, math.nan])).tolist() == ["1", "0", "2.5", f"{10**20}", ""]
    made = encoded(PEOPLE, categorical=["zip"])
    words = table(age=[35, 35, 35], town=["n"] * 3, zip=["1", "2.5", "x"])
    assert made.inputs(words)[:, 3:].tolist() == [[1, 0], [0, 1], [0, 0]]


def test_a_category_column_without_any_value_has_no_inputs() -> None:
    empty = table(age=[1, 2], zip=[math.nan, math.nan], y=["a", "b"])
    made = encoded(empty, categorical=["zip"])
    assert made.features == ("age",) and made.inputs(empty).shape == (2, 1)


def test_an_encoding_survives_a_file() -> None:
    for made in (
        encoded(PEOPLE, categorical=["zip"]),
        encoded(table(x=[1, 2, 3], y=[0.1, 0.2, 0.7]), regression=True),
        Encoding((Image("x", (1, 2, 2)),), encoded(PEOPLE).target),
    ):
        assert Encoding.from_data(json.loads(json.dumps(made.as_data()))) == made


def test_numeric_classes_have_their_numbers_as_names() -> None:
    made = encoded(table(x=[1, 2, 3], y=[10, 9, 9.5]))
    assert made.target.classes == ("10", "9", "9.5")
    assert made.target.encoded(np.array([9.0, 10.0, 9.5])).tolist() == [1, 0, 2]


def test_a_regression_target_is_scaled() -> None:
    target = encoded(table(x=[1, 2], y=[10, 30]), regression=True).target
    assert target.regression and target.encoded(np.array([20.0, 40.0])).tolist() == [0, 2]
    assert encoded(table(x=[1, 2], y=[3, 3]), regression=True).target.scale == 1


def test_images_stay_whole() -> None:
    pixels = np.zeros((2, 1, 2, 2))
    made = encoded(Table({"x": pixels, "y": np.array(["a", "b"])}, Path("x.npz")))
    assert made.columns == (Image("x", (1, 2, 2)),) and made.inputs(Table({"x": pixels}, Path("x.npz"))) is pixels
    with pytest.raises(Mistake, match=r"inputs of shape \(2, 2\)"):
        made.inputs(Table({"x": pixels[:, 0]}, Path("x.npz")))


MISTAKES: list[tuple[Table, dict[str, Any], str]] = [
    (table(x=[1, 2]), {}, "no column 'y'"),
    (table(y=["a", "b"]), {}, "no column besides 'y'"),
    (table(x=[1, 2], y=["a", "b"]), {"ignore": ["z"]}, "no column 'z'"),
    (table(x=[1, 2], y=["a", "b"]), {"categorical": ["z"]}, "no column 'z'"),
    (table(x=[1, 2], y=["a", "b"]), {"fixed": {"z": (0, 1)}}, "no column 'z'"),
    (table(x=["a", "b"], y=["a", "b"]), {"fixed": {"x": (0, 1)}}, "--scale x"),
    (table(x=[1, 2], y=["a", "b"]), {"fixed": {"x": (0, 1)}, "categorical": ["x"]}, "--scale x"),
    (table(x=[1, 2], y=["a", ""]), {}, "1 row has no value in the target"),
    (table(x=[1, 2], y=["a", "a"]), {}, "one class only"),
    (table(x=[1, 2], y=["a", "b"]), {"regression": True}, "needs numbers"),
    (table(x=range(200), y=[v / 7 for v in range(200)]), {}, "is this --regression"),
    (table(x=[str(v) for v in range(2000)], y=["a", "b"] * 1000), {}, "leave it out with --ignore x"),
    (table(x=[math.nan] * 2, y=["a", "b"]), {}, "no value at all"),
    (table(x=np.zeros((2, 2, 2)), z=[1, 2], y=["a", "b"]), {}, "leave out all but one"),
    (table(x=[1, 2], y=np.zeros((2, 2, 2))), {}, "one value a sample"),
]


@pytest.mark.parametrize(("of", "options", "words"), MISTAKES, ids=[words for *_, words in MISTAKES])
def test_mistakes(of: Table, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Mistake, match=words):
        encoded(of, **options)


def test_rows_that_do_not_fit() -> None:
    made = encoded(PEOPLE, ignore=["zip"])
    for rows, words in (
        (table(age=["old"], town=["n"]), "'age' of people.csv must hold numbers"),
        (table(town=["n"]), "no column 'age'"),
        (table(age=np.zeros((1, 2, 2)), town=["n"]), "'age' of people.csv must hold numbers"),
    ):
        with pytest.raises(Mistake, match=words):
            made.inputs(rows)
    with pytest.raises(Mistake, match="holds 'maybe', and the classes are 'no', 'yes'"):
        made.target.encoded(np.array(["maybe", "yes"]))
    with pytest.raises(Mistake, match="no column 'pay' among the inputs"):
        made.places("pay")
    unsorted = Target("y", ("malignant", "benign"))
    assert unsorted.encoded(np.array(["benign", "malignant"])).tolist() == [1, 0]
    number = encoded(table(x=[1, 2], y=[1, 2]), regression=True).target
    for words in (np.array(["one"]), np.array([1.0, math.nan])):
        with pytest.raises(Mistake, match="the target column 'y'"):
            number.encoded(words)


# --- where its numbers come from ------------------------------------------------------------------------------


def sources(moves: Moves, **options: Any) -> dict[str, str]:
    return {column.name: column.source for column in encoded(PEOPLE, ignore=["zip"], moves=moves, **options).columns}


def test_sources() -> None:
    assert sources(STILL) == {"age": SAME, "town": SAME}
    assert sources(Moves({"age": 0.01})) == {"age": SAME, "town": SAME}
    assert sources(Moves({"age": 20.0}))["age"] == DECLARED
    assert sources(Moves({"town": math.inf})) == {"age": SAME, "town": DECLARED}
    assert sources(Moves({}, anything=True)) == {"age": DECLARED, "town": DECLARED}
    assert sources(Moves({"age": 20.0}), fixed={"age": (40.0, 16.0)})["age"] == FIXED
    assert sources(Moves({}, anything=True), trusted=True) == {"age": FIXED, "town": FIXED}
    assert sources(Moves({"age": 20.0}, share=1e-6))["age"] == SAME


def test_scales_that_were_fixed_are_used() -> None:
    made = encoded(PEOPLE, ignore=["zip", "town"], fixed={"age": (40.0, 16.0)})
    assert made.inputs(PEOPLE)[:, 0].tolist() == [-1.25, -0.625, 0, 0.625]


def test_a_column_with_a_relative_tolerance_is_not_centered() -> None:
    for moves, trusted in ((STILL, False), (Moves({"age": 2.5}), False), (Moves({"age": 99.0}), False), (STILL, True)):
        (column,) = encoded(PEOPLE, ignore=["zip", "town"], relative=["age"], moves=moves, trusted=trusted).columns
        assert isinstance(column, Number) and column.center == 0 and column.scale > 0


def test_a_column_of_one_value() -> None:
    (column,) = encoded(table(x=[3, 3], y=["a", "b"])).columns
    assert isinstance(column, Number) and (column.center, column.scale, column.source) == (3, 1, SAME)
    (moved,) = encoded(table(x=[3, 3], y=["a", "b"]), moves=Moves({"x": 0.1})).columns
    assert moved.source == DECLARED, "the deviation is anything from 0 to 0.1, and so is its power of two"


def numbers_of(column: np.ndarray, relative: bool, moves: Moves) -> Number:
    of = Table({"x": column, "y": np.array(["a", "b"] * len(column))[: len(column)]}, Path("x.csv"))
    (made,) = make(of, "y", regression=False, relative=["x"] * relative, fixed={}, moves=moves).columns
    assert isinstance(made, Number)
    return made


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(2, 40),
    middle=st.floats(-1e4, 1e4),
    spread=st.floats(1e-3, 1e3),
    share=st.sampled_from([1.0, 0.5, 0.1]),
    size=st.sampled_from([1e-4, 1e-2, 0.05, 0.2, 0.5]),
    relative=st.booleans(),
)
def test_when_it_says_the_same_every_moved_column_gives_the_same(
    seed: int, count: int, middle: float, spread: float, share: float, size: float, relative: bool
) -> None:
    """Moves at the ends of the tolerance that shift the mean and stretch or shrink the deviation, and random ones."""
    random = np.random.RandomState(seed)
    column = middle + spread * random.randn(count)
    moves = Moves({"x": size * spread}, share=max(1, int(share * count)) / count)
    made = numbers_of(column, relative, moves)
    if made.source != SAME:
        return
    outward = np.sign(column - column.mean())
    signs = [np.ones(count), -np.ones(count), outward, -outward, random.choice([-1, 1], count), random.rand(count)]
    for sign in signs:
        touched = random.permutation(count)[: max(1, int(share * count))]
        moved = column.copy()
        moved[touched] += size * spread * sign[touched]
        again = numbers_of(moved, relative, moves)
        assert (again.center, again.scale) == (made.center, made.scale)


def test_most_large_columns_with_small_tolerances_are_the_same() -> None:
    """The law above is not about an empty set."""
    random = np.random.RandomState(0)
    found = [
        numbers_of(50 * random.randn() + 10 * random.rand() * random.randn(100), False, Moves({"x": 1e-3})).source
        for _ in range(50)
    ]
    assert found.count(SAME) > 45


def test_words_and_numbers_know_their_width() -> None:
    assert Number("x", 0.0, 1.0, SAME).width == 1 and Words("x", ("a", "b"), SAME).width == 2
    assert Image("x", (3, 8, 8)).width == 192


# --- what a file says of columns ------------------------------------------------------------------------------


SAID: dict[str, Any] = {
    "columns": [
        {"kind": "number", "name": "age", "center": 40.0, "scale": 16.0, "source": SAME},
        {"kind": "words", "name": "town", "values": ["n", "s"], "source": SAME},
        {"kind": "image", "name": "scan", "shape": [2, 2]},
    ],
    "target": {"name": "y", "classes": ["no", "yes"]},
}


def test_what_is_written_of_columns_is_read() -> None:
    made = Encoding.from_data(SAID)
    assert made.column("town").values == ("n", "s") and made.column("scan").shape == (2, 2)
    assert Encoding.from_data(json.loads(json.dumps(made.as_data()))) == made


NO_NUMBER, NO_WORD = ("n", None, [1], math.nan, math.inf, 2**53), (3, None, ["n"], 1.5)
# place of a column, what is said of it, and values that it cannot have
WRONG: list[tuple[int, str, tuple[object, ...]]] = [
    *((place, "name", NO_WORD) for place in range(3)),
    *((place, "source", NO_WORD) for place in range(2)),
    (0, "center", NO_NUMBER),
    (0, "scale", NO_NUMBER),
    (0, "fill", ("n", [1], math.nan, math.inf)),
    (1, "values", ("n", 3, None, ["n", 3])),
    (1, "fill", (3, 1.5, ["n"])),
    (1, "fill_source", NO_WORD),
    (1, "unknown", ("n", 3, None)),
    (2, "shape", ("n", 3, None, [2, 2.5], ["n"])),
]


@pytest.mark.parametrize(("place", "name", "value"), [(p, n, value) for p, n, wrong in WRONG for value in wrong])
def test_what_is_written_of_columns_is_of_its_kind(place: int, name: str, value: object) -> None:
    """Whoever changes a file is told, and nothing is computed with what is no number, or no word."""
    changed = json.loads(json.dumps(SAID))
    changed["columns"][place][name] = value
    with pytest.raises((ValueError, TypeError)):
        Encoding.from_data(changed)


@pytest.mark.parametrize(("place", "name", "value"), [(0, "fill", 3), (0, "center", 2**53 - 1), (1, "fill", "n")])
def test_what_else_may_be_written_of_columns(place: int, name: str, value: object) -> None:
    said = json.loads(json.dumps(SAID))
    said["columns"][place][name] = value
    assert getattr(Encoding.from_data(said).columns[place], name) == value
