"""Options in all combinations are honoured or refused: plain results, and their gradients, at members lie inside.

Options are those of PyTorch's signatures, each with values that change the result, in all combinations. What plain
PyTorch refuses is not asked about.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import boundflow as bf

RADIUS, MEMBERS = 0.05, 2
Options = dict[str, Any]


def drawn(*shape: int, seed: int = 0, share: bool = False) -> Tensor:
    numbers = torch.rand if share else torch.randn
    return numbers(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def every(*options: list[Options]) -> Iterator[Options]:
    """All combinations, of one of each."""
    for chosen in itertools.product(*options):
        yield {name: value for part in chosen for name, value in part.items()}


def maybe(**options: Any) -> list[Options]:
    """None of these, or one of them; several values stand in a list."""
    values = [
        (name, value) for name, value in options.items() for value in (value if isinstance(value, list) else [value])
    ]
    return [{}, *({name: value} for name, value in values)]


Z, CLASSES, WEIGHT = drawn(5, 3), torch.tensor([0, 2, 1, 1, 0]), drawn(3, seed=1, share=True) + 0.2
SHARES, TRUTH, VALUES = torch.softmax(drawn(5, 3, seed=2), 1), (drawn(5, 3, seed=3) > 0).double(), drawn(5, 3, seed=4)
EACH = drawn(5, 3, seed=5, share=True)
IMAGES, KERNELS = drawn(2, 3, 6, 6, seed=6, share=True), drawn(6, 3, 3, 3, seed=7)
REDUCED = maybe(reduction=["sum", "none", "bogus"], size_average=False, reduce=False)
LABELS = {
    "classes": CLASSES,
    "shares": SHARES,
    "classes as shares": F.one_hot(CLASSES, 3).double(),
    "classes that are ignored": torch.tensor([0, -100, 1, 1, 0]),
}
CASES: dict[str, tuple[Callable[..., Any], Tensor, Iterator[Options]]] = {
    **{
        f"cross entropy of {name}": (
            lambda x, labels=labels, **options: F.cross_entropy(x, labels, **options),
            Z,
            every(REDUCED, maybe(weight=WEIGHT), maybe(ignore_index=[1, 7]), maybe(label_smoothing=[0.2, 1.0])),
        )
        for name, labels in LABELS.items()
    },
    "cross entropy along the second of three axes": (
        lambda x, **options: F.cross_entropy(x, CLASSES[:4].expand(2, 4), **options),
        drawn(2, 3, 4),
        every(REDUCED, maybe(weight=WEIGHT), maybe(ignore_index=1), maybe(label_smoothing=0.2)),
    ),
    "nll": (
        lambda x, **options: F.nll_loss(F.log_softmax(x, 1), CLASSES, **options),
        Z,
        every(REDUCED, maybe(weight=WEIGHT), maybe(ignore_index=1)),
    ),
    "multi-class hinge": (
        lambda x, **options: F.multi_margin_loss(x, CLASSES, **options),
        Z,
        every(REDUCED, maybe(weight=WEIGHT), maybe(p=2), maybe(margin=[0.3, 2.0])),
    ),
    "bce": (
        lambda x, **options: F.binary_cross_entropy_with_logits(x, SHARES, **options),
        Z,
        every(REDUCED, maybe(weight=[EACH, WEIGHT]), maybe(pos_weight=WEIGHT)),
    ),
    **{
        function.__name__: (
            lambda x, function=function, **options: function(x, VALUES, **options),
            Z,
            every(REDUCED, maybe(weight=EACH), maybe(beta=0.3, delta=0.3)),
        )
        for function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
    },
    **{
        function.__name__: (
            lambda x, function=function, **options: function(x, TRUTH, **options),
            Z,
            every(REDUCED, maybe(weight=WEIGHT), maybe(margin=0.4, log_target=True, log_input=False)),
        )
        for function in (F.soft_margin_loss, F.hinge_embedding_loss, F.kl_div, F.poisson_nll_loss)
    },
    "max pooling": (
        lambda x, **options: F.max_pool2d(x, 2, **options),
        IMAGES,
        every(maybe(stride=[1, 3]), maybe(padding=1), maybe(dilation=2), maybe(ceil_mode=True, return_indices=True)),
    ),
    "average pooling": (
        lambda x, **options: F.avg_pool2d(x, 2, **options),
        IMAGES,
        every(maybe(stride=3), maybe(padding=1), maybe(ceil_mode=True, count_include_pad=False, divisor_override=3)),
    ),
    "convolution": (
        lambda x, **options: F.conv2d(x, KERNELS, **options),
        IMAGES,
        every(maybe(bias=drawn(6)), maybe(stride=2), maybe(padding=[1, "same", "valid"]), maybe(dilation=2)),
    ),
    "layer norm": (
        lambda x, **options: F.layer_norm(x, (6,), **options),
        IMAGES,
        every(maybe(weight=drawn(6)), maybe(bias=drawn(6)), maybe(eps=0.1)),
    ),
    "batch norm": (
        lambda x, **options: F.batch_norm(x, torch.zeros(3).double(), torch.ones(3).double(), **options),
        IMAGES,
        every(maybe(weight=drawn(3)), maybe(bias=drawn(3)), maybe(training=True), maybe(momentum=0.3), maybe(eps=0.1)),
    ),
    "padding": (
        lambda x, **options: F.pad(x, (1, 2), **options),
        IMAGES,
        every(maybe(value=0.7, mode=["reflect", "circular"])),
    ),
    "attention": (
        lambda x, **options: F.scaled_dot_product_attention(x, x, x, **options),
        IMAGES,
        every(maybe(is_causal=True, attn_mask=drawn(6, 6)), maybe(scale=0.3)),
    ),
    "embedding": (
        lambda x, **options: F.embedding(torch.tensor([[0, 2], [1, 1]]), x, **options),
        Z,
        every(maybe(padding_idx=1), maybe(max_norm=0.5), maybe(scale_grad_by_freq=True)),
    ),
    "normalise": (lambda x, **options: F.normalize(x, **options), Z, every(maybe(p=1.0), maybe(dim=0), maybe(eps=0.5))),
    "clamp": (torch.clamp, Z, every([{"min": -0.1}, {"max": 0.2}, {"min": 0.2, "max": -0.1}, {"min": VALUES}])),
    "gelu": (F.gelu, Z, every(maybe(approximate="tanh"))),
    "addmm": (
        lambda x, **options: torch.addmm(VALUES, x, WEIGHT.diag(), **options),
        Z,
        every(maybe(beta=0.3), maybe(alpha=2)),
    ),
    "add": (lambda x, **options: torch.add(x, VALUES, **options), Z, every(maybe(alpha=2))),
    "div": (
        lambda x, **options: x.div(VALUES.abs() + 0.5, **options),
        Z,
        every(maybe(rounding_mode=["floor", "trunc"])),
    ),
    **{
        name: (
            lambda x, name=name, **options: getattr(torch, name)(x, **options),
            Z,
            every(maybe(dim=[0, 1]), maybe(keepdim=True), maybe(correction=0), maybe(dtype=torch.float64), maybe(p=1)),
        )
        for name in ("sum", "mean", "var", "std", "prod", "norm", "amax", "amin", "cumsum", "max", "logsumexp")
    },
}


def tensors(found: Any) -> list[Tensor]:
    parts = found if isinstance(found, tuple | list) else ()
    return [found] if isinstance(found, Tensor) else [tensor for part in parts for tensor in tensors(part)]


def with_gradient(function: Callable[..., Any], x: Tensor, options: Options) -> list[Tensor]:
    """What a function puts out, and the gradient of a sum of it, each number with a weight of its own."""
    x = x if isinstance(x, bf.Bounded) else x.detach().clone()
    made = tensors(function(x.requires_grad_(), **options))
    total = sum(
        (part * torch.arange(1.0, 1 + part.numel(), dtype=part.dtype).view(part.shape)).sum()
        for part in made
        if part.is_floating_point()
    )
    return [*made, *torch.autograd.grad(total, x)]  # type: ignore[arg-type]


def inside(value: Tensor, found: Tensor) -> bool:
    if not isinstance(found, bf.Bounded):
        return torch.equal(value, found)
    return value.shape == found.shape and value.dtype == found.dtype and bool(found.contains(value).all())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_every_option_is_honoured_or_refused(case: str) -> None:
    function, x, combinations = CASES[case]
    members = [x, *(x - RADIUS + 2 * RADIUS * drawn(*x.shape, seed=n, share=True) for n in range(8, 8 + MEMBERS))]
    for options in combinations:
        try:
            plain = [with_gradient(function, member, options) for member in members]
        except Exception:
            continue
        for radius, asked in ((0.0, plain[:1]), (RADIUS, plain)):
            try:
                found = with_gradient(function, bf.interval(x - radius, x + radius), options)
            except bf.BoundFlowError:
                continue
            for values in asked:
                assert len(values) == len(found) and all(map(inside, values, found)), (options, radius)


def test_what_pytorch_loses_on_the_way_is_known() -> None:
    """Functions in Python hand tensors of other kinds their arguments, of which one forgets one."""
    lost: dict[str, set[str]] = {}
    tree = ast.parse(Path(F.__file__).read_text())
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") == "handle_torch_function":
                handed = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
                names = {part.id for value in handed for part in ast.walk(value) if isinstance(part, ast.Name)}
                missing = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)} - names
                lost |= {function.name: missing} if missing else {}
    assert lost.keys() <= {"l1_loss"} and lost.get("l1_loss", set()) <= {"weight"}
    with pytest.raises(bf.UnsupportedOperator, match="weight"):
        F.l1_loss(bf.interval(Z, Z), VALUES, weight=EACH)
