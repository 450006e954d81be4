"""The named widenings of `rounding.py` against exact fractions: of moved, written and scaled data, and of answers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from membership import fractions

from boundflow import rounding

FLOAT64 = torch.float64
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def numbers(random: np.random.Generator, count: int, dtype: torch.dtype = FLOAT64) -> torch.Tensor:
    """Of all sizes, and of both signs; some are whole."""
    wide = random.normal(size=count) * 10.0 ** random.uniform(-12, 12, size=count)
    return torch.from_numpy(np.where(random.random(count) < 0.2, np.round(wide), wide)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_affine_image_holds_the_exact_one(dtype: str) -> None:
    random = np.random.default_rng(0)
    for scale in (1.0, 3.0, 0.1, 2.0**-3, -0.7, 1e-200, 12345.678):
        for shift in (0.0, 0.1, -1e9, 7.0):
            ends = numbers(random, 80, DTYPES[dtype]).view(2, 40).sort(0).values
            image = rounding.affine_image(ends, scale, shift)
            assert image.dtype is FLOAT64
            for low, high, least, most in zip(*map(fractions, (*ends, *image)), strict=True):
                exact = sorted((low * Fraction(scale) + Fraction(shift), high * Fraction(scale) + Fraction(shift)))
                assert least <= exact[0] and exact[1] <= most
            nearest = ends.double() * scale + shift
            assert bool((image[0] <= nearest.amin(0)).all()) and bool((nearest.amax(0) <= image[1]).all())


def test_an_affine_image_of_what_is_exact_or_void() -> None:
    ends = torch.tensor([[-torch.inf, 1.0], [torch.inf, 1.0]], dtype=torch.float32)
    assert torch.equal(rounding.affine_image(ends, 1.0, 0.0), ends.double())
    assert rounding.affine_image(ends, 2.5, 1.0)[:, 0].tolist() == [-np.inf, np.inf]
    largest = torch.full((2, 1), 1e308, dtype=FLOAT64)
    assert rounding.affine_image(largest, 10.0, 0.0)[1].item() == np.inf
    assert rounding.affine_image(largest, 10.0, 0.0)[0].item() <= 1e309


def test_a_number_before_it_was_scaled() -> None:
    random = np.random.default_rng(1)
    for scale, shift in ((3.0, 0.1), (0.1, -7.7), (1234.5, 1e6), (1.0, 0.0)):
        for number in numbers(random, 200).tolist():
            low, high = rounding.before_scaling(torch.tensor((number - shift) / scale, dtype=FLOAT64), scale, shift)
            assert low.item() <= number <= high.item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_are_rounded_by_no_more(dtype: str) -> None:
    """Of amounts down to less than an ulp of the value, and values down to subnormal numbers."""
    random, kind = np.random.default_rng(2), DTYPES[dtype]
    x = torch.cat((numbers(random, 200, kind), torch.tensor([0.0, 1e-40, -1e-40]).to(kind)))
    amounts = torch.from_numpy(10.0 ** random.uniform(-14, 3, size=len(x))).to(kind)
    allowance = fractions(rounding.of_moves(x, amounts))
    for value, amount, allowed in zip(fractions(x), fractions(amounts), allowance, strict=True):
        for share in (-1.0, 1.0, 0.3, random.uniform(-1, 1)):
            exact = value + Fraction(share) * amount
            written = Fraction(torch.tensor(float(exact), dtype=FLOAT64).to(kind).item())
            assert abs(written - exact) <= allowed
    assert not bool(rounding.of_moves(x, torch.zeros_like(x)).any()), "what does not move is not rounded"


@pytest.mark.parametrize("dtype", DTYPES)
def test_shares_in_per_cent(dtype: str) -> None:
    random = np.random.default_rng(3)
    x = torch.cat((numbers(random, 50, DTYPES[dtype]), torch.tensor([0.0, 1e-40]).to(DTYPES[dtype])))
    for text in ("0.1", "5", "33.3", "7.77", "400", "0"):
        found = rounding.share_of(x, float(text) / 100)
        assert found.dtype is FLOAT64
        for value, amount in zip(fractions(x), fractions(found), strict=True):
            assert amount >= Fraction(Decimal(text)) / 100 * abs(value)
        assert not bool(found[x == 0].any())


def test_whole_steps_as_they_are_written() -> None:
    """Decimals: three tenths hold three steps of a tenth, although 0.3 / 0.1 is less than 3."""
    assert 0.3 / 0.1 < 3 and rounding.whole_steps(0.3, 0.1) == 3
    for step in ("0.1", "0.7", "0.125", "3", "0.003"):
        for tenths in range(200):
            distance = Decimal(step) * tenths / 10
            exact = int(distance / Decimal(step))
            assert exact == tenths // 10 and rounding.whole_steps(float(distance), float(step)) == exact
    with rounding.nearest():
        assert rounding.whole_steps(0.3, 0.1) == 3


def test_points_of_a_grid_as_float32_holds_them() -> None:
    """Bytes as shares of 255, by a product with a rounded step or by a division, then converted to float64."""
    points = np.arange(256)
    for step in (Fraction(1, 255), Fraction(1, 10), Fraction(3, 7)):
        product = points.astype(np.float32) * np.float32(float(step))
        quotient = (points * np.float32(step.numerator) / np.float32(step.denominator)).astype(np.float32)
        for first, second in ((product, product), (product, quotient), (quotient, quotient)):
            for hop in (1, 2, 5):
                distance = hop * float(step)
                for x, other in ((first[:-hop], second[hop:]), (first[hop:], second[:-hop])):
                    allowed = distance + rounding.of_grid(torch.from_numpy(x), distance)
                    assert bool((torch.from_numpy(np.abs(other.astype(np.float64) - x)) <= allowed).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_of_scaled_numbers(dtype: str) -> None:
    """A number that someone wrote, and another one within its tolerance, both scaled as a table's are."""
    random, spacing = np.random.default_rng(4), torch.finfo(DTYPES[dtype]).eps
    for _ in range(300):
        center, scale = float(random.normal() * 100), float(10.0 ** random.uniform(-3, 3))
        written = Decimal(repr(round(float(random.normal() * 300), 3)))
        tolerance = Decimal(repr(round(float(10.0 ** random.uniform(-3, 2)), 4)))
        scaled = [(float(v) - center) / scale for v in (written, written - tolerance, written + tolerance)]
        held = torch.tensor(scaled, dtype=DTYPES[dtype]).double().tolist()
        offset = abs(center) / scale
        allowed = rounding.scaled_move(float(tolerance) / scale, abs(held[0]), offset, spacing)
        assert all(abs(Fraction(other) - Fraction(held[0])) <= Fraction(allowed) for other in held[1:])
        share = Decimal(repr(round(float(random.uniform(0.001, 3)), 4)))
        ends = [float(written * factor) / scale for factor in (1, 1 - share, 1 + share)]
        held = torch.tensor(ends, dtype=DTYPES[dtype]).double().tolist()
        allowed = Fraction(rounding.scaled_share(float(share), spacing)) * abs(Fraction(held[0]))
        assert all(abs(Fraction(other) - Fraction(held[0])) <= allowed for other in held[1:])


def test_widths_and_means_are_rounded_up() -> None:
    random = np.random.default_rng(5)
    for count in (1, 3, 1000):
        bounds = numbers(random, 2 * count).view(2, count).sort(0).values
        widths = rounding.width(bounds)
        low, high, found = map(fractions, (*bounds, widths))
        assert all(w >= b - a for a, b, w in zip(low, high, found, strict=True))
        assert Fraction(rounding.upper_mean(widths).item()) >= sum(found) / count
    point = torch.ones(2, 3)
    assert not bool(rounding.width(point).any()) and rounding.upper_mean(rounding.width(point)).item() == 0


def test_differences_made_longer_keep_their_sign() -> None:
    random = np.random.default_rng(6)
    a, b = numbers(random, 100), numbers(random, 100)
    for first, second, gap in zip(*map(fractions, (a, b, rounding.away(b - a))), strict=True):
        assert abs(gap) >= abs(second - first) and gap * (second - first) >= 0


def test_nothing_is_added_where_rounding_is_switched_off() -> None:
    x = torch.tensor([0.1, -3.0], dtype=FLOAT64)
    with rounding.nearest():
        assert not bool(rounding.of_moves(x, x.abs()).any()) and not bool(rounding.of_grid(x, 0.1).any())
        assert rounding.scaled_move(0.1, 5.0, 2.0, 1e-7) == 0.1
        assert torch.equal(rounding.affine_image(torch.stack((x, x)), 3.0, 0.1)[0], 3.0 * x + 0.1)
