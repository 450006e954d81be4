"""Features of images that see no label: how near their patches are to each of a number of typical ones.

After Coates, Lee and Ng (2011), *An analysis of single-layer networks in unsupervised feature learning*: patches of the
training images, each less its mean and divided by its spread, are whitened, and k-means finds typical ones c. With z_c
the distance of a patch to c, and zbar the mean of these,

    f_c = max(0, zbar - z_c),       summed over the patches of each quarter of an image,

and the features of an image are the roots of these sums, less their mean and divided by one number for all, so that
their squares add up to about 1. Means and spreads are those of some training images. All of it is made from images
alone, and is therefore the same in every dataset that differs in labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DRAWN, ROUNDS = 100_000, 15  # patches that k-means sees, and how often it moves its centers
SPREAD, WHITE = 0.01, 0.1  # added to variances before dividing by their roots: of a patch, and of whitened directions
SCALED = 2000  # images that means and spreads are of
PIECE = 2**25  # distances at a time


class PatchFeatures(nn.Module):
    """``count`` typical patches of ``size`` by ``size`` pixels, found with a seed; images are (n, channels, h, w)."""

    mean: Tensor
    whitening: Tensor
    centers: Tensor
    middle: Tensor
    spread: Tensor

    def __init__(self, images: Tensor, count: int, size: int = 6, seed: int = 0):
        super().__init__()
        if images.dim() != 4 or min(images.shape[2:]) <= size:
            raise ValueError(f"images are (n, channels, height, width), larger than {size}: got {tuple(images.shape)}")
        self.size = size
        images, generator = images.detach().double(), torch.Generator().manual_seed(seed)
        drawn = _drawn(images, size, generator)
        if not 0 < count <= len(drawn):
            raise ValueError(f"there are {len(drawn)} patches to find typical ones in: count must be from 1 to that")
        self.register_buffer("mean", drawn.mean(0))
        self.register_buffer("whitening", _whitening(drawn - self.mean))
        first = torch.randperm(len(drawn), generator=generator)[:count].to(drawn.device)
        self.register_buffer("centers", k_means((drawn - self.mean) @ self.whitening, first))
        some = torch.randperm(len(images), generator=generator)[:SCALED].to(images.device)
        roots = self._roots(images[some])
        self.register_buffer("middle", roots.mean(0))
        self.register_buffer("spread", (roots - self.middle).square().sum(1).mean().sqrt().clamp_min(1e-9))

    def forward(self, images: Tensor) -> Tensor:
        return (self._roots(images) - self.middle) / self.spread

    def _roots(self, images: Tensor) -> Tensor:
        height, width = (side - self.size + 1 for side in images.shape[2:])
        step = max(1, PIECE // (height * width * len(self.centers)))
        return torch.cat([self._sums(part, height, width) for part in torch.split(images, step)]).sqrt()

    def _sums(self, images: Tensor, height: int, width: int) -> Tensor:
        far = _distances((_patches(images, self.size) - self.mean) @ self.whitening, self.centers)
        near = (far.mean(-1, keepdim=True) - far).clamp_min(0.0).view(len(images), height, width, -1)
        halves = (near[:, : height // 2], near[:, height // 2 :])
        quarters = [part for half in halves for part in (half[:, :, : width // 2], half[:, :, width // 2 :])]
        return torch.cat([quarter.sum((1, 2)) for quarter in quarters], 1)


def _patches(images: Tensor, size: int) -> Tensor:
    """Every patch of every image, (n, places, pixels), each less its mean and divided by its spread."""
    pixels = images.shape[1] * size**2
    one_each = torch.eye(pixels, dtype=images.dtype, device=images.device).view(pixels, -1, size, size)
    found = F.conv2d(images, one_each).flatten(2).transpose(1, 2)
    found = found - found.mean(-1, keepdim=True)
    return found * (found.square().mean(-1, keepdim=True) + SPREAD).rsqrt()


def _drawn(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Patches of images, drawn without looking, (count, pixels): as many of each image."""
    places = (images.shape[2] - size + 1) * (images.shape[3] - size + 1)
    few = min(places, -(-DRAWN // len(images)))
    chosen = torch.randperm(len(images), generator=generator)[: -(-DRAWN // few)].to(images.device)
    parts = []
    for part in torch.split(images[chosen], 1000):
        which = torch.rand(len(part), places, generator=generator).topk(few, 1).indices.to(images.device)
        patches = _patches(part, size)
        parts.append(patches.gather(1, which[..., None].expand(-1, -1, patches.shape[2])).flatten(0, 1))
    return torch.cat(parts)


def _whitening(points: Tensor) -> Tensor:
    """The matrix after which centered points vary alike in all directions in which they vary much."""
    values, vectors = torch.linalg.eigh(points.T @ points / len(points))
    found: Tensor = vectors * (values.clamp_min(0.0) + WHITE).rsqrt() @ vectors.T
    return found


def k_means(points: Tensor, first: Tensor) -> Tensor:
    """Centers by Lloyd's steps, from some of the points; one that is nearest to none stays where it is."""
    found = points[first]
    for _ in range(ROUNDS):
        pieces = torch.split(points, max(1, PIECE // len(found)))
        nearest = torch.cat([_distances(piece, found).argmin(1) for piece in pieces])
        sums = torch.zeros_like(found).index_add_(0, nearest, points)
        sizes = torch.bincount(nearest, minlength=len(found))[:, None]
        found = torch.where(sizes > 0, sums / sizes.clamp_min(1), found)
    return found


def _distances(points: Tensor, centers: Tensor) -> Tensor:
    """The distance of every point to every center."""
    square = points.square().sum(-1, keepdim=True) - 2 * points @ centers.T + centers.square().sum(-1)
    return square.clamp_min(0.0).sqrt()
