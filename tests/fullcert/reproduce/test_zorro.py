"""Zorro's Auto MPG: its figures for labels from its closed form, and more from sets that follow the descent."""

import numpy as np
import pytest
import torch
from data_at_hand import DATA, needs

from fullcert.data import datasets
from fullcert.reproduce import zorro
from fullcert.reproduce.experiments import Scale, load
from fullcert.reproduce.zorro import DESCENTS, PUBLISHED, Descent, Errors
from fullcert.system.mistakes import Mistake

CPU = torch.device("cpu")
pytestmark = needs("auto-mpg/auto-mpg.csv")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUNDFLOW_DATA", str(DATA))


@pytest.mark.parametrize(("share", "published"), [(0.25, 66.5), (0.15, 98.8)])
def test_the_closed_form_gives_what_was_published(share: float, published: float) -> None:
    values = [zorro.least_squares(Errors("labels", share, 0.1), seed, CPU).value for seed in zorro.SEEDS]
    assert np.mean(values) == pytest.approx(published, abs=0.051)


@pytest.mark.parametrize(("moved", "share", "rows", "published"), PUBLISHED)
def test_every_row_is_beaten(moved: str, share: float, rows: float, published: float) -> None:
    found = zorro.descended(Errors(moved, share, rows), DESCENTS["best"], 0, CPU)
    assert found.value > published and 85 < (found.nominal or 0) < 87
    assert found.details["range of 2 mpg"] <= found.value, "a range of 2 mpg is within 2 mpg of every point of it"


def plain(descent: Descent, inputs: np.ndarray, miles: np.ndarray, test: np.ndarray) -> np.ndarray:
    """The descent in numpy, and its predictions."""
    x, test_x = (np.column_stack([np.ones(len(part)), part]) for part in (inputs, test))
    weights = speed = np.zeros(x.shape[1])
    for _ in range(descent.steps):
        speed = descent.momentum * speed + 2 / len(x) * x.T @ (x @ weights - miles)
        weights = weights - descent.lr * speed
    return test_x @ weights


@pytest.mark.parametrize("moved", ["labels", "weight"])
def test_poisoned_descents_stay_within_the_bounds(moved: str) -> None:
    """The share of predictions that a hundred attacks leave within 2 mpg is never below the certified one."""
    errors, descent, (train, test) = Errors(moved, 0.25, 0.1), DESCENTS["best"], zorro.cars()
    found = zorro.descended(errors, descent, 1, CPU)
    unchanged = plain(descent, train.inputs, train.miles, test.inputs)
    stays = np.ones(len(unchanged), dtype=bool)
    generator, rows = np.random.RandomState(0), errors.drawn(train, 1)
    for number in range(100):
        signs = np.ones(len(rows)) if number < 2 else generator.choice([-1, 1], len(rows))
        inputs, miles = train.inputs.copy(), train.miles.copy()
        into = miles if moved == "labels" else inputs[:, zorro.WEIGHT]
        into[rows] += (-1) ** number * signs * errors.radius(train)
        stays &= np.abs(plain(descent, inputs, miles, test.inputs) - unchanged) <= zorro.TOLERANCE
    assert 0 < found.value <= 100 * stays.mean()


def test_rows_that_any_attacker_could_choose_give_less() -> None:
    drawn, free = (
        zorro.descended(Errors("weight", 0.12, 0.1, free=free), DESCENTS["best"], 0, CPU) for free in (False, True)
    )
    assert 0 < free.value < drawn.value and free.nominal == drawn.nominal


def test_the_rows_are_the_published_ones() -> None:
    train, _ = zorro.cars()
    np.random.seed(3)
    expected = np.random.choice(range(318), 31, replace=False)
    assert np.array_equal(Errors("labels", 0.25, 0.1).drawn(train, 3), expected)


def test_cases() -> None:
    cases = load()["zorro-mpg"].cases(Scale())
    keys = [(tuple(case.setting.items()), case.domain, case.recipe) for case in cases]
    assert len(keys) == len(set(keys)) and {case.recipe for case in cases} == {"paper", "best", "zorro"}
    assert all(case.seeds == (0, 1, 2, 3, 4) for case in cases if case.paper is not None)


def test_a_table_of_numbers_is_no_dataset_of_classes() -> None:
    with pytest.raises(Mistake, match=r"numbers to predict.*--data .*auto-mpg\.csv"):
        datasets.load("auto-mpg", DATA, 0)
