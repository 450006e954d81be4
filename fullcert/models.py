"""Networks by name. They are plain `torch.nn` modules: what is certified is what PyTorch trains."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import nn

from fullcert.mistakes import choose
from fullcert.options import Options, parse_widths

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "leaky-relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


def mlp(options: Options, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Linear layers of the chosen widths with an activation between them, from PyTorch's own initialisation.

    Inputs with more than one axis, such as images, are flattened first.
    """
    activation = choose("activation", options.activation, ACTIVATIONS)
    widths = [math.prod(shape), *parse_widths(options.hidden), outputs]
    layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    for inward, outward in itertools.pairwise(widths):
        layers += [nn.Linear(inward, outward), activation()]
    return nn.Sequential(*layers[:-1])


MODELS: dict[str, Callable[[Options, tuple[int, ...], int], nn.Module]] = {"mlp": mlp}


def build(options: Options, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The network before training, for inputs of this shape. The seed fixes it; nobody else's random state changes.

    A larger first layer starts from steeper features, which need fewer steps; and every step widens the set.
    """
    network = choose("model", options.model, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = network(options, shape, outputs).double()
    first = next(layer for layer in model.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.mul_(options.init_scale)
    return model
