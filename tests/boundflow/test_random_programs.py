"""Randomly drawn programs on square inputs, where the axis of the samples is easily taken for another one.

A program is a few operators, each of which takes what the input or earlier ones made, (n, n) again. At most k samples
are moved: every tensor of a poisoned run lies in its set, in its clean state wherever its own sample was left alone,
and so does what becomes of the last one when it is summed or multiplied. The number of a program fixes its draw.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import boundflow as bf
from boundflow.threats import AtMost, Linf

BLOCKS, EACH = 8, 2000 if os.environ.get("BOUNDFLOW_THOROUGH") else 400
SPACES: dict[str, Callable[[AtMost], bf.Symbols | None]] = {
    "no space": lambda threat: None,
    "without rows": lambda threat: bf.Symbols(threat, tracks=False),
    "rows": bf.Symbols,
}
Program = Callable[[Tensor, Tensor], Tensor]
OfTwo = Callable[[Tensor, Tensor, Tensor], Tensor]


def overwritten(x: Tensor, r: Tensor) -> Tensor:
    x = x.clone()
    x[0] = x[1]
    return x


# of a tensor x, and of constants r of the same shape
OF_ONE: list[Program] = [
    lambda x, r: x.T,
    lambda x, r: torch.relu(x),
    lambda x, r: torch.tanh(x),
    lambda x, r: F.leaky_relu(x, 0.2),
    lambda x, r: x.abs(),
    lambda x, r: x * x,
    lambda x, r: x.clamp(-0.5, 0.5),
    lambda x, r: x @ r,
    lambda x, r: r @ x,
    lambda x, r: F.linear(x, r, r[0]),
    lambda x, r: 0.3 * (x @ x.T),
    lambda x, r: x.flip(0),
    lambda x, r: x.roll(1, 0),
    lambda x, r: x[[0] * len(x)],
    lambda x, r: x[torch.arange(len(x) - 1, -1, -1)],
    lambda x, r: x.gather(0, (10 * r.abs()).long() % len(x)),
    lambda x, r: x.gather(1, (10 * r.abs()).long() % len(x)),
    lambda x, r: 0.5 * x.cumsum(0),
    lambda x, r: 0.5 * x.cumsum(1),
    lambda x, r: torch.softmax(x, 0),
    lambda x, r: torch.softmax(x, 1),
    lambda x, r: torch.log_softmax(x, 0),
    lambda x, r: F.layer_norm(x, x.shape[-1:]),
    lambda x, r: F.layer_norm(x.T, x.shape[:1]).T,
    lambda x, r: torch.where(r > 0, x, 0.1),
    lambda x, r: torch.where(x > 0.3, x, -0.5 * x),
    lambda x, r: x.masked_fill(r[:1] > 0, 0.3),
    lambda x, r: x.masked_fill(r[:, :1] > 0, 0.3),
    lambda x, r: x[:1].masked_fill(r > 0, 0.3),
    lambda x, r: x - x.mean(0),
    lambda x, r: x - x.mean(1, keepdim=True),
    lambda x, r: x - x.amax(0),
    lambda x, r: x - x.amax(1, keepdim=True),
    lambda x, r: x[:1].expand(len(x), -1),
    lambda x, r: x[:, :1].expand(-1, len(x)),
    lambda x, r: x.diagonal().expand(len(x), -1),
    lambda x, r: torch.cat((x[1:], x[:1])),
    lambda x, r: torch.cat((x[:, 1:], x[:, :1]), 1),
    lambda x, r: torch.cat(x.split(2, 0)[::-1], 0),
    lambda x, r: torch.stack(x.unbind(0), 1),
    lambda x, r: torch.stack((x, x.T)).mean(0),
    lambda x, r: F.pad(x, (1, -1)),
    lambda x, r: F.pad(x, (0, 0, 1, -1)),
    lambda x, r: x * torch.tril(torch.ones_like(r)),
    lambda x, r: F.conv1d(x[None], r[:, :, None])[0],
    lambda x, r: F.avg_pool1d(x[:, None], 3, 1, 1)[:, 0],
    lambda x, r: F.max_pool2d(x[None, None], 3, 1, 1)[0, 0],
    lambda x, r: x / (1 + x.norm(dim=0, keepdim=True)),
    lambda x, r: x / (1 + x.norm(dim=1, keepdim=True)),
    overwritten,
]
# and of two tensors
OF_TWO: list[OfTwo] = [
    lambda x, y, r: x + y,
    lambda x, y, r: x * y,
    lambda x, y, r: x + y[:1],
    lambda x, y, r: x + y[:, :1],
    lambda x, y, r: x * y[0],
    lambda x, y, r: x * y[:, :1],
    lambda x, y, r: x / (2 + y.abs()),
    lambda x, y, r: torch.lerp(x, y, 0.3),
    lambda x, y, r: torch.maximum(x, y),
    lambda x, y, r: torch.where(r > 0, x, y),
    lambda x, y, r: torch.where(x > 0, y, x),
    lambda x, y, r: 0.3 * (x @ y),
    lambda x, y, r: 0.3 * (x @ y.T),
    lambda x, y, r: torch.addmm(x, y, r),
    lambda x, y, r: torch.addmm(x[0], y, r),
    lambda x, y, r: 0.3 * torch.addmm(r, x, y),
    lambda x, y, r: F.linear(x, r, y[0]),
    lambda x, y, r: 0.3 * F.linear(x, y, r[0]),
    lambda x, y, r: 0.3 * torch.bmm(x[None], y[None])[0],
    lambda x, y, r: torch.baddbmm(x, y[None].expand(len(x), -1, -1), r[None].expand(len(x), -1, -1))[0],
    lambda x, y, r: F.conv1d(x[:, None], r[:, None, :1], y[0])[:, :, 0],
    lambda x, y, r: torch.cat((x[:, :2], y[:, 2:]), 1),
    lambda x, y, r: torch.cat((x[:2], y[2:]), 0),
    lambda x, y, r: x.index_put((torch.tensor([0, 1]),), y[1:3]),
    lambda x, y, r: x.index_put((torch.tensor([0, 0]),), y[1:3], accumulate=True),
    lambda x, y, r: (x[:, None] - y[None]).mean(2),
    lambda x, y, r: 0.3 * (x[:, None] * y[None]).sum(0),
    lambda x, y, r: torch.softmax(x @ y.T, 1) @ x,
]
# what becomes of the last tensor
ENDS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.sum(0),
    lambda x: x.sum(1),
    lambda x: x.mean(),
    lambda x: x.T @ x,
    lambda x: torch.ones(1, len(x), dtype=x.dtype) @ x,
    lambda x: x.reshape(-1).sum(),
]


class Drawn(NamedTuple):
    """A program, its input, and what may happen to it."""

    x: Tensor
    operators: list[Callable[[list[Tensor]], Tensor]]
    end: Callable[[Tensor], Tensor]
    threat: AtMost
    poisoned: list[tuple[set[int], Tensor]]  # which samples were moved, and the input

    def made(self, x: Tensor) -> list[Tensor]:
        found = [x]
        for operator in self.operators:
            found.append(operator(found))
        return [*found, self.end(found[-1])]


def drawn(number: int) -> Drawn | None:
    """None if it is no program: a tensor of one sample has no second row."""
    random, constants = np.random.default_rng(number), torch.Generator().manual_seed(number)
    n, epsilon, k = int(random.choice([1, 3, 4, 4])), float(random.choice([0.02, 0.3])), int(random.choice([1, 1, 2]))

    def square() -> Tensor:
        return torch.randn(n, n, dtype=torch.float64, generator=constants)

    operators = []
    for count in range(int(random.integers(1, 5))):
        first, second = (int(place) for place in random.integers(0, count + 1, 2))
        of_one, of_two, r = random.choice(np.array(OF_ONE)), random.choice(np.array(OF_TWO)), square()
        if random.random() < 0.5:
            operators.append(lambda found, f=of_one, i=first, r=r: f(found[i], r))
        else:
            operators.append(lambda found, f=of_two, i=first, j=second, r=r: f(found[i], found[j], r))
    x, poisoned = square(), []
    for _ in range(8):
        moved = random.choice(n, min(k, n), replace=False)
        poisoned.append((set(moved.tolist()), x.clone()))
        poisoned[-1][1][moved] += epsilon * torch.sign(square()[: len(moved)])
    program = Drawn(x, operators, random.choice(np.array(ENDS)), AtMost(k, Linf(epsilon)), poisoned)
    try:
        program.made(x)
    except (IndexError, RuntimeError):
        return None
    return program


def clean_state_holds(made: bf.Bounded, plain: Tensor, moved: set[int]) -> bool:
    """Wherever the own sample of a position was left alone."""
    clean, along = made.set.clean, made.set.along
    if clean is None or along is None:
        return True
    assert plain.shape[along.position] == along.samples.count
    shape = [1] * plain.dim()
    shape[along.position] = -1
    alone = torch.tensor([int(sample) not in moved for sample in along.samples.numbers]).view(shape)
    inside = (clean.bounds[0] <= plain) & (plain <= clean.bounds[1])
    return bool((inside | ~alone).all())


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_poisoned_run_of_a_program_lies_inside(block: int, space: Callable[[AtMost], bf.Symbols | None]) -> None:
    checked = 0
    for number in range(EACH * block, EACH * (block + 1)):
        program = drawn(number)
        if program is None:
            continue
        size = len(program.x)
        lifted = program.threat.lift(
            space(program.threat), program.x, torch.zeros(size, dtype=torch.long), torch.arange(size)
        )
        made = program.made(lifted.inputs)
        for moved, x in program.poisoned:
            for place, (found, plain) in enumerate(zip(made, program.made(x), strict=True)):
                if not isinstance(found, bf.Bounded):
                    continue
                assert bool(found.contains(plain).all()), f"program {number}, tensor {place}"
                assert clean_state_holds(found, plain, moved), f"program {number}, tensor {place}: clean state"
                checked += 1
    assert checked > EACH
