"""Answers in the units of the user hold what they say, with exact fractions: bounds, widths, the certified error."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from membership import fractions, outside
from torch import nn

import boundflow as bf
from boundflow.symbols.budgets import Kind
from boundflow.threats import Linf, Missing, Tolerance
from fullcert.data.encoding import Encoding, Number, Target, Words, scaled
from fullcert.data.tables import Table
from fullcert.experiment import threats
from fullcert.experiment.options import Options
from fullcert.results import answering, evaluation
from fullcert.results.evaluation import Answers
from fullcert.sklearn import CertifiedRegressor

ROWS = 200
DTYPES = {"float64": torch.float64, "float32": torch.float32}
TARGETS = [(0.1, 0.7), (-1234.5, 1e-3), (1e9, 3.0), (0.0, 1.0)]  # center and scale


def prediction(dtype: torch.dtype, outputs: int = 1) -> bf.Prediction:
    """Intervals of all widths around values of a few units."""
    random = np.random.default_rng(0)
    label = torch.from_numpy(random.normal(size=(ROWS, outputs)) * 3).to(dtype)
    reach = torch.from_numpy(10.0 ** random.uniform(-16, 1, size=(ROWS, outputs))).to(dtype)
    sure = torch.ones(ROWS, dtype=torch.bool)
    return bf.Prediction(label, sure, label - reach, label + reach, torch.zeros(ROWS, outputs, dtype=dtype))


def exact(x: torch.Tensor, center: float, scale: float) -> list[Fraction]:
    return [value * Fraction(scale) + Fraction(center) for value in fractions(x)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("center", "scale"), TARGETS)
def test_bounds_of_new_rows(center: float, scale: float, dtype: str) -> None:
    found = prediction(DTYPES[dtype])
    rows = answering.columns(found, Target("y", center=center, scale=scale), Table({}, Path("t")))
    lower, upper = exact(found.lower, center, scale), exact(found.upper, center, scale)
    for low, high, least, most, width, value in zip(
        lower, upper, *(rows[name] for name in ("lower", "upper", "width", "value")), strict=True
    ):
        assert Fraction(least) <= low and high <= Fraction(most), "the scaled interval is not inside"
        assert Fraction(width) >= Fraction(most) - Fraction(least) and least <= value <= most
    mean = sum(map(Fraction, rows["width"])) / ROWS
    assert Fraction(answering.summary(rows)["mean_width"]) >= mean


def test_scores_of_classes_are_as_they_are() -> None:
    found = replace(prediction(torch.float32, outputs=2), label=torch.zeros(ROWS, dtype=torch.long))
    rows = answering.columns(found, Target("y", ("a", "b")), Table({}, Path("t")))
    assert rows["lower_1"] == found.lower[:, 1].tolist() and rows["upper_0"] == found.upper[:, 0].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("center", "scale"), TARGETS)
def test_figures_of_a_run(center: float, scale: float, dtype: str) -> None:
    """Bounds, widths and the largest mean error that any attacker can cause, against the numbers of the table."""
    found, target = prediction(DTYPES[dtype]), Target("y", center=center, scale=scale)
    column = np.random.default_rng(1).normal(size=ROWS) * 2 * scale + center
    task = SimpleNamespace(regression=True, encoding=SimpleNamespace(target=target))
    certificate = SimpleNamespace(predict=lambda x, threat, chunk, tell: found, nominal=lambda x: found.label)
    x, y = torch.zeros(ROWS, 1, dtype=DTYPES[dtype]), torch.from_numpy(target.encoded(column))
    answers = Answers(SimpleNamespace(task=task), certificate, x, y, Linf(0.0))  # type: ignore[arg-type]
    lower, upper = exact(found.lower, center, scale), exact(found.upper, center, scale)
    ends = zip(lower, upper, fractions(answers.lower), fractions(answers.upper), strict=True)
    assert all(least <= low and high <= most for low, high, least, most in ends)
    figures = answers.accuracies()
    worst = [max(high - t, t - low) for low, high, t in zip(lower, upper, map(Fraction, column.tolist()), strict=True)]
    assert Fraction(figures["certified_mean_absolute_error"]) >= sum(worst) / ROWS
    widths = [high - low for low, high in zip(lower, upper, strict=True)]
    assert Fraction(figures["mean_width"]) >= sum(widths) / ROWS
    assert all(found >= width for found, width in zip(fractions(answers.measured), widths, strict=True))
    assert figures["mean_absolute_error"] <= figures["certified_mean_absolute_error"]


def test_bounds_that_are_void_stay_void() -> None:
    label = torch.zeros(1, 1)
    void = bf.Prediction(label, label[:, 0] > 0, label - torch.inf, label + torch.inf, label[:, 0] - torch.inf)
    rows = answering.columns(void, Target("y", center=0.1, scale=0.7), Table({}, Path("t")))
    assert rows["lower"] == rows["upper"] == rows["width"] == [None]


def test_widths_of_an_estimator_are_rounded_up() -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(20, 2))
    model = CertifiedRegressor(epsilon=1e-9, epochs=2, dtype="float32").fit(x, x[:, 0])
    found = model.predict_certified(x)
    for low, high, width in zip(*(part.tolist() for part in (found.lower, found.upper, found.width)), strict=True):
        assert Fraction(width) >= Fraction(high) - Fraction(low) > 0


def test_a_range_of_missing_values_holds_all_that_scales_into_it() -> None:
    """Scaled exactly, and scaled as floats are."""
    random = np.random.default_rng(3)
    for _ in range(100):
        center, scale = float(random.normal() * random.choice([0, 50])), float(10.0 ** random.uniform(-2, 2))
        low, high = sorted(round(float(end), 2) for end in random.normal(size=2) * 10 ** random.uniform(0, 7, 2))
        encoding = Encoding((Number("v", center, scale, "fixed"),), Target("y", ("a", "b")))
        chosen = Options(data="t.csv", target="y", missing=(f"v={low}:{high}",))
        for dtype in DTYPES.values():
            inputs = np.array([[np.nan], [0.0]])
            subject = threats.Subject(inputs, encoding, 2, None, torch.finfo(dtype).eps, threats.largest(inputs))
            threat = threats.of_test_inputs(chosen, subject)
            assert isinstance(threat, Missing)
            found = threat.at_test_time(None, torch.as_tensor(inputs, dtype=dtype))
            ends = threat.ranges.flatten().tolist()
            for end in (low, high):
                real = (Fraction(str(end)) - Fraction(center)) / Fraction(scale)
                assert Fraction(ends[0]) <= real <= Fraction(ends[1])
                assert Fraction(ends[0]) <= Fraction((end - center) / scale) <= Fraction(ends[1])
                assert Fraction(found.lower[0].item()) <= real <= Fraction(found.upper[0].item())
                assert bool(found.contains(torch.tensor((end - center) / scale, dtype=dtype))[0])


@pytest.mark.parametrize("asked", ["tolerance", "epsilon"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_new_rows_move_as_far_as_they_may_however_large_they_are(dtype: str, asked: str) -> None:
    """A row is scaled and rounded before it is read: one move of as many roundings, from wherever it began."""
    random, digits = np.random.default_rng(4), {"float32": 24, "float64": 53}[dtype]
    for _ in range(15):
        size, scale = 2.0 ** random.integers(3, 30), float(random.choice([1.0, 0.7]))
        column, step = Number("v", float(random.choice([0.0, 3.1])), scale, "fixed"), 2 * size / 2.0**digits
        encoding, move = Encoding((column,), Target("y", ("a", "b"))), step * random.integers(1, 4)
        rows = column.center + scale * (size + step * random.uniform(0, 8, size=(50, 1)))
        told = (
            {"test_epsilon": move}
            if asked == "epsilon"
            else {"test_epsilon": 0.0, "test_tolerance": (f"v={float(move * scale)!r}",)}
        )
        chosen, inputs = Options(data="t.csv", target="y", dtype=dtype, **told), scaled(column, rows)
        threat = answering.test_threat(chosen, encoding, encoding, inputs)
        x, space = torch.as_tensor(inputs, dtype=DTYPES[dtype]), bf.Symbols(threat)
        found = threat.lift(space, x, torch.zeros(len(x)), np.arange(len(x))).inputs
        assert isinstance(found, bf.Bounded) and found.affine
        for way in (-move, move):
            moved = torch.as_tensor(scaled(column, rows + way * scale), dtype=DTYPES[dtype])
            assert not outside(found, moved, Kind.BOX)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_slack_of_new_rows_goes_by_the_new_rows(dtype: str) -> None:
    """To scale a number and to write it down is a rounding each, of its own size."""
    column, unit = Number("v", 0.0, 10.0, "fixed"), torch.finfo(DTYPES[dtype]).eps
    encoding = Encoding((column,), Target("y", ("a", "b")))
    chosen = Options(data="t.csv", target="y", dtype=dtype, test_epsilon=0.0, test_tolerance=("v=10",))
    for size in (1.0, 1e3, 1e9):
        rows = scaled(column, np.array([[0.0], [size], [-2 * size]]))
        threat = answering.test_threat(chosen, encoding, encoding, rows)
        assert isinstance(threat, Tolerance)
        assert threat.absolute[0] >= 1.0 + 2 * unit * np.abs(rows).max()


def test_amounts_are_read_with_spaces_around_them() -> None:
    amounts = threats.parse_tolerances(["age= 2 ", "pay= 5% "])
    assert amounts.absolute == {"age": 2.0} and amounts.relative == {"pay": 0.05}


def test_a_network_of_one_number_is_asked_in_its_own_units() -> None:
    """Through a whole certificate: what the plain model says is between the bounds, in the units of the table."""
    x = torch.linspace(-1, 1, 16, dtype=torch.float64)[:, None]
    found = bf.certify(nn.Linear(1, 1).double(), (x, x[:, 0]), threat=Linf(0.01), loss="mse", epochs=2).predict(x)
    rows = answering.columns(found, Target("y", center=1e6, scale=1e-6), Table({}, Path("t")))
    assert all(low < value < high for low, value, high in zip(rows["lower"], rows["value"], rows["upper"], strict=True))


def test_widths_of_layers() -> None:
    model = nn.Linear(2, 1).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, -1.0]]))
    lifted = bf.lift(nn.Linear(2, 1).double())
    bounds = torch.tensor([[[2.0, -1.5]], [[4.0, -0.5]]], dtype=torch.float64)
    lifted.weight.set = bf.interval(*bounds).set
    weight, _ = evaluation.layers(bf.Certificate(lifted, model, {}))
    assert (weight["name"], weight["shape"]) == ("weight", [1, 2])
    assert (weight["mean_width"], weight["largest_width"], weight["typical_size"]) == (1.5, 2.0, 2.0)


def test_rows_are_told_by_what_their_file_has() -> None:
    table = Table({"x": np.array([1.0, 2.0]), "town": np.array(["north", "east"])}, Path("t.csv"), np.array([2, 5]))
    assert answering.standing_in(table, "id", 2) == {"row": [0, 1], "line": [2, 5]}
    assert answering.standing_in(table, "town", 2)["id"] == ["north", "east"]
    towns = Encoding((Number("x", 0.0, 1.0, "fixed"), Words("town", ("north",), "fixed")), Target("y", ("a", "b")))
    assert answering.unknown(towns, table) == {"town": 1}
    known = Encoding((Words("town", ("east", "north"), "fixed"),), Target("y", ("a", "b")))
    assert answering.unknown(known, table) == {}
