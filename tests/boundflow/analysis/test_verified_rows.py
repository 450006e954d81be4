"""Verified samples: poisoned trainings that leave them alone stay inside, without training again."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import poisons
import pytest
import torch
import torch.nn as nn
from poisons import Data
from threat_cases import SAMPLES, THREATS, T, batches, certified, network, observed, plain_runs
from torch import Tensor
from torch.func import functional_call, vmap

import boundflow as bf
from boundflow.analysis.verified_rows import _moved, tracked
from boundflow.sets.forms import Form
from boundflow.symbols.rows import Rows

VERIFIED = np.array([0, 3, 7, 10, 11, 20])
FILLED = 0.375  # in cells that were missing: not the middle of their range


def left_alone(poisoned: Data, data: Data) -> Data:
    """A poisoned dataset whose verified samples are as recorded, and their missing cells as filled in."""
    mine = torch.zeros(SAMPLES, dtype=torch.bool)
    mine[torch.from_numpy(VERIFIED)] = True
    recorded = torch.where(torch.isnan(data.x), torch.full_like(data.x, FILLED), data.x)
    y, weights = torch.where(mine, data.y, poisoned.y), torch.where(mine, data.weights, poisoned.weights)
    return Data(torch.where(mine[:, None], recorded, poisoned.x), y, weights)


def prepared(name: str, dtype: torch.dtype) -> tuple[bf.threats.Threat, poisons.Poison, str, Data]:
    threat, poison, task, prepare = THREATS[name]
    data = observed(task, dtype)
    return threat, poison, task, data if prepare is None else prepare(data)


def cells_of(data: Data) -> Tensor:
    x = data.x[torch.from_numpy(VERIFIED)]
    return torch.where(torch.isnan(x), torch.full_like(x, FILLED), x)


def one_step(threat: bf.threats.Threat, x: Tensor, y: Tensor) -> bf.Certificate:
    """One step of logistic regression from zero, which is linear in the data: ``w = lr mean((y - 1/2) x)``."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    return bf.certify(model, (x, y), threat=threat, loss="bce", steps=1, optimizer_options={"lr": 1.0}, progress=False)


def test_the_budget_is_spent_on_other_samples() -> None:
    """Two flips among those that are not verified: the set is exactly as wide as their two largest terms."""
    x, y = torch.arange(1.0, 7.0).double()[:, None], torch.tensor([0, 1, 0, 1, 0, 1])
    found = one_step(T.AtMost(2, T.Labels()), x, y).verified([5, 3])
    assert found.model is not None
    weight, terms = found.model.weight, {place: float(x[place, 0]) / 6 for place in (0, 1, 2, 4)}
    plain = float(((y - 0.5) * x[:, 0]).mean())
    up, down = (sum(sorted((terms[p] for p in terms if int(y[p]) == label), reverse=True)[:2]) for label in (0, 1))
    assert math.isclose(float(weight.upper), plain + up, abs_tol=1e-12)
    assert math.isclose(float(weight.lower), plain - down, abs_tol=1e-12)
    everything = one_step(T.AtMost(2, T.Labels()), x, y).verified(range(6))
    assert everything.model is not None and float(everything.model.weight.upper - everything.model.weight.lower) < 1e-12


@pytest.mark.parametrize("value", [-1.0, -0.25, 0.0, 0.75, 1.0])
def test_a_filled_cell_has_its_value_and_not_the_middle(value: float) -> None:
    x, y = torch.tensor([[float("nan")], [2.0], [float("nan")]]).double(), torch.tensor([1, 0, 0])
    before = one_step(T.Missing((-1.0, 1.0)), x, y)
    after = before.verified([0], [[value]])
    assert before.model is not None and after.model is not None
    center = (0.5 * value - 0.5 * 2.0) / 3
    assert math.isclose(float(after.model.weight.lower), center - 0.5 / 3, abs_tol=1e-12)
    assert math.isclose(float(after.model.weight.upper), center + 0.5 / 3, abs_tol=1e-12)
    open_cell = before.verified([0])  # nothing is filled in: nothing is known
    assert open_cell.model is not None and torch.equal(open_cell.model.weight.lower, before.model.weight.lower)


def test_a_clipped_box_has_the_recorded_value_and_not_its_middle() -> None:
    x, y = torch.tensor([[0.0], [0.95]], dtype=torch.float64), torch.tensor([1, 0])
    after = one_step(T.Linf(0.2, clip=(0, 1)), x, y).verified([0, 1])
    assert after.model is not None
    exact = (0.5 * 0.0 - 0.5 * 0.95) / 2
    assert float(after.model.weight.lower) <= exact <= float(after.model.weight.upper)
    assert float(after.model.weight.upper - after.model.weight.lower) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_roundings_of_fixed_symbols_are_charged(dtype: torch.dtype) -> None:
    """In fractions: the exact value, with every symbol at either end of its bounds, lies around the new center."""
    generator = torch.Generator().manual_seed(0)
    center, rows = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((5,), (9, 5)))
    middle = torch.rand(9, generator=generator, dtype=torch.float64) * 2 - 1
    values = torch.stack((middle, middle.nextafter(torch.ones(9, dtype=torch.float64))))
    form = Form(center, rows, torch.zeros_like(center), Rows(np.arange(9)))
    moved, radius = _moved(form, rows, values, torch.zeros(5, dtype=dtype))
    for end in values:
        for place in range(5):
            terms = (Fraction(float(g)) * Fraction(float(v)) for g, v in zip(rows[:, place], end, strict=True))
            exact = Fraction(float(center[place])) + sum(terms)
            assert abs(exact - Fraction(float(moved[place]))) <= Fraction(float(radius[place]))
    still, none = _moved(form, rows, torch.zeros(2, 9, dtype=torch.float64), torch.zeros(5, dtype=dtype))
    assert torch.equal(still, center) and not bool(none.any())  # symbols at 0 move nothing and cost nothing


def test_columns_of_every_symbol_are_kept(tmp_path: Path) -> None:
    threat, _, task, data = prepared("all features, a few labels, a few gone", torch.float64)
    certificate = certified(threat, task, data, "zonotope")
    certificate.save(tmp_path / "file.safetensors")
    for found in (certificate, bf.load(tmp_path / "file.safetensors")):
        known = tracked(found.model)
        columns = known.space.columns(known.symbols[known.owners == 4])
        assert columns.tolist() == [0, 1, 2, 3, 4, -2, -3]
        assert (known.space.columns(known.symbols[known.owners < 0]) == -1).all()


def test_a_resumed_run_knows_what_was_recorded(tmp_path: Path) -> None:
    """Columns and recorded values are part of a checkpoint, also of one that was finished."""
    data = THREATS["linf, clipped"][3](observed("bce", torch.float64))
    options = {"checkpoint": tmp_path / "checkpoint", "batch_size": 10, "checkpoint_every": 0.0}

    def stop(step: bf.Step) -> None:
        if step.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certified(T.Linf(0.1, clip=(0, 1)), "bce", data, "zonotope", callbacks=[stop], **options)
    resumed = certified(T.Linf(0.1, clip=(0, 1)), "bce", data, "zonotope", resume=True, **options)
    whole = certified(T.Linf(0.1, clip=(0, 1)), "bce", data, "zonotope", batch_size=10)
    first, second = resumed.verified(VERIFIED), whole.verified(VERIFIED)
    assert first.model is not None and second.model is not None
    for mine, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(mine.set.bounds, other.set.bounds)


def test_a_file_of_version_0_1_names_rows_and_no_columns() -> None:
    certificate = bf.load(Path(__file__).parents[1] / "files" / "version-0.1.safetensors")
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = certificate.audit(x, epsilon=0.5, budget=3, every=True)
    assert (
        not found.names_columns
        and len(found.samples) > 0
        and found.checklist.forecast == bool(len(found.checklist.samples))
    )
    with pytest.raises(bf.BoundFlowError, match="does not say what was recorded"):
        certificate.verified([1])


def test_what_cannot_be_verified_is_refused() -> None:
    x, y = torch.tensor([[float("nan")], [2.0], [1.0]]).double(), torch.tensor([1, 0, 0])
    found = one_step(T.Missing((-1.0, 1.0)), x, y)
    with pytest.raises(ValueError, match="outside the range that its missing value was said to have"):
        found.verified([0], [[1.5]])
    with pytest.raises(ValueError, match="counted from 0 to 2"):
        found.verified([3])
    with pytest.raises(ValueError, match="twice"):
        found.verified([1, 1])
    interval = bf.certify(
        nn.Linear(1, 1).double(), (x[1:], y[1:]), threat=T.Linf(0.1), loss="bce", domain="interval", progress=False
    )
    for ask in (lambda: interval.verified([0]), lambda: interval.audit(x[1:])):
        with pytest.raises(bf.BoundFlowError, match="did not track its samples"):
            ask()
    assert found.model is not None
    tracked(found.model).space.says_what_is_recorded = False  # as files of version 0.1 do not
    with pytest.raises(bf.BoundFlowError, match="does not say what was recorded"):
        found.verified([1])


def test_cells_and_masks_that_contradict_are_refused() -> None:
    nan = float("nan")
    x, y = torch.tensor([[nan, 0.5], [2.0, nan], [1.0, 0.0]]).double(), torch.tensor([1, 0, 0])
    model = nn.Linear(2, 1).double()
    recipe = {"loss": "bce", "progress": False, "optimizer_options": {"lr": 0.1}}
    found = bf.certify(model, (x, y), threat=T.Missing((-1.0, 1.0)), **recipe)
    filled = found.verified([0], [[0.25, nan]])
    assert filled.verified([0, 1], [[0.25, 0.5], [nan, 0.5]]).record["filled_cells"] == 2
    with pytest.raises(ValueError, match="sample 0: 0.5 in column 0, which was verified to be 0.25"):
        filled.verified([0], [[0.5, nan]])
    with pytest.raises(ValueError, match="cells of 1 features for samples of 2"):
        found.verified([0], [[0.25]])
    for mask in ([True, False], [[True], [False], [True]], [True] * 4):
        with pytest.raises(ValueError, match="a mask over . samples, and the training data have 3"):
            found.verified(mask)
    assert found.verified([True, False, True]).record["verified"] == [0, 2]
    with pytest.raises(ValueError, match="a mask is of truths, not of 0 and 1"):
        found.verified([1, 0, 1])
    # where a valid range cuts the box, its center is not what was recorded, which is kept
    cut = bf.certify(model, (x[2:], y[2:]), threat=T.Linf(0.5, clip=(0.0, 1.0)), **recipe)
    cut.verified([0], [[1.0, 0.0]])
    with pytest.raises(ValueError, match="sample 0: 0.9 in column 0, where 1 was recorded"):
        cut.verified([0], [[0.9, 0.0]])
    # what a cell may be off by is a millionth of how far it can move
    near = bf.certify(model, (x[2:], y[2:]), threat=T.Linf(1e-4, clip=(0.0, 1.0)), **recipe)
    with pytest.raises(ValueError, match="a verified sample is as it was recorded"):
        near.verified([0], [[1 - 5e-7, 0.0]])


@pytest.mark.parametrize("size", [None, 10], ids=["all at once", "in batches"])
@pytest.mark.parametrize("name", THREATS)
def test_poisoned_trainings_that_leave_verified_samples_alone(name: str, size: int | None, tmp_path: Path) -> None:
    """No parameter and no logit outside, with no tolerance; the bounds are never wider, and files answer the same."""
    for dtype in (torch.float64, torch.float32) if size is None else (torch.float64,):
        threat, poison, task, data = prepared(name, dtype)
        before = certified(threat, task, data, "zonotope", batch_size=size)
        after = before.verified(VERIFIED, cells_of(data))
        assert before.model is not None and after.model is not None
        random = np.random.default_rng(1)
        datasets = [left_alone(poison(data, random), data) for _ in range(40)]
        model = network(3 if task == "ce" else 1, dtype)
        runs = plain_runs(model, task, datasets, batches(size, 4), {"lr": 0.4, "momentum": 0.5})
        wider = dict(before.model.named_parameters())
        for path, parameter in after.model.named_parameters():
            assert bool(parameter.contains(runs[path]).all()), f"{path}: a poisoned run is outside"
            assert bool((parameter.lower >= wider[path].lower).all() and (parameter.upper <= wider[path].upper).all())
        x = torch.nan_to_num(data.x, nan=0.0)
        answers = after.predict(x)
        outputs = vmap(lambda values, model=model, x=x: functional_call(model, values, (x,)))(runs)
        assert bool(((answers.lower <= outputs) & (outputs <= answers.upper)).all()), "a logit is outside"
        before.save(tmp_path / "certificate.safetensors")
        read = bf.load(tmp_path / "certificate.safetensors").verified(VERIFIED, cells_of(data)).predict(x)
        assert bool(((read.lower <= outputs) & (outputs <= read.upper)).all()), "a logit is outside what a file says"
        after.save(tmp_path / "verified.safetensors")
        again = bf.load(tmp_path / "verified.safetensors")
        assert torch.equal(again.predict(x).certified, answers.certified)
        assert again.record["verified"] == VERIFIED.tolist()
