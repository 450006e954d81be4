"""Products of radii in bfloat16: never below the exact product, and little above it."""

from fractions import Fraction

import pytest
import torch

from boundflow.refinements import upper_products
from boundflow.refinements.upper_products import upper_product


def narrow(x, y):
    """As matrix units do at worst: digits of each partial sum are cut off."""
    assert x.dtype is y.dtype is torch.bfloat16
    terms = x.double().unsqueeze(2) * y.double().unsqueeze(0)
    total = torch.zeros(terms.shape[0], terms.shape[2])
    for term in terms.unbind(1):
        exact = total.double() + term
        total = exact.float()
        total = torch.where(total.double() > exact, torch.nextafter(total, torch.zeros(())), total)
    return total


def exact(x, y):
    return [
        [sum(Fraction(a) * Fraction(b) for a, b in zip(line, column, strict=True)) for column in y.T.double().tolist()]
        for line in x.double().tolist()
    ]


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(upper_products, "_large_on_a_gpu", lambda f, x, y: True)
    monkeypatch.setattr(upper_products, "_narrow", narrow)


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e12])
@pytest.mark.parametrize("spread", [0, 4])
def test_the_exact_product_is_not_above(large, scale, spread):
    generator = torch.Generator().manual_seed(spread)
    x, y = (torch.rand(shape, generator=generator) for shape in ((5, 48), (48, 4)))
    for factor in (x, y):
        factor *= 10.0 ** (spread * torch.randn(factor.shape, generator=generator))
    x *= scale
    x[0, :40] = 0.0
    found = upper_product(torch.mm, x, y)
    raised = Fraction(upper_products.LEAST) * (Fraction(x.sum().item()) + Fraction(y.sum().item()))
    for line, wanted in zip(found.tolist(), exact(x, y), strict=True):
        for value, least in zip(line, wanted, strict=True):
            assert least <= Fraction(value) <= (least + 2 * raised) * (1 + Fraction(1, 2000))


def test_factors_that_round_down_the_most(large):
    """Halfway between bfloat16 numbers, and what is left halfway again."""
    worst = 1 + 2.0**-8 + 2.0**-17 - 2.0**-23
    x, y = torch.full((1, 64), worst), torch.full((64, 1), worst)
    assert Fraction(upper_product(torch.mm, x, y).item()) >= exact(x, y)[0][0]


def test_elsewhere_it_is_the_product_of_pytorch():
    x, y = torch.rand(3, 4), torch.rand(4, 2)
    assert torch.equal(upper_product(torch.mm, x, y), x @ y)


def test_long_sums_whose_digits_are_cut_off(large):
    number = 1 + 85 * 2.0**-7
    x, y = torch.full((1, 8192), number), torch.full((8192, 1), number)
    assert Fraction(upper_product(torch.mm, x, y).item()) >= 8192 * Fraction(number) ** 2
