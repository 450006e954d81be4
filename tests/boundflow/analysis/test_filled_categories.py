"""Missing categories that somebody filled in: all trainings with those stay inside, and nothing is trained again."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import threats as T

GROUPS = ([2, 3, 4], [0, 6])
HOLES = {1: (0,), 4: (0, 1), 9: (0,), 11: (1,)}  # samples, and which of their groups are missing
THREAT = T.MissingCategory(GROUPS[0]) & T.MissingCategory(GROUPS[1]) & T.AtMost(1, T.Labels())


def table() -> tuple[Tensor, Tensor]:
    """Two numbers and two categories, some of which are missing, and classes that depend on them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(14, 7, generator=generator, dtype=torch.float64)
    for group in GROUPS:
        x[:, group] = torch.eye(len(group), dtype=torch.float64)[torch.randint(len(group), (14,), generator=generator)]
    y = (x[:, 1] + x[:, 2] - x[:, 6] > 0).long()
    for sample, missing in HOLES.items():
        for number in missing:
            x[sample, GROUPS[number]] = float("nan")
    return x, y


RECIPE = {"lr": 1.0, "momentum": 0.5}
STEPS = 4


def untrained() -> nn.Linear:
    model = nn.Linear(7, 1).double()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    return model


def plainly_trained(x: Tensor, y: Tensor) -> nn.Linear:
    model = untrained()
    optimizer = torch.optim.SGD(model.parameters(), **RECIPE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), y.double().unsqueeze(1)).backward()
        optimizer.step()
    return model


def with_category(x: Tensor, sample: int, number: int, category: int) -> None:
    x[sample, GROUPS[number]] = torch.eye(len(GROUPS[number]), dtype=x.dtype)[category]


@pytest.fixture(scope="module")
def certificate() -> bf.Certificate:
    recipe = {"loss": "bce", "epochs": STEPS, "optimizer_options": RECIPE, "progress": False}
    return bf.certify(untrained(), table(), threat=THREAT, **recipe)


def test_all_trainings_with_what_was_filled_in_stay_inside(certificate: bf.Certificate, tmp_path: Path) -> None:
    """Every category of what is still open, and every single flip of a sample that was not verified."""
    x, y = table()
    verified, filled = [4, 9], x.clone()
    with_category(filled, 4, 0, 1)
    with_category(filled, 9, 0, 2)  # the other group of sample 4 stays open
    certificate.save(tmp_path / "file.safetensors")
    for found in (certificate, bf.load(tmp_path / "file.safetensors")):
        after = found.verified(verified, filled[verified])
        assert found.model is not None and after.model is not None
        weight, bias = after.model.weight, after.model.bias
        assert bool((weight.upper - weight.lower < found.model.weight.upper - found.model.weight.lower).any())
        for open_ones in itertools.product(range(3), range(2), range(2)):
            data, labels = filled.clone(), y.clone()
            for (sample, number), category in zip(((1, 0), (4, 1), (11, 1)), open_ones, strict=True):
                with_category(data, sample, number, category)
            for flipped in (None, 0, 1, 7, 13):
                labels = y.clone() if flipped is None else y.index_fill(0, torch.tensor([flipped]), int(1 - y[flipped]))
                plain = plainly_trained(data, labels)
                assert bool(weight.contains(plain.weight).all() and bias.contains(plain.bias).all())


@pytest.mark.parametrize("category", [0, 1, 2])
def test_a_filled_category_is_wholly_what_it_is(category: int) -> None:
    """One step from zero is linear in the data, ``w = mean((y - 1/2) x)``: once all is filled in, it is a point."""
    x, y = torch.eye(3, dtype=torch.float64)[[0, 2, 1]], torch.tensor([1, 0, 1])
    holes = x.clone()
    holes[2] = float("nan")
    model = nn.Linear(3, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    recipe = {"loss": "bce", "steps": 1, "optimizer_options": {"lr": 1.0}, "progress": False}
    found = bf.certify(model, (holes, y), threat=T.MissingCategory([0, 1, 2]), **recipe)
    x[2] = torch.eye(3, dtype=torch.float64)[category]
    after = found.verified([2], x[2:])
    assert after.model is not None
    exact = ((y - 0.5).unsqueeze(1) * x).mean(0)
    assert bool(after.model.weight.contains(exact).all())
    assert float((after.model.weight.upper - after.model.weight.lower).max()) < 1e-12


def test_a_list_of_samples_names_the_columns_that_are_missing(certificate: bf.Certificate) -> None:
    test = table()[0][[0, 2, 3, 5, 6, 7, 8, 10, 12, 13]].repeat(8, 1)
    test[:, [1, 5]] += torch.linspace(-3, 3, 80, dtype=torch.float64)[:, None]
    found = certificate.audit(test, budget=4)
    assert set(found.columns.tolist()) == {0, 2, -2}  # each category by its first column, and the label
    assert found.checklist.forecast and len(found.checklist.missing) == len(found.checklist.samples) > 0
    expected = {s: tuple(sorted(min(GROUPS[number]) for number in groups)) for s, groups in HOLES.items()}
    for sample, columns in zip(found.checklist.samples.tolist(), found.checklist.missing, strict=True):
        assert columns == expected.get(sample, ())
    assert found.asked == 80 and found.certain == 80 - len(found)


@pytest.mark.parametrize("cells", [[0, 0, 0], [1, 1, 0], [0.5, 0.5, 0], [1, float("nan"), 0], [2, 0, 0]])
def test_a_category_is_one_of_its_columns(certificate: bf.Certificate, cells: list[float]) -> None:
    given = np.full((1, 7), np.nan)
    given[0, GROUPS[0]] = cells
    with pytest.raises(ValueError, match="sample 4: a category that was missing is 1 in one of its columns"):
        certificate.verified([4], given)
