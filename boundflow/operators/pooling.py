"""Average pooling: sums with nonnegative coefficients, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ..rules.linear import summed
from ..sets.sample_axis import SampleAxis
from ..sets.set import Set
from ..tensor.rule_table import aten, rule

Sizes = int | Sequence[int]  # one for each axis, or one for both


def _planes(f: Callable[[Tensor], Tensor], keep: int) -> Callable[[Tensor, int], Tensor]:
    """``f`` on a batch of images, with leading axes folded into the batch; ``keep`` trailing axes are its own."""

    def folded(tensor: Tensor, lead: int) -> Tensor:
        outer = tensor.shape[:-keep]
        result = f(tensor.reshape(-1, *tensor.shape[-keep:]).unsqueeze(0))
        return result.reshape(*outer, *result.shape[-keep:])

    return folded


def _image_axis(x: Set | Tensor) -> SampleAxis | None:
    """The sample axis, if it is not one of the two that are pooled."""
    along = x.along if isinstance(x, Set) else None
    return along if along is not None and along.position < -2 else None


def _area(kernel: Sizes) -> int:
    values = [kernel] if isinstance(kernel, int) else list(kernel)
    return values[0] * values[-1]


@rule(aten.avg_pool2d.default, example=lambda t: (t(1, 2, 5, 4), [2, 3], [2, 1], [1, 0]))
def avg_pool2d(x: Set, kernel: Sizes, *options: object) -> Set:
    f = _planes(lambda image: aten.avg_pool2d.default(image, kernel, *options), 2)
    return summed("avg_pool2d", x, f, _area(kernel) + 2, along=_image_axis(x))


@rule(
    aten.avg_pool2d_backward.default,
    example=lambda t: (t(1, 2, 3, 2), t(1, 2, 5, 4), [2, 3], [2, 1], [1, 0], False, True, None),
)
def avg_pool2d_backward(grad: Set | Tensor, x: Set | Tensor, kernel: Sizes, *options: object) -> Set:
    height, width = x.shape[-2:]

    def f(image: Tensor) -> Tensor:
        like = image.new_empty(*image.shape[:2], height, width)
        pooled: Tensor = aten.avg_pool2d_backward.default(image, like, kernel, *options)
        return pooled

    along, terms = _image_axis(grad), _area(kernel) + 2
    return summed("avg_pool2d_backward", grad, _planes(f, 2), terms, along=along, divides=True)


@rule(aten._adaptive_avg_pool2d.default, example=lambda t: (t(1, 2, 5, 4), [3, 2]))
def adaptive_avg_pool2d(x: Set, size: Sizes) -> Set:
    f = _planes(lambda image: aten._adaptive_avg_pool2d.default(image, size), 2)
    return summed("adaptive_avg_pool2d", x, f, x.shape[-1] * x.shape[-2] + 2, along=_image_axis(x))


@rule(aten._adaptive_avg_pool2d_backward.default, example=lambda t: (t(1, 2, 3, 2), t(1, 2, 5, 4)))
def adaptive_avg_pool2d_backward(grad: Set | Tensor, x: Set | Tensor) -> Set:
    height, width = x.shape[-2:]

    def f(image: Tensor) -> Tensor:
        like = image.new_empty(*image.shape[:2], height, width)
        pooled: Tensor = aten._adaptive_avg_pool2d_backward.default(image, like)
        return pooled

    along, terms = _image_axis(grad), height * width + 2
    return summed("adaptive_avg_pool2d_backward", grad, _planes(f, 2), terms, along=along, divides=True)
