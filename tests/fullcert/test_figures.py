"""The picture shows both certified regions and the undecided band."""

import io

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fullcert import figures
from fullcert.options import Options
from fullcert.training import Certified, Recipe


def has_colour(picture: bytes, colour: str) -> bool:
    pixels = matplotlib.image.imread(io.BytesIO(picture), format="png")[..., :3]
    return bool((np.abs(pixels - to_rgb(colour)).max(axis=-1) < 0.01).mean() > 0.001)


@pytest.mark.parametrize("loss", ["bce", "ce"])
def test_regions_are_drawn(loss: str) -> None:
    recipe = Recipe(Options(epochs=2, test_epsilon=0.05, hidden="4", order=3, loss=loss))
    plain, certified = recipe.train_plain(), recipe.train_certified(lambda done, total, loss: None)
    picture = figures.barriers(recipe, plain, certified, points=30)
    assert all(has_colour(picture, colour) for colour in (*figures.PALE, figures.UNDECIDED))
    void = figures.barriers(recipe, plain, Certified(None, 3, 0.0), points=30)
    assert not any(has_colour(void, colour) for colour in figures.PALE)
