"""All programs: importing this fills the registry."""

from . import (
    loops_with_odd_copies,
    loops_with_odd_gradients,
    loops_with_odd_optimizers,
    loops_with_odd_steps,
    networks_of_odd_shape,
    networks_that_choose,
    networks_that_count,
    networks_that_mix,
    networks_that_write,
    networks_with_dropout,
    networks_with_hooks,
    networks_with_noise,
    networks_with_odd_numbers,
    networks_with_odd_weights,
    networks_with_state,
    odd_recipes,
)
from .table import PROGRAMS

FAMILIES = [
    networks_with_state,
    networks_that_count,
    networks_with_noise,
    networks_with_dropout,
    networks_that_mix,
    networks_with_odd_weights,
    networks_with_hooks,
    networks_of_odd_shape,
    networks_that_write,
    networks_that_choose,
    networks_with_odd_numbers,
    odd_recipes,
    loops_with_odd_optimizers,
    loops_with_odd_steps,
    loops_with_odd_gradients,
    loops_with_odd_copies,
]
"""In the order of the page."""

__all__ = ["FAMILIES", "PROGRAMS"]
