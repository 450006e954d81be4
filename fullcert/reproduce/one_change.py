"""One pixel or the label of a sample, as a threat to signed features: what BagFlip calls FL1.

With labels s = +-1 and fixed features phi, logistic regression without a bias learns from z = s phi alone, since its
loss is softplus(-s w.phi) = softplus(-w.z): all targets are 1. Another label is -z; another pixel of a binary image
moves z by a d with |d|_1 <= reach. Either, never both:

    z' = z + a (-2 z) + reach sum_j b_j e_j,     |a| + sum_j |b_j| <= 1     (a cross polytope, which holds both)

The features are energies of edges (`layers.EdgeEnergy`) less a constant. On a binary image a filter whose moduli add up
to g answers e with |e| <= g / 2, so a pixel under which it has the weight f moves e^2 by at most g |f|; the reach is
the sum over all places and filters that see the pixel, the largest of all pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boundflow import rounding
from boundflow.symbols.budgets import Kind
from boundflow.threats.base import Change
from boundflow.threats.deviation import Deviation
from fullcert.networks.layers import EdgeEnergy

# How far features of a changed image can be from their exact values: sums of 25 products below 3 and their squares, in
# float64, are off by less than 1e-13.
ROUNDED = 1e-12


class OneChange(Change):
    """The sign of a sample, or its features by ``reach`` in all."""

    kind = Kind.CROSS

    def __init__(self, reach: float):
        self.reach = float(reach)

    def __repr__(self) -> str:
        return f"OneChange({self.reach!r}){self._restricted()}"

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        samples, features = values.shape
        generators = values.new_zeros(1 + features, samples, features)
        generators[0] = 2 * values
        generators[1:] = self.reach * torch.eye(features, dtype=values.dtype, device=values.device).unsqueeze(1)
        lower = torch.minimum(-values, values - self.reach) - ROUNDED
        upper = torch.maximum(-values, values + self.reach) + ROUNDED
        return Deviation(values, generators, torch.stack((lower, upper)), torch.full_like(values, ROUNDED))


class CenteredEdges(nn.Module):
    """Energies of edges less a constant: flipped labels do least where features of both classes differ in sign."""

    def __init__(self, middle: float = 0.15):
        super().__init__()
        self.edges, self.middle = EdgeEnergy(), middle

    def forward(self, x: Tensor) -> Tensor:
        return self.edges(x) - self.middle

    def reach(self, shape: tuple[int, int] = (28, 28)) -> float:
        """How far one pixel moves the features of a binary image, added up over them."""
        filters, stride, patch = self.edges.filters, self.edges.stride, self.edges.patch
        weight = filters.abs()
        gains = weight.sum((1, 2, 3), keepdim=True)
        places = [((length - weight.shape[-1]) // stride + 1) // patch * patch for length in shape]  # that are pooled
        seen = F.conv_transpose2d(weight.new_ones(1, len(weight), *places), weight * gains, stride=stride)
        return rounding.largest_of_sums(seen / patch**2, 2 * weight.numel())  # a pixel is seen at most so often
