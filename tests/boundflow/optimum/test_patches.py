"""Features of patches: made from images alone, the same for an image in any company, and of use."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from boundflow.optimum import PatchFeatures, certify_optimum
from boundflow.optimum.patches import k_means
from boundflow.threats import AtMost, Labels


def strokes(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of 12 by 12 pixels with a horizontal or a vertical stroke somewhere, and some noise."""
    random = torch.Generator().manual_seed(seed)
    images = 0.1 * torch.rand(count, 1, 12, 12, generator=random, dtype=torch.float64)
    labels = torch.randint(2, (count,), generator=random)
    for image, label in zip(images, labels.tolist(), strict=True):
        place = int(torch.randint(1, 11, (1,), generator=random))
        image[0, place, :] += 1.0 if label else 0.0
        image[0, :, place] += 0.0 if label else 1.0
    return images, labels


def test_strokes_are_told_apart_with_wrong_labels() -> None:
    (x, y), (asked, truth) = strokes(200), strokes(60, seed=1)
    certificate = certify_optimum(
        nn.Linear(32, 2), (x, y), threat=AtMost(5, Labels()), l2=0.01, features=PatchFeatures(x, 8, size=3)
    )
    found = certificate.accuracy(asked, truth)
    assert found.nominal == 1.0 and found.certified > 0.9
    pixels = certify_optimum(nn.Linear(144, 2), (x.flatten(1), y), threat=AtMost(5, Labels()), l2=0.01)
    assert pixels.accuracy(asked.flatten(1), truth).certified < 0.5


def test_an_image_has_the_same_features_in_any_company() -> None:
    images, _ = strokes(30)
    features = PatchFeatures(images, 5, size=4)
    found = features(images)
    assert found.shape == (30, 20) and torch.equal(PatchFeatures(images, 5, size=4)(images), found)
    assert torch.allclose(torch.cat([features(image[None]) for image in images]), found, rtol=1e-9, atol=1e-12)
    assert torch.allclose(found.mean(0), torch.zeros(20, dtype=torch.float64), atol=1e-9)
    assert float(found.square().sum(1).mean()) == pytest.approx(1.0)
    assert not torch.equal(PatchFeatures(images, 5, size=4, seed=1)(images), found)


def test_k_means_finds_groups_and_keeps_centers_without_points() -> None:
    groups = torch.tensor([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]).double()
    assert k_means(groups, torch.tensor([0, 2])).tolist() == [[0.0, 0.5], [9.0, 0.5]]
    twice = torch.cat((groups[:1], groups))
    assert k_means(twice, torch.tensor([0, 1, 3]))[1].tolist() == [0.0, 0.0]


def test_no_moved_image_leaves_its_bounds() -> None:
    (x, y), (asked, _) = strokes(60), strokes(8, seed=1)
    features = PatchFeatures(x, 4, size=3)
    certificate = certify_optimum(nn.Linear(16, 2), (x, y), threat=AtMost(1, Labels()), l2=0.01, features=features)
    found, random = certificate.predict(asked, 1e-4), torch.Generator().manual_seed(0)
    assert bool(found.certified.all())
    for _ in range(20):
        signs = 2.0 * torch.randint(2, asked.shape, generator=random, dtype=torch.float64) - 1
        answers = certificate.nominal(asked + 1e-4 * signs)
        assert bool((found.lower <= answers).all()) and bool((answers <= found.upper).all())


@pytest.mark.parametrize("shape", [(5, 36), (5, 1, 3, 9)])
def test_what_are_no_images_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="height, width"):
        PatchFeatures(torch.rand(shape), 2, size=3)


def test_more_typical_patches_than_patches_are_refused() -> None:
    with pytest.raises(ValueError, match="18 patches"):
        PatchFeatures(torch.rand(2, 1, 5, 5), 19, size=3)
