"""A certificate of a table says no more than is true: encodings, units, rounding, and the words for them.

Attackers here write a file that the threat allows, and the same command reads it.
"""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from membership import outside
from rich.console import Console

import boundflow as bf
from boundflow.symbols.budgets import Kind
from fullcert.cli import display
from fullcert.cli.train import begin
from fullcert.data.encoding import DECLARED, SAME, Encoding, Number, Target
from fullcert.data.fitted_encoding import Moves, make
from fullcert.data.tables import Table, read
from fullcert.experiment import runs, tasks, threats
from fullcert.experiment.options import Options
from fullcert.experiment.training import Recipe
from fullcert.results import answering
from fullcert.results.answering import answers
from fullcert.results.evaluation import details, encoded
from fullcert.system.mistakes import Mistake

ROWS = 60


def table(path: Path, **columns: list[object]) -> str:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def people(path: Path, **changed: list[object]) -> str:
    """Ages from 20 to 59, hours with holes, and a class that goes by age."""
    ages = [20 + 7 * row % 40 for row in range(ROWS)]
    hours = ["" if row % 6 == 0 else 30 + row % 20 for row in range(ROWS)]
    return table(path, **{"age": ages, "hours": hours, "y": ["10" if age > 40 else "2" for age in ages], **changed})


def options(data: str, **more: object) -> Options:
    return Options(
        **{"data": data, "target": "y", "hidden": "none", "init_scale": 0.0, "epochs": 2, "batch_size": 0, **more}
    )


def finished(folder: Path, chosen: Options) -> Path:
    """The folder of a run of a table, as `fullcert train` leaves it, without its report."""
    recipe = Recipe(chosen)
    runs.make_folder(folder)
    begin(folder, recipe, resume=False, overwrite=False)
    recipe.certify([]).save(folder / runs.CERTIFICATE)
    return folder


# --- the encoding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", ["hours=0:200", "hours=40:40.5"])
def test_who_fills_in_missing_values_changes_mean_and_deviation(tmp_path: Path, span: str) -> None:
    chosen = options(people(tmp_path / "holes.csv"), missing=(span,))
    column = tasks.load(chosen).encoding.column("hours")
    ends = span.removeprefix("hours=").split(":")
    for fill in ends:
        hours = [fill if row % 6 == 0 else 30 + row % 20 for row in range(ROWS)]
        other = tasks.load(replace(chosen, data=people(tmp_path / "filled.csv", hours=hours))).encoding.column("hours")
        same = (other.center, other.scale) == (column.center, column.scale)
        assert same or column.source == DECLARED, "said to be the same for every allowed dataset, and is not"
    assert column.source == (SAME if span == "hours=40:40.5" else DECLARED)


def test_a_budget_counts_samples_of_which_many_may_be_missing() -> None:
    values = np.array([0.0, 10.0, *[np.nan] * 98])
    columns = Table({"v": values, "y": np.array(["a", "b"] * 50)}, Path("t"))
    moves = Moves({"v": 3.0}, share=0.01, missing={"v": (0.0, 10.0)})
    [column] = make(columns, "y", regression=False, fixed={}, moves=moves).columns
    assert column.source == DECLARED, "one sample moved by 3 is half of all that are known"


def number(values: np.ndarray, moves: Moves) -> Number:
    columns = Table({"v": values, "y": np.array(["a", "b"] * (len(values) // 2))}, Path("t"))
    [column] = make(columns, "y", regression=False, fixed={}, moves=moves).columns
    assert isinstance(column, Number)
    return column


# where the grid of the mean and the powers of two end, for a column of a deviation near 1
EDGES = {"mean": 0.25, "longer": 2**0.5, "shorter": 2**-0.5}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_columns_that_reach_the_edge_of_the_grid_are_declared(edge: str, share: float) -> None:
    """To the last bit: columns whose most distant dataset rounds to other numbers, where roundings decide that."""
    pick, ends = np.random.RandomState(len(edge)), dict[str, int]()
    for _ in range(200):
        values = (
            pick.choice([1.0, 0.97]) * np.repeat([-1.0, 1.0], 20) * (1 if edge == "mean" else pick.uniform(0.9, 1.2))
        )
        values = values + pick.uniform(0.1, 0.2) if edge == "mean" else values
        moved = np.zeros(40)
        moved[: int(40 * share)] = 1.0
        moved = pick.permutation(moved)
        if edge == "mean":
            length = (EDGES[edge] - values.mean()) / moved.mean()
        elif share == 1.0:
            moved, length = np.sign(values), EDGES[edge] - values.std()
        else:  # a quarter of the samples, each as far as they can together
            moved, length = moved * np.sign(values), 2 * (EDGES[edge] - values.std())
        length *= 1 + pick.choice([0.0, 1e-16, -1e-16, 1e-13, -1e-13, 1e-6, -1e-3, -0.2])
        column = number(values, Moves({"v": abs(length)}, share=share))
        far = number(values + length * moved, Moves({"v": abs(length)}, share=share))
        ends[column.source] = ends.get(column.source, 0) + 1
        same = (column.center, column.scale) == (far.center, far.scale)
        assert same or column.source == DECLARED, "said to be the same for every allowed dataset, and is not"
    assert edge != "mean" or set(ends) == {SAME, DECLARED}, "both sides of the edge are drawn"


@pytest.mark.parametrize("low", [0.0, 30.0, -1000.0])
def test_missing_values_may_be_anywhere_in_their_range(low: float) -> None:
    """Whoever fills them in, alike or each for itself: the numbers are the same, or declared."""
    pick, ends = np.random.RandomState(0), set()
    for _ in range(300):
        values = pick.uniform(30, 40) + pick.uniform(0.5, 40) * pick.randn(100)
        holes = pick.permutation(100) < pick.choice([1, 4, 25])
        length = 10 ** pick.uniform(-3, 3)
        range_of = {"v": (low, low + length)}
        column = number(np.where(holes, np.nan, values), Moves({}, missing=range_of))
        ends.add(column.source)
        for _ in range(4):
            fill = low + length * [np.zeros(100), np.ones(100), pick.randint(0, 2, 100)][pick.randint(3)]
            known = number(np.where(holes, fill, values), Moves({"v": 1e-12}, share=0.0))
            same = (column.center, column.scale) == (known.center, known.scale)
            assert same or column.source == DECLARED, "said to be the same for every allowed dataset, and is not"
    assert ends == {SAME, DECLARED} or low < 0, "both kinds of columns are drawn"


def test_targets_that_move_change_their_own_scale(tmp_path: Path) -> None:
    targets = [5.0 * (row % 9) for row in range(ROWS)]
    chosen = options(
        people(tmp_path / "t.csv", y=targets), regression=True, target_tolerance=8.0, missing=("hours=0:60",)
    )
    recipe = Recipe(chosen)
    assert recipe.task.encoding.target.source == DECLARED
    told = [line for source, line in encoded(recipe.task.encoding) if source == DECLARED]
    assert ["scale of the target", "declared, not covered: y"] in told
    close = tasks.load(replace(chosen, target_tolerance=0.01)).encoding.target
    assert close.source == SAME
    for side in (-1, 1):
        moved = people(tmp_path / "p.csv", y=[target + side * 0.01 for target in targets])
        other = tasks.load(replace(chosen, data=moved, target_tolerance=0.01)).encoding.target
        assert (other.center, other.scale) == (close.center, close.scale)
    removed = tasks.load(replace(chosen, target_tolerance=0.0, remove=1)).encoding.target
    assert removed.source == DECLARED


def test_a_class_that_flips_can_empty_is_declared() -> None:
    columns = Table({"v": np.arange(10.0), "y": np.array(["a"] * 8 + ["b"] * 2)}, Path("t"))
    for flips, source in ((1, SAME), (2, DECLARED)):
        made = make(columns, "y", regression=False, fixed={}, moves=Moves({}, flips=flips))
        assert made.target.source == source


def test_a_share_of_a_centered_column_is_refused(tmp_path: Path) -> None:
    data = people(tmp_path / "t.csv")
    with pytest.raises(Mistake, match="share of the value"):
        Recipe(options(data, ignore=("hours",), scale=("age=40:16",), tolerance=("age=5%",)))
    folder = finished(tmp_path / "run", options(data, ignore=("hours",), tolerance=("age=1",)))
    with pytest.raises(Mistake, match="share of the value"):
        answers(folder, Path(data), None, ["age=5%"])
    uncentered = options(data, ignore=("hours",), scale=("age=0:16",), tolerance=("age=5%",))
    recipe = Recipe(uncentered)
    x = torch.from_numpy(recipe.data.train.inputs)
    lifted = recipe.threats.training.lift(None, x, torch.zeros(len(x)), np.arange(len(x))).inputs
    for share in (0.95, 1.05):
        moved = torch.from_numpy(recipe.task.encoding.inputs(read(Path(data)))) * share
        chosen = np.sort(np.random.RandomState(0).permutation(ROWS)[ROWS // 5 + (ROWS - ROWS // 5) // 10 :])
        assert bool(((moved[chosen] >= lifted.lower) & (moved[chosen] <= lifted.upper)).all())


@pytest.mark.parametrize("value", ["inf", "1e200"])
def test_a_value_too_large_to_be_scaled_is_a_mistake(tmp_path: Path, value: str) -> None:
    data = table(tmp_path / "t.csv", v=[value] * 5 + list(range(25)), y=["a", "b"] * 15)
    for threat in ({"epsilon": 0.01}, {"flip_labels": 1}):
        with pytest.raises(Mistake, match="too large|infinite"):
            tasks.load(options(data, **threat))


# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0, 10**6, 10**9])
def test_moved_targets_are_inside_however_large_they_are(tmp_path: Path, dtype: str, offset: int) -> None:
    numbers = np.random.RandomState(0).randn(ROWS)
    targets = [Decimal(f"{offset + number:.16g}") for number in numbers]
    more = {"regression": True, "target_tolerance": 0.001, "missing": ("hours=0:60",), "dtype": dtype}
    recipe = Recipe(options(people(tmp_path / "t.csv", y=targets), **more))
    y = torch.from_numpy(recipe.data.train.labels).to(recipe.dtype).reshape(-1, 1)
    x = torch.from_numpy(recipe.data.train.inputs).to(recipe.dtype)
    lifted = recipe.threats.training.lift(None, x, y, np.arange(len(x))).targets
    rows = np.sort(np.random.RandomState(0).permutation(ROWS)[ROWS // 5 + (ROWS - ROWS // 5) // 10 :])
    for side in (-1, 1):
        moved = people(tmp_path / "p.csv", y=[target + side * Decimal("0.001") for target in targets])
        found = recipe.task.encoding.target.encoded(read(Path(moved)).column("y"))[rows]
        found = torch.from_numpy(found).to(recipe.dtype).reshape(-1, 1)
        assert bool(((found >= lifted.lower) & (found <= lifted.upper)).all())


def test_the_slack_of_a_test_row_goes_by_the_test_rows(tmp_path: Path) -> None:
    rows = [*range(40)] * 2
    data = table(tmp_path / "t.csv", v=rows, y=["a", "b"] * 40)
    far = table(tmp_path / "far.csv", v=[10**9] * 10, y=["a", "b"] * 5)
    near = Recipe(options(data, test_data=data, tolerance=("v=0.001",))).threats.test
    wide = Recipe(options(data, test_data=far, tolerance=("v=0.001",))).threats.test
    assert wide.absolute[0] > near.absolute[0] * (1 + 1e-5)


# --- new rows ---------------------------------------------------------------------------------------------------------


def test_a_hole_of_which_nobody_said_anything_is_not_certified(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", options(people(tmp_path / "t.csv"), missing=("hours",)))
    rows = Path(table(tmp_path / "new.csv", age=[30, ""], hours=["", 40]))
    with pytest.raises(Mistake, match=r"missing values in 'age' \(1\): say in training"):
        answers(folder, rows, None, None)


def test_all_columns_with_holes_are_named_at_once(tmp_path: Path) -> None:
    rows = [*range(30, 69), ""]
    data = table(tmp_path / "t.csv", age=rows, hours=["", *rows[:-1]], y=["a", "b"] * 20)
    with pytest.raises(Mistake, match=r"missing values in 'age' \(1\), 'hours' \(1\).*--missing age=LOW:HIGH"):
        Recipe(options(data))


def test_an_observed_range_is_that_of_the_training_rows(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", options(people(tmp_path / "t.csv"), missing=("hours",)))
    assert '"hours=30.0:49.0"' in (folder / runs.OPTIONS).read_text()
    alone = answers(folder, Path(table(tmp_path / "one.csv", age=[30], hours=[""])), None, None).rows
    among = answers(folder, Path(table(tmp_path / "two.csv", age=[30, 30], hours=["", 41])), None, None).rows
    for end in ("lower", "upper"):
        assert alone[end][0] == among[end][0], "the other rows of a file say nothing about a missing value"


def test_classes_are_told_by_name_whatever_their_order() -> None:
    assert Target("y", ("malignant", "benign")).encoded(np.array(["benign", "malignant"])).tolist() == [1, 0]
    assert Target("y", ("-1", "10", "2")).encoded(np.array([2.0, 10.0, -1.0])).tolist() == [2, 1, 0]
    with pytest.raises(Mistake, match="'3', and the classes are"):
        Target("y", ("1", "7")).encoded(np.array([3.0]))


def test_rows_of_a_dataset_are_answered_by_the_names_of_its_classes(tmp_path: Path) -> None:
    columns = read(Path(table(tmp_path / "t.csv", a=[1, 2], b=[3, 4], label=[7, 1])))
    made = answering.as_it_is(columns, (2,), ("1", "7"), Options())
    assert made.target.classes == ("1", "7")
    assert made.target.encoded(columns.column("label")).tolist() == [1, 0]


# --- words ------------------------------------------------------------------------------------------------------------


def test_any_category_may_be_one_that_nobody_has(tmp_path: Path) -> None:
    """A file with a town that trusted data do not have, or with an empty cell, becomes a row of zeros: in the set."""
    rows: dict[str, list[object]] = {"c": [*"abcab" * 12], "v": list(range(60)), "y": ["a", "b"] * 30}
    data, trusted = table(tmp_path / "t.csv", **rows), table(tmp_path / "trusted.csv", **rows)
    for more in ({}, {"trusted": trusted}):
        recipe = Recipe(options(data, any_category=("c",), **more))
        assert recipe.threats.training_words == "put any category into c in every training sample"
        x, train = torch.from_numpy(recipe.data.train.inputs), tasks.split_rows(0, 60, False)["train"]
        places, space = recipe.task.encoding.places("c"), bf.Symbols(recipe.threats.training)
        lifted = recipe.threats.training.lift(space, x, torch.zeros(len(x)), np.arange(len(x))).inputs
        for word in ("east", "", "b"):
            poisoned = table(tmp_path / "p.csv", **{**rows, "c": [word] * 60})
            moved = torch.from_numpy(recipe.task.encoding.inputs(read(Path(poisoned)))[train])
            assert not outside(lifted[:, places], moved[:, places], Kind.SIMPLEX)


def test_a_category_of_which_there_is_none_is_refused(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", c=[""] * 40, v=list(range(40)), y=["a", "b"] * 20)
    for threat in ({"any_category": ("c",)}, {"missing": ("c",)}):
        with pytest.raises(Mistake, match="c: the training rows hold no category that it could be"):
            Recipe(options(data, categorical=("c",), **threat))


def test_a_target_that_is_not_known_yet_is_no_number(tmp_path: Path) -> None:
    chosen = options(people(tmp_path / "t.csv", y=list(range(ROWS))), regression=True, missing=("hours=0:60",))
    folder = finished(tmp_path / "run", chosen)
    found = answers(folder, Path(table(tmp_path / "new.csv", age=[30, 40], hours=[40, 41], y=[3, ""])), None, None).rows
    assert found["true"] == [3.0, None]


def test_words_say_what_is_covered_and_no_more(tmp_path: Path) -> None:
    data = people(tmp_path / "t.csv")
    more = {"tolerance": ("age=0.12345678",), "missing": ("hours=0:60",), "remove": 2}
    recipe = Recipe(options(data, **more))
    told = recipe.threats.training_words
    assert "moved age by up to 0.12345678 in every training sample" in told
    assert "filled in the missing values of hours by anything from 0 to 60" in told
    certificate = recipe.certify([])
    fixed, covered, not_covered = details(recipe, certificate)
    assert ["list of classes", "declared, not covered: y"] in not_covered[1]
    assert ["encoding of 2 columns", "declared, not covered: age, hours"] in not_covered[1]


def test_words_give_one_budget_to_all_changes_of_features() -> None:
    """At most 3 samples are touched at all: not 3 by one change and 3 others by another."""
    chosen = Options(data="t.csv", target="y", tolerance=("age=1",), any_category=("job",), at_most=3, flip_labels=2)
    told = threats.training_words(chosen, 288, True)
    assert told == (
        "moved age by up to 1 and put any category into job, in at most 3 of the 288 training samples altogether "
        "and flipped at most 2 of the 288 training labels"
    )
    others = Options(data="t.csv", target="y", epsilon=0.5, remove=1, replace=2, missing=("job",), clip_gradients=1.0)
    assert threats.training_words(others, 1288, True) == (
        "moved every number, in units of its column's scale, by up to 0.5 in every training sample, slipped in at most "
        "1 of the 1,288 training samples, replaced at most 2 of the 1,288 training samples by anything and filled in "
        "the missing values of job by any category of the training rows"
    )
    alone = threats.training_words(replace(chosen, any_category=(), flip_labels=0), 288, True)
    assert alone == "moved age by up to 1 in at most 3 of the 288 training samples"
    moved = threats.test_words(replace(chosen, test_epsilon=0.5), True)
    assert (
        moved.count("in the test input") == 1 and "0.5" in moved and moved.endswith("age by up to 1 in the test input")
    )


@pytest.mark.parametrize(("dataset", "said"), [("iris", True), ("two-moons", False)])
def test_a_dataset_that_comes_scaled_says_so(dataset: str, said: bool) -> None:
    recipe = Recipe(Options(dataset=dataset, hidden="none", epochs=1, batch_size=0))
    not_covered = details(recipe, recipe.certify([]))[2][1]
    assert said == any(line[0] == "scaling" for line in not_covered)


def test_what_is_shown_is_rounded_to_the_side_that_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {
        "row": [0],
        "label": ["a"],
        "certified": [True],
        "margin": [0.99999],
        "lower": [0.99999],
        "upper": [1.00001],
    }
    told = {**answering.summary(rows), "claim": "", "threat": {"training": "", "test": ""}, "unknown_categories": {}}
    display.show_answers(rows, told, None, Console(width=200))
    shown = capsys.readouterr().out
    assert shown.count("0.9999 ") == 2
    assert "1.001" in shown
    metrics = {"dataset": "d", "domain": "interval", "threat": "t", "test_epsilon": 0, "steps": 1, "seconds": 1.0}
    accuracies = {"nominal_accuracy": 1.0, "certified_accuracy": 0.9999, "certified_robustness": 0.9999}
    display.show({**metrics, **accuracies}, None, Console(width=200))
    assert capsys.readouterr().out.count("99.9%") == 2


def test_epsilon_of_a_table_covers_the_rounding_of_its_scaling() -> None:
    encoding = Encoding((Number("v", 0.0, 3.0, SAME),), Target("y", ("a", "b")))
    subject = threats.Subject(np.ones((4, 1)), encoding, 2, None, 2.0**-52, np.array([1.0]))
    chosen = Options(data="t.csv", target="y", epsilon=0.1)
    assert float(threats.build(chosen, subject).training.epsilon[0]) > 0.1
