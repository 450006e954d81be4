"""What has no rule is refused by name: no crash, no error of another kind, and nothing that was guessed."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import boundflow as bf


def box(*shape: int, seed: int = 0) -> bf.Bounded:
    center = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return bf.ball(center, 0.1)


READ_WHERE_WRITTEN: dict[str, Callable[[bf.Bounded], object]] = {
    "a factor": lambda x: x.addmm_(x, box(3, 3, seed=1)),
    "a view as a factor": lambda x: x.addmm_(box(3, 3, seed=1), x.t()),
    "the result": lambda x: torch.mm(x, box(3, 3, seed=1), out=x),
    "the result, a view of a factor": lambda x: torch.mm(box(3, 3, seed=1), x, out=x.t()),
    "batches": lambda x: x.view(1, 3, 3).baddbmm_(x.view(1, 3, 3), box(1, 3, 3, seed=1)),
}


@pytest.mark.parametrize("case", READ_WHERE_WRITTEN)
def test_sums_that_read_what_they_write_are_refused(case: str) -> None:
    """PyTorch reads numbers there that it has overwritten by then: x.addmm_(x, x) is not x + x @ x."""
    with pytest.raises(bf.UnsupportedProgram, match="reads the tensor that it writes to"):
        READ_WHERE_WRITTEN[case](box(3, 3))


def test_what_works_number_by_number_may_read_what_it_writes() -> None:
    x, value = box(3, 3), box(3, 3).center.clone()
    assert bool(x.mul_(x).contains(value.mul_(value)).all())
    y = box(3, 3)
    y.addmm_(box(3, 3, seed=1), box(3, 3, seed=2))
    torch.mm(box(3, 3, seed=1), box(3, 3, seed=2), out=y)
    wanted = box(3, 3, seed=1).center @ box(3, 3, seed=2).center
    assert bool(y.contains(wanted).all())


def plainly_wrong(x: Tensor) -> list[Callable[[], object]]:
    return [
        lambda: x + torch.ones(5).double(),
        lambda: x @ torch.ones(4, 4).double(),
        lambda: x.view(2, 2),
        lambda: F.linear(x, torch.ones(2, 7).double()),
        lambda: x.permute(0, 0),
    ]


@pytest.mark.parametrize("place", range(5))
def test_what_pytorch_refuses_is_said_by_pytorch(place: int) -> None:
    """In its words and of its kind, as a program of plain tensors would see it."""
    plain, bounded = (plainly_wrong(x)[place] for x in (box(3, 3).center, box(3, 3)))
    with pytest.raises(Exception) as wanted:
        plain()
    with pytest.raises(type(wanted.value)):
        bounded()


def test_arguments_that_no_rule_knows_are_refused_by_name() -> None:
    with (
        warnings.catch_warnings(),
        pytest.raises(bf.UnsupportedOperator, match="add_ has no rule .* with these arguments"),
    ):
        warnings.simplefilter("ignore")  # that PyTorch would rather not have this either
        box(3, 3).add_(2, box(3, 3))
    with pytest.raises(bf.UnsupportedOperator, match=r"aten.copy_.default has no rule"):
        box(3, 3).copy_(2)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["apply_", "map_", "map2_"])
def test_functions_of_single_numbers_are_refused(name: str) -> None:
    """They read the memory of a tensor, and a set has none: the process ended there."""
    others = {"apply_": (), "map_": (torch.ones(3, 3),), "map2_": (torch.ones(3, 3), torch.ones(3, 3))}[name]
    with pytest.raises(bf.UnsupportedOperator, match="a function of single numbers"):
        getattr(box(3, 3), name)(*others, lambda *numbers: numbers[0])


@pytest.mark.parametrize("bounded", [False, True], ids=["plain targets", "bounded targets"])
def test_no_class_is_ignored_among_probabilities(bounded: bool) -> None:
    """As PyTorch: which class a target is cannot be asked of probabilities."""
    targets = torch.full((4, 3), 1 / 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="ignore_index is not supported for floating point target"):
        torch.nn.functional.cross_entropy(targets, targets, ignore_index=1)
    with pytest.raises(bf.UnsupportedOperator, match="ignore_index is not supported for floating point target"):
        torch.nn.functional.cross_entropy(box(4, 3), box(4, 3) if bounded else targets, ignore_index=1)
    assert isinstance(torch.nn.functional.cross_entropy(box(4, 3), targets, ignore_index=-1), bf.Bounded)
