"""Lines that are nearly multiples of kept ones: their deep coefficients, up to what is paid for."""

import numpy as np
import pytest
import torch
from exact import adverse, at_least, exact, number, product, total

from boundflow.errors import CrossedBounds, VoidBounds
from boundflow.fast.steps.deferred_checks import LateChecks
from boundflow.fast.support.reused_coefficients import KeptLines

LINES, DERIVED, OWNERS, WIDTH = 5, 7, 32, 2


def kept(kind: str, size: float) -> tuple[KeptLines, torch.Tensor]:
    """Lines, and what their symbols stand for: rows of at most 1 in all."""
    elements = adverse(kind, (LINES, DERIVED), torch.float64) * size
    weights = adverse("mixed sizes", (DERIVED, OWNERS * WIDTH), torch.float64, 1)
    weights = weights / (weights.abs().sum(1, keepdim=True) * (1 + 1e-12)).clamp_min(1e-300)
    lines = KeptLines(elements, np.arange(DERIVED), [torch.arange(OWNERS * WIDTH).view(OWNERS, WIDTH)])
    deep = elements @ weights
    lines.packed = [torch.unflatten(deep, 1, (OWNERS, WIDTH)).transpose(1, 2).unsqueeze(1).unsqueeze(1).float()]
    lines.moduli, lines.error = deep.abs().sum(1), elements.abs().sum(1) * 4 * DERIVED * 2.0**-53
    return lines, weights


@pytest.mark.parametrize("kind", ["one sign", "near one", "mixed sizes", "cancelling"])
@pytest.mark.parametrize("size", [1.0, 1e-9])
@pytest.mark.parametrize("noise", [0.0, 1e-13, 0.3])
def test_what_differs_is_paid_for(kind: str, size: float, noise: float) -> None:
    lines, weights = kept(kind, size)
    factor = torch.tensor([-0.9, -0.31, 0.0, 0.43, 0.77], dtype=torch.float64).unsqueeze(1)
    rest = noise * size * adverse("mixed sizes", (LINES, DERIVED), torch.float64, 2)
    wanted = factor * lines.elements + rest
    found = lines.multiple(wanted, 0, looked_at=True)
    assert found is not None
    packed = found.packed[0].squeeze(1).squeeze(1).transpose(1, 2).flatten(1)
    off = total(np.abs(exact(packed) - product(exact(wanted), exact(weights))).T)
    rounded = number(4 * 2.0**-24) * total(np.abs(exact(packed)).T)  # of float32, which the stream pays for
    assert at_least(found.error.squeeze(1), off - rounded)
    differs = np.abs(exact(wanted) - exact(found.factor)[:, None] * exact(lines.elements))
    assert at_least(found.error.squeeze(1), np.abs(exact(found.factor)) * exact(lines.error) + total(differs.T))
    if noise > 0.1 and float(wanted.abs().sum()) > 0:
        assert lines.multiple(wanted, 0, looked_at=False) is None


@pytest.mark.parametrize("width", [(-1.0, 1.0), (float("nan"), float("nan")), (0.0, float("inf"))], ids=str)
def test_checks_that_are_read_later_name_the_first_operator(width: tuple[float, float]) -> None:
    checks = LateChecks()
    for name, ends in (("mul", (0.0, 1.0)), ("add", width), ("sub", (float("nan"), float("nan")))):
        checks.hold(name, 3, torch.tensor(ends[0]), torch.tensor(ends[1]))
    with pytest.raises(CrossedBounds if width[0] < 0 else VoidBounds, match="add: some .* after 3 optimizer steps"):
        checks.read()
    assert checks.over
