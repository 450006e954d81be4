"""What was saved contains what was there: sets over derived symbols are written over those they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from exact import DTYPES, NORMAL, adverse, at_least, exact, number, product, total

import boundflow as bf
from boundflow.files import codec
from boundflow.files.certificate_files import over_deep_rows
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.symbols.expansion import Expansion
from boundflow.symbols.rows import Rows
from boundflow.threats import Linf

SIZE, DERIVED, DEEP = 8, 12, 9


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("size", [0.0, 2.0**-20, 2.0**12])
@pytest.mark.parametrize("known", [False, True])
def test_over_deep_rows(kind: str, dtype: torch.dtype, size: float, known: bool) -> None:
    space, optimizer = bf.Symbols(Linf(0.5)), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    deep, derived, other = space.fresh(DEEP), space.fresh(DERIVED), space.fresh(2)
    weights = adverse(kind, (DERIVED, DEEP), dtype) / DEEP
    space.expands(optimizer, Expansion(derived, deep, weights))
    rows = Rows(np.concatenate((derived.numbers, other.numbers, *((deep.numbers,) if known else ()))))
    generators = adverse(kind, (len(rows), SIZE), dtype, 1)
    center, radius = adverse(kind, (SIZE,), dtype, 2), adverse(kind, (SIZE,), dtype, 3).abs() * size
    form = Form(center, generators, radius, rows)
    wide = 4 * form.modulus
    x = bf.Bounded(Set(torch.stack((-wide, wide)), form, space))
    saved = codec.unpack(*codec.pack(over_deep_rows(x)), space)
    assert torch.equal(saved.set.bounds, x.set.bounds) and torch.equal(saved.center, center)
    wanted = product(exact(weights).T, exact(generators[:DERIVED]))
    if known:
        wanted = wanted + exact(generators[DERIVED + 2 :])
    wanted = np.concatenate((wanted, exact(generators[DERIVED : DERIVED + 2])))
    assert np.array_equal(saved.form.rows.numbers, np.concatenate((deep.numbers, other.numbers)))
    off = total(np.abs(exact(saved.generators) - wanted))
    assert at_least(saved.radius, exact(radius) + off)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_file_answers_no_tighter_than_the_run(dtype: torch.dtype, domain: str, tmp_path: Path) -> None:
    """Parameters that come back contain those that were there, element by element, to the last bit."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(24, 3, generator=generator, dtype=dtype)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).to(dtype)
    kept = bf.certify(
        model, (x, (x[:, 0] > 0).to(dtype)), threat=Linf(0.01), loss="bce", domain=domain, epochs=3, progress=False
    )
    kept.save(tmp_path / "certificate.safetensors")
    back = bf.load(tmp_path / "certificate.safetensors")
    for before, after in zip(kept.model.parameters(), back.model.parameters(), strict=True):
        assert bool((after.lower <= before.lower).all()) and bool((after.upper >= before.upper).all())
        assert at_least(
            after.form.reach, exact(before.form.reach) * number(1 - 2.0 ** -(20 if dtype is torch.float32 else 48))
        )
