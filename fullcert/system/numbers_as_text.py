"""Numbers as text, rounded to the side that keeps a claim true.

A lower bound, a margin and an accuracy are rounded down, an upper bound and a width up: 0.9996 is never printed as
100 %. What a result has to beat is rounded the other way. What is rounded is the number as it is written, so that 0.1
stays 0.1.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from sys import float_info

MISSING = "–"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded(value: float, digits: int, rounding: str) -> float:
    """The value with so many significant digits; the largest numbers stay finite."""
    short = float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))
    return min(max(short, -float_info.max), float_info.max)


def below(value: float, digits: int = 4) -> float:
    """The largest number of so many digits that is not above the value."""
    return rounded(value, digits, ROUND_FLOOR)


def above(value: float, digits: int = 4) -> float:
    """The smallest number of so many digits that is not below the value."""
    return rounded(value, digits, ROUND_CEILING)


def nearest(value: float, digits: int = 4) -> float:
    """The number of so many digits that is nearest to the value."""
    return rounded(value, digits, ROUND_HALF_EVEN)


def number(value: float | None, digits: int = 4) -> str:
    """A number as read by people, to the nearest: 0.25, 1200, 3e-9, −2."""
    if value is None:
        return MISSING
    short = nearest(value, digits)
    if short == 0:
        return "0"
    if 1e-4 <= abs(short) < 1e6:
        text = f"{Decimal(repr(short)):f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa, exponent = f"{short:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−")


def width(value: float | None) -> str:
    """The width of a set, rounded up."""
    return MISSING if value is None else number(above(value, 3), 3)


def percent(fraction: float | None, rounding: str = ROUND_FLOOR) -> str:
    """A share of a whole, rounded to a tenth of a percent: down, unless it is one that others are held against."""
    if fraction is None:
        return MISSING
    tenths = (Decimal(repr(float(fraction))) * 1000).to_integral_value(rounding)
    return f"{tenths / 10:.1f} %"


def count(amount: int) -> str:
    """A whole number with its thousands apart."""
    return f"{amount:,}"


def power(exponent: int) -> str:
    """A power of ten: 10⁻³."""
    return "10" + str(exponent).translate(SUPERSCRIPTS)
