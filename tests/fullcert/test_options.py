"""A number that makes no sense is refused, with the flag that set it."""

import math

import pytest

from fullcert.mistakes import Mistake
from fullcert.options import Options, flag_of, parse_widths


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("epsilon", "test_epsilon", "lr", "weight_decay") for value in (-1e-9, math.inf)),
        *((name, math.nan) for name in ("epsilon", "test_epsilon", "lr", "momentum", "weight_decay", "init_scale")),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("epochs", 0),
        ("batch_size", -1),
        ("order", 0),
        ("seed", -1),
        ("seed", 2**32),
        ("hidden", "0"),
    ],
)
def test_bad_numbers_are_refused(name: str, value: float | str) -> None:
    with pytest.raises(Mistake, match=flag_of(name)):
        Options(**{name: value})


@pytest.mark.parametrize("hidden", ["", "0", "16,", ",", "16,-2", "a", "1.5", "16;8", "²"])
def test_bad_widths_are_refused(hidden: str) -> None:
    with pytest.raises(Mistake, match="--hidden"):
        parse_widths(hidden)


def test_widths() -> None:
    assert parse_widths("16, 8,1") == (16, 8, 1)


def test_the_test_radius_is_the_training_radius_unless_said_otherwise() -> None:
    assert Options(epsilon=0.5).test_epsilon == 0.5
    assert Options(epsilon=0.5, test_epsilon=0.0).test_epsilon == 0.0
