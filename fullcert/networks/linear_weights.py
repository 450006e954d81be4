"""What a linear model makes of every feature: the interval of its weight, and whether its sign is certain.

The weight of a feature lies between its bounds for every dataset that the threat allows. Between two classes what
counts is the difference of their weights, which is bounded as one set.
"""

from typing import Any

import torch
from torch import nn

import boundflow as bf
from fullcert.networks import optimum_fitting

LAYERS = (nn.Linear, nn.Flatten, nn.Identity)
MOST = 60  # features that are shown, those with the largest weights


def linear_layer(model: nn.Module | None) -> nn.Linear | None:
    """The one layer of a linear model, if it is one."""
    leaves = [module for module in model.modules() if not list(module.children())] if model is not None else []
    linear = [module for module in leaves if isinstance(module, nn.Linear)]
    return linear[0] if len(linear) == 1 and all(isinstance(module, LAYERS) for module in leaves) else None


def intervals(
    certificate: bf.Certificate | bf.OptimumCertificate, features: tuple[str, ...] | None, classes: tuple[str, ...]
) -> dict[str, Any]:
    """The bounds of the weight of every feature, towards a class; nothing of models that are not linear."""
    if isinstance(certificate, bf.OptimumCertificate):
        return of_optimum(certificate, features, classes)
    layer, plain = linear_layer(certificate.model), linear_layer(certificate.nominal)
    if layer is None or plain is None or not isinstance(layer.weight, bf.Bounded):
        return {}
    names = features if features is not None and len(features) == layer.weight.shape[1] else None
    names = names or tuple(f"input {number}" for number in range(layer.weight.shape[1]))
    with torch.no_grad():
        found = []
        for towards, bounded, nominal in _towards(layer.weight, plain.weight, classes):
            lower, upper, middle = (part.flatten().tolist() for part in (bounded.lower, bounded.upper, nominal))
            rows = zip(names, lower, upper, middle, strict=True)
            found += [{"name": n, "towards": towards, "lower": a, "upper": b, "plain": c} for n, a, b, c in rows]
    order = sorted(range(len(found)), key=lambda place: -abs(found[place]["plain"]))[:MOST]
    return {"rows": [found[place] for place in order], "left_out": len(found) - len(order)}


def of_optimum(
    certificate: bf.OptimumCertificate, features: tuple[str, ...] | None, classes: tuple[str, ...]
) -> dict[str, Any]:
    """The same at the optimum, with how many wrong labels each sign withstands; nothing where features mix columns."""
    if optimum_fitting.raw_weights(certificate.nominal) is None:
        return {}
    columns = int(certificate.record["input_shape"][0])
    names = features if features is not None and len(features) == columns else None
    names = names or tuple(f"input {number}" for number in range(columns))
    found: list[dict[str, Any]] = []
    for towards, direction in _directions(len(certificate.optima[0].weights), classes):
        lower, upper, plain, counts = certificate.along(direction)
        for place, name in enumerate(names):
            ends = {"lower": float(lower[place]), "upper": float(upper[place]), "plain": float(plain[place])}
            told = {} if counts is None else {"withstands": int(counts[place])}
            found.append({"name": name, "towards": towards, **ends, **told})
    order = sorted(range(len(found)), key=lambda place: -abs(found[place]["plain"]))[:MOST]
    return {"rows": [found[place] for place in order], "left_out": len(found) - len(order)}


def _directions(outputs: int, classes: tuple[str, ...]) -> list[tuple[str, torch.Tensor]]:
    """Directions in the space of outputs, each towards a class."""
    unit = torch.eye(outputs, dtype=torch.float64)
    if outputs == 1:
        return [(classes[1] if len(classes) > 1 else "", unit[0])]
    if outputs == 2 and len(classes) == 2:
        return [(classes[1], unit[1] - unit[0])]
    return [(name, unit[place]) for place, name in enumerate(classes)]


def _towards(weight: bf.Bounded, plain: torch.Tensor, classes: tuple[str, ...]) -> list[tuple[str, Any, torch.Tensor]]:
    """Weights towards a class: of one output its own, of two their difference, of more each one's."""
    if len(weight) == 1:
        return [(classes[1] if len(classes) > 1 else "", weight, plain)]
    if len(weight) == 2 and len(classes) == 2:
        return [(classes[1], weight[1:] - weight[:1], plain[1:] - plain[:1])]
    return [(name, weight[place : place + 1], plain[place]) for place, name in enumerate(classes)]
