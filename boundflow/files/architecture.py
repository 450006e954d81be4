"""Modules as plain data: a certificate file names the layers it was trained with, and never holds code.

`nn.Sequential` of the layers in the table can be written down and rebuilt; anything else is not described, and whoever
loads the file brings the module. A layer that would come back with another option, without its hooks or under another
name is not described either, nor are weights that two layers share: the file would speak of another network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

# layer -> the attributes that rebuild it
LAYERS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features"),
    "Conv1d": ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
    "Conv2d": ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "Embedding": ("num_embeddings", "embedding_dim"),
    "Flatten": ("start_dim", "end_dim"),
    "Unflatten": ("dim", "unflattened_size"),
    "Dropout": ("p",),
    "ReLU": (),
    "LeakyReLU": ("negative_slope",),
    "Tanh": (),
    "Sigmoid": (),
    "Softplus": ("beta", "threshold"),
    "SiLU": (),
    "GELU": ("approximate",),
    "ELU": ("alpha",),
    "Identity": (),
    "MaxPool2d": ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "AvgPool2d": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"),
    "AdaptiveAvgPool2d": ("output_size",),
}
WITH_BIAS = {"Linear", "Conv1d", "Conv2d"}


def describe(module: nn.Module) -> Any:
    """The module as JSON data, or None if it would not come back from there as it is."""
    return None if _shares(module) else _described(module)


def _shares(module: nn.Module) -> bool:
    """Whether a parameter or a buffer stands in two places."""
    held = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return len({id(value) for _, value in held}) < len(held)


def _described(module: nn.Module) -> Any:
    """A module by itself; None if a part of it is not in the table."""
    name = type(module).__name__
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return None
    if type(module) is nn.Sequential:
        parts = [_described(part) for part in module]
        numbered = list(module._modules) == list(map(str, range(len(parts))))
        return None if None in parts or not numbered else {"Sequential": parts}
    if name not in LAYERS or type(module) is not getattr(nn, name):
        return None
    options = {option: getattr(module, option) for option in LAYERS[name]}
    if name in WITH_BIAS:
        options["bias"] = module.bias is not None
    with torch.device("meta"):
        twin = rebuild({name: options})
    same = all(getattr(module, key, None) == option for key, option in vars(twin).items() if _is_option(key))
    return {name: options} if same else None


def _is_option(attribute: str) -> bool:
    return not attribute.startswith("_") and attribute != "training"


def rebuild(description: Any) -> nn.Module:
    """A module of the described architecture, with fresh parameters."""
    ((name, options),) = description.items()
    if name == "Sequential":
        return nn.Sequential(*(rebuild(part) for part in options))
    if name not in LAYERS or not set(options) <= {*LAYERS[name], "bias"}:
        raise ValueError(f"a layer {name!r} with options {sorted(options)} is not known")
    made = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    layer: type[nn.Module] = getattr(nn, name)
    return layer(**made)
