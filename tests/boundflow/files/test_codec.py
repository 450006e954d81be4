"""A set comes back from its tensors as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from boundflow.files import codec
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.symbols.rows import Rows
from boundflow.symbols.space import Symbols
from boundflow.tensor.bounded import Bounded

GENERATORS = {
    "diagonal": [[0.5, 0.0], [0.0, 0.25]],
    "as many rows as elements": [[0.5, 0.125], [0.0, 0.25]],
    "more rows": [[0.5, 0.125], [0.0, 0.25], [0.1, 0.2]],
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_zonotope_comes_back(kind: str) -> None:
    generators = torch.tensor(GENERATORS[kind])
    center, radius = torch.tensor([1.0, -1.0]), torch.tensor([0.0625, 0.03125])
    reach = generators.abs().sum(0) + radius
    symbols = Symbols()
    form = Form(center, generators, radius, Rows(np.arange(3, 3 + len(generators))))
    x = Bounded(Set(torch.stack((center - reach, center + reach)), form, symbols))

    back = codec.unpack(*codec.pack(x), symbols)

    assert codec.pack(x)[1]["diagonal"] == (kind == "diagonal")
    assert torch.equal(back.set.bounds, x.set.bounds)
    assert torch.equal(back.center, center) and torch.equal(back.radius, radius)
    assert torch.equal(back.generators, generators)
    assert np.array_equal(back.form.rows.numbers, form.rows.numbers)


@pytest.mark.parametrize("exact", [True, False])
def test_an_interval_comes_back(exact: bool) -> None:
    bounds = torch.tensor([[1.0, 2.0], [1.0, 2.0]]) if exact else torch.tensor([[0.0, 1.0], [1.0, 2.0]])
    x = Bounded(Set(bounds, None, None, exact, nonnegative=True))
    back = codec.unpack(*codec.pack(x), None)
    assert torch.equal(back.set.bounds, bounds)
    assert (back.set.exact, back.set.nonnegative) == (exact, True)
