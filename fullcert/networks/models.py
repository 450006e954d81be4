"""Networks by name, or from a file of the user. They are plain `torch.nn` modules: what is certified is what PyTorch
trains."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import nn

from fullcert.experiment.options import Options, parse_widths
from fullcert.networks import model_files
from fullcert.system.mistakes import Mistake, choose

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
    widths = [math.prod(shape), *parse_widths(options.hidden, "hidden"), outputs]
    layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    for inward, outward in itertools.pairwise(widths):
        layers += [nn.Linear(inward, outward), activation()]
    return nn.Sequential(*layers[:-1])


def cnn(options: Options, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions of width 3 that halve the image each time, then linear layers."""
    if len(shape) != 3:
        raise Mistake(f"--model cnn takes images of channels, rows and columns, and these inputs have shape {shape}")
    activation = choose("activation", options.activation, ACTIVATIONS)
    channels, rows, columns = shape
    layers: list[nn.Module] = []
    for wider in parse_widths(options.channels, "channels"):
        layers += [nn.Conv2d(channels, wider, 3, stride=2, padding=1), activation()]
        channels, rows, columns = wider, (rows + 1) // 2, (columns + 1) // 2
    head = mlp(options, (channels * rows * columns,), outputs)
    return nn.Sequential(*layers, nn.Flatten(), *head.children())


MODELS: dict[str, Callable[[Options, tuple[int, ...], int], nn.Module]] = {"mlp": mlp, "cnn": cnn}


def build(options: Options, shape: tuple[int, ...], outputs: int, code: dict[str, str] | None = None) -> nn.Module:
    """The network before training, for inputs of this shape. The seed fixes it; nobody else's random state changes.

    A larger first layer starts from steeper features, which need fewer steps; and every step widens the set. ``code``
    takes the digests of the files of the user that it is made by.
    """
    if model_files.is_file(options.model):
        return model_files.build_model(options.model, shape, outputs, options.seed, code)
    network = choose("model", options.model, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = network(options, shape, outputs).double()
    with torch.no_grad():
        for parameter in with_parameters(model)[0].parameters():
            parameter.mul_(options.init_scale)
    return model


def freeze(model: nn.Module, count: int) -> nn.Module:
    """The first layers that have parameters keep their values."""
    layers = with_parameters(model)
    if count >= len(layers) > 0 and count:
        raise Mistake(f"--frozen {count} leaves nothing to train: the network has {len(layers)} layers with parameters")
    for layer in layers[:count]:
        layer.requires_grad_(False)
    return model


def with_parameters(model: nn.Module) -> list[nn.Module]:
    """The layers that have parameters of their own, in order."""
    return [layer for layer in model.modules() if list(layer.parameters(recurse=False))]
