"""What a step computes from its data alone is computed once, and the rest is the same function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from boundflow.fast.steps import graph_compiler
from boundflow.fast.steps.fixed_parts import split_off

CONSTANT = torch.tensor([-1.0, 1.0])


def both_ways(state: Tensor, x: Tensor, y: Tensor, other: Tensor) -> tuple[Tensor, ...]:
    """Data alone, state alone, and both."""
    center = (x + y) * 0.5
    return center.abs() @ other, center.sum() * state, other * CONSTANT[0], state


def written_to_later(state: Tensor, x: Tensor, y: Tensor, other: Tensor) -> tuple[Tensor, ...]:
    """Memory that was made of data is written to: by data after state has read it, and by state."""
    doubled = x * 2
    before = doubled[0].sum() * state
    doubled.mul_(3)
    tripled = y + 1
    tripled[:1].add_(state)
    return before, doubled.sum() * state, tripled @ other


def nothing_in_common(state: Tensor, x: Tensor, y: Tensor, other: Tensor) -> tuple[Tensor, ...]:
    """The result does not depend on one of the data."""
    return (x.abs().sum() + state, other.clone())


@pytest.mark.parametrize("function", [both_ways, written_to_later, nothing_in_common])
def test_the_rest_is_the_same_function(function: Any) -> None:
    x, y = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    given = [torch.ones(3), x, y, torch.ones(3, 2)]
    rest, parts = split_off(make_fx(function)(*given), given, slice(1, 3))
    kept = [part.clone() for part in parts]
    assert len([node for node in rest.graph.nodes if node.op == "placeholder"]) == 2 + len(parts)
    for scale in (1.0, 3.0, 1.0):
        state, other = torch.full((3,), scale), torch.full((3, 2), scale + 1)
        expected = function(state.clone(), x.clone(), y.clone(), other.clone())
        for one, value in zip(rest(state, *parts, other), expected, strict=True):
            assert torch.equal(one, value)
        assert all(map(torch.equal, parts, kept))  # nobody writes to them


def test_what_depends_on_data_alone_is_not_in_the_rest() -> None:
    given = [torch.ones(3), torch.ones(4, 3), torch.zeros(4, 3), torch.ones(3, 2)]
    rest, parts = split_off(make_fx(both_ways)(*given), given, slice(1, 3))
    names = {str(node.target) for node in rest.graph.nodes}
    assert "aten.abs.default" not in names and "aten.sum.default" not in names
    assert [tuple(part.shape) for part in parts] == [(4, 3), ()]


def test_truth_values_are_numbers_before_they_are_stacked() -> None:
    def gate(x: Tensor) -> Tensor:
        return torch.stack((x > 0, ~(x <= -1))).to(x.dtype) * x

    x = torch.linspace(-3, 3, 13)
    graph = make_fx(gate)(x)
    graph_compiler._truth_as_numbers(graph)
    (stacked,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.stack.default)
    assert all(part.target is torch.ops.aten._to_copy.default for part in stacked.args[0])
    assert torch.equal(graph(x), gate(x))


@pytest.mark.parametrize(("shape", "turned"), [((100, 80, 10), True), ((100, 8, 10), False), ((10, 80, 100), False)])
def test_long_products_with_few_columns_are_written_the_other_way_round(
    shape: tuple[int, int, int], turned: bool
) -> None:
    lines, inner, columns = shape
    numbers = torch.Generator().manual_seed(0)
    given = [torch.randint(-8, 9, size, generator=numbers).float() for size in ((lines, inner), (inner, columns))]
    graph = make_fx(lambda a, b: ((a @ b) * 2).view(-1))(*given)
    graph_compiler._long_lines(graph, given)
    (product,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    assert (product.args[0].target is torch.ops.aten.t.default) is turned
    assert torch.equal(graph(*given), (given[0] @ given[1] * 2).view(-1))  # small integers: every order is exact
