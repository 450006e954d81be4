"""Every rule with its example, and how to run one: what the laws of rules share."""

from __future__ import annotations

from collections.abc import Callable

import torch

from boundflow.tensor.bounded import RULES, Rule

LAWFUL = sorted((r for r in RULES.values() if r.example is not None), key=lambda r: str(r.operator))


def wide(argument: object) -> object:
    """The same argument in float64."""
    if isinstance(argument, list | tuple):
        return type(argument)(wide(part) for part in argument)
    if isinstance(argument, torch.Tensor) and argument.dtype is torch.float32:
        return argument.double()
    return torch.float64 if argument is torch.float32 else argument


def example(rule: Rule, operand: Callable, dtype: torch.dtype) -> tuple:
    """Arguments for one overload: numbers where it wants numbers, its dtype where it wants one."""
    wanted = [argument for argument in rule.operator._schema.arguments if not argument.kwarg_only]
    fitted = []
    for argument, schema in zip(rule.example(operand), wanted, strict=False):
        if str(schema.type) == "number" and isinstance(argument, torch.Tensor):
            argument = 0.7
        if str(schema.type) == "Tensor" and isinstance(argument, float):
            argument = torch.tensor(argument, dtype=dtype)
        fitted.append(dtype if isinstance(argument, torch.dtype) else argument)
    return tuple(fitted)


def copied(argument: object) -> object:
    return argument.clone() if isinstance(argument, torch.Tensor) else argument


def outputs(result: object) -> list:
    return [part for part in (result if isinstance(result, list | tuple) else [result])]


def bounded_result(rule: Rule, arguments: tuple) -> list:
    """The operator on sets. Targets of in-place operators are copies."""
    if rule.writes == 0:
        arguments = (arguments[0].clone(), *arguments[1:])
    with torch.no_grad():
        return outputs(rule.operator(*arguments))
