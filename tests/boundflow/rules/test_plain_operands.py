"""Plain tensors that meet sets become sets of one point without a copy: no result may share their memory."""

from __future__ import annotations

import pytest
import torch
from sampling import SYMBOLS, Case

import boundflow as bf
from boundflow.sets.set import Set
from boundflow.tensor.rule_table import RULES, Rule

from .test_laws import LAWFUL, bounded_result, example

MIXED = [rule for rule in LAWFUL if rule.writes is None and not rule.view]


def held(results: list) -> list[torch.Tensor]:
    """Copies of everything that sets among the results hold."""
    found = []
    for result in results:
        if isinstance(result, bf.Bounded):
            found.append(result.set.bounds.clone())
            if result.affine:
                found += [part.clone() for part in (result.form.center, result.form.generators, result.form.radius)]
    return found


def with_plain(arguments: tuple, number: int) -> tuple[tuple, torch.Tensor | None]:
    """The same arguments, with one bounded operand as a plain tensor, if another one stays bounded."""
    flat = list(arguments[0]) if isinstance(arguments[0], list) else list(arguments)
    bounded = [i for i, argument in enumerate(flat) if isinstance(argument, bf.Bounded)]
    if number >= len(bounded) or len(bounded) < 2:
        return arguments, None
    plain = flat[bounded[number]].center.clone()
    flat[bounded[number]] = plain
    return ((flat, *arguments[1:]) if isinstance(arguments[0], list) else tuple(flat)), plain


@pytest.mark.parametrize("rule", MIXED, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@pytest.mark.parametrize("rows", [0, SYMBOLS], ids=["interval", "zonotope"])
def test_no_result_shares_the_memory_of_a_plain_operand(rule: Rule, rows: int) -> None:
    for number in range(4):
        case = Case(3, torch.float64, rows)
        arguments, plain = with_plain(example(rule, case, torch.float64), number)
        if plain is None:
            continue
        results = bounded_result(rule, arguments)
        before = held(results)
        plain.fill_(torch.nan)
        assert all(torch.equal(*pair) for pair in zip(before, held(results), strict=True))


def test_a_plain_tensor_that_is_copied_into_a_set_may_change() -> None:
    target, plain = bf.ball(torch.zeros(3), 0.1), torch.ones(3)
    target.copy_(plain)
    plain.add_(1.0)
    assert target.lower.tolist() == target.upper.tolist() == [1.0, 1.0, 1.0]


def test_a_plain_gradient_with_weight_decay_may_change() -> None:
    """A sum with a parameter remembers its terms; a plain one would be looked at again after it was written to."""
    parameter = bf.ball(torch.ones(3, dtype=torch.float64), 0.1).requires_grad_()
    with torch.no_grad():
        parameter.mul_(1.0)
        gradient = torch.ones(3, dtype=torch.float64)
        decayed = torch.add(gradient, parameter, alpha=0.5)
        gradient.zero_()
        parameter.add_(decayed, alpha=-0.1)
    assert bool(parameter.contains(torch.full((3,), 1.0 - 0.1 * 1.5, dtype=torch.float64)).all())


def test_a_convolution_of_plain_tensors_inside_a_rule_is_charged() -> None:
    """The gradient of the inputs is one of two plain tensors, which plain PyTorch may compute by another algorithm."""
    random = torch.Generator().manual_seed(0)
    weight, upstream = torch.randn(8, 8, 3, 3, generator=random), torch.randn(2, 8, 10, 10, generator=random)
    values = torch.randn(2, 8, 12, 12, generator=random)
    x, plain = bf.ball(values, 0.1).requires_grad_(), values.clone().requires_grad_()
    torch.conv2d(x, weight).backward(upstream)
    torch.conv2d(plain, weight).backward(upstream)
    assert isinstance(x.grad, bf.Bounded) and bool(x.grad.contains(plain.grad).all())
    exact = torch.nn.grad.conv2d_input(values.shape, weight.double(), upstream.double())
    low, high = x.grad.lower.double(), x.grad.upper.double()
    assert bool(((low <= exact) & (exact <= high)).all())


def test_operands_reach_rules_as_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floating-point tensors with an axis do; numbers, also as tensors without an axis, and indices do not."""
    seen: list[object] = []
    rule = RULES[torch.ops.aten.mul.Tensor]
    spy = Rule(rule.operator, lambda *operands: seen.extend(operands) or rule.apply(*operands), None)
    monkeypatch.setitem(RULES, rule.operator, spy)
    x = bf.ball(torch.ones(2), 0.1)
    for other in (torch.ones(2), torch.tensor(2.0), torch.tensor([1, 2])):
        torch.mul(x, other)
    kinds = [type(operand) for operand in seen]
    assert kinds == [Set, Set, Set, torch.Tensor, Set, torch.Tensor]
    first = seen[1]
    assert isinstance(first, Set) and first.exact and first.center.tolist() == [1.0, 1.0]
