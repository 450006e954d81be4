"""Products of test inputs with an interval of weights, from their signs: the exact product is not beyond its end.

Weights are points, or as wide as a few units; inputs have columns of both signs and of none.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, adverse, exact, product, total
from exact_sets import affine, cancelling_rows, narrow, symbols

from boundflow.rules.ends_of_products import _ends


@pytest.mark.parametrize("file", ["rules/ends_of_products.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("terms", [1, 40])
def test_ends(file: str, terms: int, kind: str, dtype: torch.dtype) -> None:
    inputs, weights = adverse(kind, (3, terms), dtype, 1), adverse(kind, (terms, 2), dtype, 2)
    x = affine(symbols(), inputs, cancelling_rows((3, terms), dtype, float(inputs.abs().max())))
    wanted = product(exact(inputs), exact(weights))
    for side, end in enumerate(_ends("corners", x, narrow(weights), terms, sharp=False)):
        assert np.all(exact(end.bounds[side]) <= wanted) if side == 0 else np.all(wanted <= exact(end.bounds[side]))
        off = np.abs(wanted - exact(end.form.center) - total(exact(end.form.generators)))
        assert np.all(off <= exact(end.form.radius))
