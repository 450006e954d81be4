"""The picture shows both certified regions and the undecided band."""

import io

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

import boundflow as bf
from fullcert import figures
from fullcert.options import Options
from fullcert.training import Recipe


def has_colour(picture: bytes, colour: str) -> bool:
    pixels = matplotlib.image.imread(io.BytesIO(picture), format="png")[..., :3]
    return bool((np.abs(pixels - to_rgb(colour)).max(axis=-1) < 0.01).mean() > 0.001)


@pytest.mark.parametrize("loss", ["bce", "ce", "mse"])
def test_regions_are_drawn(loss: str) -> None:
    recipe = Recipe(Options(epochs=2, test_epsilon=0.05, hidden="4", order=3, loss=loss))
    certificate = recipe.certify([])
    picture = figures.barriers(recipe, certificate, points=30)
    assert all(has_colour(picture, colour) for colour in (*figures.PALE, figures.UNDECIDED))
    void = figures.barriers(recipe, bf.Certificate(None, certificate.nominal, certificate.record), points=30)
    assert not any(has_colour(void, colour) for colour in figures.PALE)


@pytest.mark.parametrize("loss", ["bce", "ce", "mse"])
def test_a_region_is_where_its_class_is_certified(loss: str) -> None:
    recipe = Recipe(Options(epochs=1, hidden="4", order=3, loss=loss))
    certificate = recipe.certify([])
    inputs = torch.from_numpy(recipe.data.test.inputs)
    answers, bounds = certificate.predict(inputs, 0.05), figures.preferring(certificate).predict(inputs, 0.05)
    for label, lead in enumerate((-bounds.upper, bounds.lower)):
        assert torch.equal(lead[:, 0] > 0, answers.certified & (answers.label == label))
