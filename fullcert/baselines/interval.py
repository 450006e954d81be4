"""The interval method of Abstract Gradient Training (Sosnin, Müller, Baader, Tsay, Wicker 2024), on our own domain.

In every step each sample has an interval of gradients as observed, [g_i, G_i], and a wider one where it was changed,
[g_i', G_i']; both are over all parameters the attacker could have brought about so far. The sum over a batch lies in

    [ sum g_i - the k largest (g_i - g_i'),   sum G_i + the k largest (G_i' - G_i) ],      coordinate by coordinate,

and parameters are intervals as well:  [theta - lr G, Theta - lr g].  That is `certify(domain="interval")` under a
budget: without rows there is nothing that follows a sample through the run, and k is counted anew in every step.

In common: the sets, and the k per step and coordinate. Not in common: the published method bounds products by their
midpoint and radius, ours takes exact hulls of products over samples and keeps the interval of each loss tight, and
charges every rounding; so its numbers are not those of the paper, and mostly higher.
Its threat is larger than that of our zonotopes: k samples in *every* step, where `AtMost` is k in the whole run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import boundflow as bf
from boundflow.tensor.lift import Given


def certify(
    model: nn.Module, data: tuple[Given, Given], change: bf.threats.Threat, k: int | None = None, **fields: Any
) -> bf.Certificate:
    """Train on intervals, with at most k samples changed in every batch (None: all); other fields as `bf.certify`."""
    threat = change if k is None or k >= len(torch.as_tensor(data[0])) else bf.threats.AtMost(k, change)
    return bf.certify(model, data, threat=threat, domain="interval", **fields)
