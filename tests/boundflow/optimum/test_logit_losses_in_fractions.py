"""Losses of one logit against their exact derivatives: what chords miss, slopes of secants, what a flipped hinge adds.

The logistic function is computed with 1200 bits; everything else is a fraction.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exact import number
from exact_optima import DOUBLE, bend, with_many_bits
from flint import arb
from torch import Tensor

from boundflow.optimum.logit_losses import Huber, Logistic, Loss, SquaredHinge

LOSSES: dict[str, Loss] = {
    "logistic": Logistic(), "hinge": SquaredHinge(), "huber": Huber(0.4), "wide": Huber(1e7), "narrow": Huber(1e-5),
}  # fmt: skip


def psi(loss: Loss, z: Any, y: float) -> Any:
    """The derivative of a loss by its logit, at an exact number."""
    if isinstance(loss, Logistic):
        return 1 / (1 + (-arb(z)).exp()) - arb(y)
    if isinstance(loss, SquaredHinge):
        sign = number(2 * y - 1)
        return -sign * max(number(0.0), 1 - sign * z)
    assert isinstance(loss, Huber)
    width = number(loss.width)
    return max(-width, min(width, z - number(y)))


def between(value: Any, low: float, high: float) -> bool:
    return bool(number(low) <= value) and bool(value <= number(high))


def cases(loss: Loss) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, targets and ranges: near corners, far out, next to nothing, wide, and beside the observed logit."""
    logits = [0.0, 1e-9, -0.3, 1.0, -1.0, 2.7, 17.3, -36.4, 90.1, -300.7, 650.3, 12345.6]
    ranges = [(0.0, 0.0), (1e-30, 1e-30), (-1e-6, 2e-6), (-0.7, 0.4), (0.2, 0.3), (-3.0, 40.0), (-550.0, 600.0)]
    ranges += [(-1e5, 3e5)]
    targets = (0.0, 1.0, -0.7, 1e6 + 0.3) if isinstance(loss, Huber) else (0.0, 1.0)
    found = [(z, y, low, high) for z in logits for y in targets for low, high in ranges]
    return tuple(torch.tensor(column, dtype=DOUBLE) for column in zip(*found, strict=True))  # type: ignore[return-value]


def moves(low: float, high: float, corners: list[Any]) -> list[Any]:
    """Where a line over a range is looked at: its ends, between, and the corners inside."""
    ends = number(low), number(high)
    found = [ends[0] + (ends[1] - ends[0]) * part / 12 for part in range(13)]
    return found + [place for place in corners if ends[0] <= place <= ends[1]]


@pytest.mark.parametrize("name", LOSSES)
@with_many_bits
def test_what_chords_miss(name: str) -> None:
    loss = LOSSES[name]
    logits, targets, low, high = cases(loss)
    for made in (loss.chord(logits, targets, low, high), loss.missed(logits, targets, low, high, logits * 0 + 0.2)):
        rows = zip(*(part.tolist() for part in (logits, targets, low, high, *made)), strict=True)
        for z, y, left, right, slope, least, most in rows:
            here = number(z)
            corners = [number(y) + side * number(getattr(loss, "width", 0.0)) - here for side in (-1, 1)]
            corners += [number(2 * y - 1) - here, *(number(flat) - here for flat in (-0.9, 0.9, -0.3, 0.3))]
            for move in moves(left, right, corners):
                missed = psi(loss, here + move, y) - psi(loss, here, y) - number(slope) * move
                assert between(missed, least, most), (z, y, left, right)


@pytest.mark.parametrize("name", LOSSES)
@with_many_bits
def test_the_float_of_a_derivative(name: str) -> None:
    loss = LOSSES[name]
    logits, targets, _, _ = cases(loss)
    logits = logits * (1 + 2.0**-40 * torch.arange(len(logits)))
    found, off = loss.slope(logits, targets), loss.off(logits)
    for z, y, value, error in zip(*(part.tolist() for part in (logits, targets, found, off)), strict=True):
        assert abs(psi(loss, number(z), y) - number(value)) <= number(error)


@with_many_bits
def test_the_logistic_function_in_floats() -> None:
    """What `off` of secants rests on: a sigmoid is off by far less than 2^-50 of 1, wherever it is."""
    z = torch.linspace(-800, 800, 3001, dtype=DOUBLE) ** 3 / 800**2
    for x, value in zip(z.tolist(), torch.sigmoid(z).tolist(), strict=True):
        assert abs(psi(LOSSES["logistic"], number(x), 0.0) - number(value)) <= number(2.0**-52)


@with_many_bits
def test_slopes_of_secants() -> None:
    """The secant of a move of 0 is the derivative."""
    loss = Logistic()
    logits = torch.cat((torch.linspace(-40, 40, 61, dtype=DOUBLE), torch.linspace(-690, 690, 39, dtype=DOUBLE)))
    ranges = [
        (0.0, 0.0),
        (-5e-14, 5e-14),
        (-1e-6, 1.01e-6),
        (0.0, 1.1e-6),
        (-0.3, 0.0),
        (-3.0, 2.0),
        (-0.7, 1.3),
        (0.0, 80.0),
        (-577.3, 599.1),
    ]
    for left, right in ranges:
        least, most = loss.secants(logits, logits * 0, logits * 0 + left, logits * 0 + right)
        for z, low, high in zip(*(part.tolist() for part in (logits, least, most)), strict=True):
            here = number(z)
            for move in moves(left, right, []):
                value = (psi(loss, here + move, 0.0) - psi(loss, here, 0.0)) / move if move != 0 else bend(here)
                assert between(value, low, high), (z, left, right)


def test_what_a_flipped_hinge_adds() -> None:
    logits, targets, low, high = cases(SquaredHinge())
    least, most = SquaredHinge().beyond(targets, logits + low, logits + high)
    for y, left, right, from_, to in zip(
        *(p.tolist() for p in (targets, logits + low, logits + high, least, most)), strict=True
    ):
        for z in moves(left, right, [number(0.0), number(1.0), number(-1.0)]):
            d = psi(SquaredHinge(), z, 1 - y) - psi(SquaredHinge(), z, y)
            assert between(d - number(2 * y - 1), from_, to)
