"""One thread or two: sums are added up in another order, so last digits differ; bounds by no more than they allow for.

Both are sound: each holds the plain run of the other, and poisoned plain runs made with either number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import AtMost, Linf, Threat

SAMPLES, FEATURES = 600, 60
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
THREATS: dict[str, Threat] = {"all": Linf(1e-4), "at most 3": AtMost(3, Linf(0.01).on(features=[0, 1]))}


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def data(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


def certified(threat: Threat, dtype: torch.dtype, domain: str, frozen: bool, moved: Tensor | None = None) -> Any:
    x, y = data(dtype)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)
    model[0].requires_grad_(not frozen)
    given = x if moved is None else moved
    options = {"loss": "ce", "optimizer_options": {"lr": 0.1, "momentum": 0.5}, "epochs": 3, "order": 2}
    return bf.certify(model, (given, y), threat=threat, domain=domain, dtype=dtype, progress=False, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("domain", "threat"), [("interval", "all"), ("zonotope", "at most 3")])
def test_bounds_of_one_thread_and_of_two(domain: str, threat: str, dtype: torch.dtype) -> None:
    x, _ = data(dtype)
    moved = x.clone()
    moved[:3, :2] += 0.009 if threat == "at most 3" else 9e-5
    made, poisoned = [], []
    for count in (1, 2):
        with threads(count):
            frozen = domain == "zonotope"  # rows of all samples for all weights would take minutes
            made.append(certified(THREATS[threat], dtype, domain, frozen))
            poisoned.append(certified(Linf(0.0), dtype, "interval", frozen, moved).nominal)
    for name, _ in made[0].nominal.named_parameters():
        first, second = (run.model.get_parameter(name) for run in made)
        for plain in (*(run.nominal for run in made), *poisoned):
            value = plain.get_parameter(name)
            for bounds in (first, second):
                assert bool(((bounds.lower <= value) & (value <= bounds.upper)).all())
        # what the sums of three steps are charged for, and more: each is of fewer than 2 SAMPLES + 8 terms
        allowed = 64 * SAMPLES * UNIT[dtype] * (1 + first.upper.abs().max() + first.lower.abs().max())
        assert float((first.lower - second.lower).abs().max()) <= allowed
        assert float((first.upper - second.upper).abs().max()) <= allowed


def test_the_same_number_of_threads_gives_the_same_bits() -> None:
    with threads(2):
        first, second = (certified(THREATS["all"], torch.float32, "interval", False) for _ in range(2))
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one.lower, other.lower) and torch.equal(one.upper, other.upper)
