"""The table of rules: what each ATen operator does to sets, and what replaces a PyTorch function.

``RULES`` is asked below autograd, by operator; ``FUNCTIONS`` above it, for functions that autograd would take apart
into pieces that are sound but loose. A rule is registered by a decorator, and its in-place partner with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload

from . import layout

aten = torch.ops.aten

SUMS = frozenset(("addmm", "baddbmm", "index_put", "scatter_add"))  # which may be written to one of their operands
Example = Callable[..., tuple[Any, ...]]  # see `rule`
Registered = TypeVar("Registered", bound=Callable[..., object])


@dataclass(frozen=True)
class Rule:
    """What an operator does to sets, and an example that the law tests draw their operands from."""

    operator: OpOverload
    apply: Callable[..., Any]
    example: Example | None
    writes: int | str | None = None  # the argument it stores its result in
    view: bool = False
    layout: layout.Layout = layout.by_operands
    of_tensors: bool = False  # asks for the tensors themselves, whose layout sets do not have
    apart: bool = False  # may not read what it writes: PyTorch would read numbers that it has overwritten


class Rules(dict[OpOverload, Rule]):
    """The rule of every operator, also by its identity: PyTorch has one object for each, and is slow to hash it."""

    def __init__(self) -> None:
        super().__init__()
        self.by_identity: dict[int, Rule] = {}

    def __setitem__(self, operator: OpOverload, rule: Rule) -> None:
        super().__setitem__(operator, rule)
        self.by_identity[id(operator)] = rule

    def __delitem__(self, operator: OpOverload) -> None:
        super().__delitem__(operator)
        del self.by_identity[id(operator)]


RULES = Rules()
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}


def rule(
    *operators: OpOverload, example: Example | None, in_place: bool = True, of_tensors: bool = False
) -> Callable[[Registered], Registered]:
    """Register a rule. Its in-place and ``out=`` partners follow from it, unless the result is of another kind.

    ``example`` takes a factory ``t(*shape, low=-1, high=1)`` of operands and returns arguments of the operator.
    """

    def register(apply: Registered) -> Registered:
        for operator in operators:
            laid_out = layout.layout_of(operator)
            RULES[operator] = Rule(operator, apply, example, None, operator.is_view, laid_out, of_tensors)
            name, overload = operator._schema.name.removeprefix("aten::"), operator._overloadname
            partners = getattr(aten, name + "_", None) if in_place and not operator.is_view else None
            if partners is not None and overload in partners.overloads():
                partner = getattr(partners, overload)
                RULES[partner] = Rule(partner, apply, example, writes=0, apart=name in SUMS)
            packet = operator._overloadpacket
            if in_place and overload == "default" and "out" in packet.overloads():  # type: ignore[no-untyped-call]
                apart = torch.Tag.pointwise not in operator.tags
                RULES[packet.out] = Rule(packet.out, apply, None, writes="out", apart=apart)
        return apply

    return register


def replaces(*functions: Callable[..., Any]) -> Callable[[Registered], Registered]:
    """Register what a PyTorch function does when an argument is bounded, before autograd decomposes it."""

    def register(replacement: Registered) -> Registered:
        FUNCTIONS.update(dict.fromkeys(functions, replacement))
        return replacement

    return register
