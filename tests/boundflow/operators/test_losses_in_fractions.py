"""Losses and clipped gradients: plain PyTorch and the exact value are inside, to the last bit.

Exact losses are computed with 300 bits, and compared only where that decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, adverse, at_least, exact, number, total
from flint import arb, ctx
from torch import Tensor, nn
from torch.nn import functional as F

import boundflow as bf
from boundflow.operators.losses import _total
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.threats import Linf
from boundflow.training.clipping import _one_clause, largest_coordinate

LOGITS = [-1000.0, -30.0, -1.7, -1e-3, 0.0, 1e-9, 0.37, 2.9, 17.3, 45.1, 987.6, 1e6]


def logits(dtype: torch.dtype) -> Tensor:
    near = torch.from_numpy(np.random.default_rng(1).uniform(0.9, 1.1, (8, len(LOGITS))))
    return (torch.tensor(LOGITS, dtype=torch.float64) * near).to(dtype).flatten()


def exact_loss(z: float, y: float) -> arb:
    """``softplus(z) - y z``."""
    return (1 + arb(z).exp()).log() - arb(y) * arb(z)


def holds_exactly(bounds: Tensor, z: Tensor, y: Tensor) -> bool:
    before, ctx.prec = ctx.prec, 300
    try:
        rows = zip(*(part.double().tolist() for part in (*bounds, z, y.expand_as(z))), strict=True)
        return all(bool(arb(low) <= exact_loss(at, target) <= arb(high)) for low, high, at, target in rows)
    finally:
        ctx.prec = before


def of_points(z: Tensor) -> Any:
    return bf.Bounded(Set(torch.stack((z, z))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("target", [0.0, 1.0, 0.1, 0.7, 1e-3])
def test_binary_cross_entropy(dtype: torch.dtype, target: float) -> None:
    """Logits that are points: what is added for roundings is all there is around them."""
    z = logits(dtype)
    y = torch.full_like(z, target)
    found = F.binary_cross_entropy_with_logits(of_points(z), y, reduction="none").set.bounds  # type: ignore[attr-defined]
    plain = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    assert bool((found[0] <= plain).all()) and bool((plain <= found[1]).all())
    assert holds_exactly(found, z, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("target", [0.0, 1.0, 0.1, 0.7, 1e-3])
def test_the_form_of_binary_cross_entropy(dtype: torch.dtype, target: float) -> None:
    """PyTorch adds ``(1 - y) z`` to ``max(-z, 0)``, and both may be far larger than the loss."""
    z, space = logits(dtype), bf.Symbols(Linf(0.5))
    y = torch.full_like(z, target)
    form = Form(z, z.new_zeros(1, *z.shape), torch.zeros_like(z), space.fresh(1))
    found = F.binary_cross_entropy_with_logits(bf.Bounded(Set(torch.stack((z, z)), form, space)), y, reduction="none")
    plain = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    made = found.form  # type: ignore[attr-defined]
    assert not bool(made.generators.any())
    assert at_least(made.radius, np.abs(exact(plain) - exact(made.center)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weight", [1e-9, 1e-3, 0.37, 7.0])
@pytest.mark.parametrize("target", [0.0, 1.0, 0.3])
def test_weights_of_positive_samples(dtype: torch.dtype, weight: float, target: float) -> None:
    """PyTorch computes ``1 + (w - 1) y``, which loses most of a small weight."""
    z, scale = logits(dtype), torch.tensor(weight, dtype=dtype)
    y = torch.full_like(z, target)
    options = {"pos_weight": scale, "reduction": "none"}
    found = F.binary_cross_entropy_with_logits(of_points(z), y, **options).set.bounds  # type: ignore[arg-type,attr-defined]
    plain = F.binary_cross_entropy_with_logits(z, y, **options)  # type: ignore[arg-type]
    assert bool((found[0] <= plain).all()) and bool((plain <= found[1]).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [2, 300])
def test_what_a_weighted_mean_divides_by(kind: str, dtype: torch.dtype, count: int) -> None:
    own = adverse(kind, (count,), dtype).abs()
    low, high = (float(end) for end in _total(own, own).set.bounds)  # type: ignore[union-attr]
    forward = own[0].clone()
    for weight in own[1:]:
        forward += weight
    for value in (total(exact(own)), number(float(forward))):
        assert number(low) <= value <= number(high)


# --- clipped gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_clipped_coordinate(dtype: torch.dtype) -> None:
    """The quotient of norms and its product with the gradient are rounded, and may be more than the norm."""
    random, above = np.random.default_rng(2), 0
    for _ in range(40):
        weight, norm = nn.Parameter(torch.zeros((), dtype=dtype)), float(random.uniform(1.9, 2))
        weight.grad = torch.tensor(random.uniform(1e15, 1.05e15), dtype=dtype)
        nn.utils.clip_grad_norm_([weight], norm)
        above += bool(exact(weight.grad) > number(norm))
        largest = torch.tensor(largest_coordinate(norm, 1, dtype), dtype=dtype)
        assert float(weight.grad) <= float(largest)
    assert above > 3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("scale", [0.0, 1.0, 2.0**20, 2.0**50])
def test_the_radius_of_a_replaced_gradient(kind: str, dtype: torch.dtype, scale: float) -> None:
    """Anything within the norm is as far from the linear part of the observed gradient as norm, bound and radius."""
    center, largest, space = adverse(kind, (3, 8), dtype), 0.7, bf.Symbols(Linf(0.5))
    radius = adverse("near one", (3, 8), dtype, 1).abs() * scale
    bounds = torch.stack((center, center)).clamp(-largest, largest)
    form = Form(center, torch.zeros(1, 3, 8, dtype=dtype), radius, space.fresh(1))
    made = _one_clause(Set(bounds, form, space), largest, None, np.array([True, True, False]), np.arange(3))
    wanted = number(largest) + np.abs(exact(bounds)).max(0) + exact(radius)
    assert at_least(made.form.radius[:2], wanted[:2])
    assert torch.equal(made.form.radius[2], radius[2])
