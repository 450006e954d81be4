"""What a step computes from its data alone, computed once.

    step(data, state)  =  rest(parts(data), state)

A step on all samples reads the same data every time: their middles, radii and moduli, which for wide inputs and few
units cost as much as the products. The graph of the step (`traced_step.py`) is cut where something else is mixed in.
Both parts have the operations that the graph had, in an order that their arguments allow, so every number is charged
for as before. In-place operators are written out of place first: where memory is changed, the order of reading matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node


def split_off(graph: GraphModule, given: Sequence[Tensor], data: slice) -> tuple[GraphModule, list[Tensor]]:
    """The rest of a step, and what it takes in place of the ``data`` among its inputs."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a while to import

    pure = make_fx(torch.func.functionalize(graph))(*given)
    inputs = [node for node in pure.graph.nodes if node.op == "placeholder"]
    fixed = _depend_on(pure.graph, inputs[data])
    cut = [node for node in pure.graph.nodes if node in fixed and any(user not in fixed for user in node.users)]
    values = _computed(pure, cut, given)
    return _rest(pure, inputs, data, cut), values


def _depend_on(graph: Graph, data: Sequence[Node]) -> set[Node]:
    """Nodes that depend on the data and on constants, and on nothing else."""
    fixed: set[Node] = set(data)
    for node in graph.nodes:
        arguments = [argument for argument in node.all_input_nodes if argument.op != "get_attr"]
        if node.op == "call_function" and arguments and fixed.issuperset(arguments):
            fixed.add(node)
    return fixed


def _computed(graph: GraphModule, cut: Sequence[Node], given: Sequence[Tensor]) -> list[Tensor]:
    """The values of these nodes."""
    part = Graph()
    copies: dict[Node, Node] = {}
    for node in graph.graph.nodes:
        if node.op != "output":
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output([copies[node] for node in cut])
    part.eliminate_dead_code()
    with torch.no_grad():
        values: list[Tensor] = Interpreter(GraphModule(graph, part)).run(*given)
        return [value.clone() for value in values]  # in memory of their own, so that all copies have the same strides


def _rest(graph: GraphModule, inputs: Sequence[Node], data: slice, cut: Sequence[Node]) -> GraphModule:
    """The graph with the nodes of the cut as inputs."""
    rest = Graph()
    copies: dict[Node, Node] = {}
    for node in [*inputs[: data.start], *cut, *inputs[data.stop :]]:
        copies[node] = rest.placeholder(node.name)
    for node in graph.graph.nodes:
        if node.op != "placeholder" and node not in copies and copies.keys() >= set(node.all_input_nodes):
            copies[node] = rest.node_copy(node, copies.__getitem__)
    rest.eliminate_dead_code()
    return GraphModule(graph, rest)
