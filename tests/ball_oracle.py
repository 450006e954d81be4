"""Operations and whole trainings on sets, judged by ball arithmetic at volume.

    PYTHONPATH=. .venv/bin/python tests/ball_oracle.py --operations 1000000 --trainings 20

Every operation runs on a batch of random sets (points, a few units wide, wide; of sizes from 1e-6 to 1e3), as intervals
and as zonotopes. For each element of the result a member of the operands is drawn, the operation is made on it with
python-flint at 128 bits or more, and the ball that comes out must lie between the bounds. On points, how far the bounds
are apart is all rounding: that is told relative to the value, median and worst. Trainings are those of
`fullcert verify --balls`: small networks on poisoned data, whose parameters in real numbers must lie inside. Exits with
1 if anything is outside.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from flint import arb, ctx
from torch import Tensor

import boundflow as bf
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.threats import Linf
from fullcert.evidence import ball_training, poisoning, retraining
from fullcert.experiment.options import resolve
from fullcert.experiment.training import Recipe

Balls = list[Any]
LINES = 600  # of a batch
KINDS = ("point", "narrow", "wide", "zonotope")


class Operation(NamedTuple):
    """An operation on lines of numbers (lines, width) each, and the same on the balls of one line."""

    name: str
    run: Callable[..., Any]
    exact: Callable[..., Balls]
    widths: tuple[int, ...]  # of the operands
    low: float = -1e3
    high: float = 1e3


def logistic(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def softplus(x: Any) -> Any:
    return x.exp().log1p() if x < 50 else x + (-x).exp().log1p()


def each(function: Callable[[Any], Any]) -> Callable[[Balls], Balls]:
    return lambda line: [function(x) for x in line]


def pairs(function: Callable[[Any, Any], Any]) -> Callable[[Balls, Balls], Balls]:
    return lambda first, second: [function(x, y) for x, y in zip(first, second, strict=True)]


def shares(line: Balls) -> Balls:
    largest = max(line, key=lambda x: float(x))
    powers = [(x - largest).exp() for x in line]
    total = sum(powers, arb(0))
    return [power / total for power in powers]


def log_shares(line: Balls) -> Balls:
    return [share.log() for share in shares(line)]


def product(first: Balls, second: Balls) -> Balls:
    """A matrix of 2 rows and 6 columns times one of 6 rows and 2 columns."""
    return [sum((first[6 * i + k] * second[2 * k + j] for k in range(6)), arb(0)) for i in range(2) for j in range(2)]


UNARY: dict[str, tuple[Any, Any, float, float]] = {
    "tanh": (torch.tanh, lambda x: x.tanh(), -1e3, 1e3),
    "sigmoid": (torch.sigmoid, logistic, -1e3, 1e3),
    "relu": (torch.relu, lambda x: x if x > 0 else arb(0), -1e3, 1e3),
    "exp": (torch.exp, lambda x: x.exp(), -60, 60),
    "expm1": (torch.expm1, lambda x: x.expm1(), -60, 60),
    "log": (torch.log, lambda x: x.log(), 1e-6, 1e3),
    "log1p": (torch.log1p, lambda x: x.log1p(), -0.6, 1e3),
    "sqrt": (torch.sqrt, lambda x: x.sqrt(), 1e-6, 1e3),
    "rsqrt": (torch.rsqrt, lambda x: x.rsqrt(), 1e-6, 1e3),
    "reciprocal": (torch.reciprocal, lambda x: 1 / x, 1e-6, 1e3),
    "abs": (torch.abs, abs, -1e3, 1e3),
    "square": (lambda x: x * x, lambda x: x * x, -1e3, 1e3),
    "cube": (lambda x: x**3, lambda x: x**3, -1e3, 1e3),
    "silu": (F.silu, lambda x: x * logistic(x), -80, 1e3),
    "gelu": (F.gelu, lambda x: x * (-x / arb(2).sqrt()).erfc() / 2, -30, 1e3),
    "softplus": (F.softplus, softplus, -80, 1e3),
    "elu": (F.elu, lambda x: x if x > 0 else x.expm1(), -80, 1e3),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.1), lambda x: x if x > 0 else x * arb(0.1), -1e3, 1e3),
    "scaled": (lambda x: x * 0.1, lambda x: x * arb(0.1), -1e3, 1e3),
    "divided": (lambda x: x / 3.0, lambda x: x / 3, -1e3, 1e3),
}
SCALES = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def losses(kind: str) -> tuple[Any, Any]:
    if kind == "bce":
        run = lambda z, y: F.binary_cross_entropy_with_logits(z, y, reduction="none")  # noqa: E731
        return run, pairs(lambda z, y: softplus(z) - y * z)
    if kind == "mse":
        return lambda z, y: F.mse_loss(z, y, reduction="none"), pairs(lambda z, y: (z - y) ** 2)
    run = lambda z: F.cross_entropy(z, torch.zeros(len(z), dtype=torch.long), reduction="none").unsqueeze(1)  # noqa: E731
    return run, lambda line: [-shares(line)[0].log()]


def operations() -> list[Operation]:
    made = [Operation(name, f, each(g), (4,), low, high) for name, (f, g, low, high) in UNARY.items()]
    made += [
        Operation("add", torch.add, pairs(lambda x, y: x + y), (4, 4)),
        Operation("sub", torch.sub, pairs(lambda x, y: x - y), (4, 4)),
        Operation("mul", torch.mul, pairs(lambda x, y: x * y), (4, 4)),
        Operation("div", torch.div, pairs(lambda x, y: x / y), (4, 4), 0.01, 1e3),
        Operation("sum", lambda x: x.sum(1, keepdim=True), lambda x: [sum(x, arb(0))], (9,)),
        Operation("mean", lambda x: x.mean(1, keepdim=True), lambda x: [sum(x, arb(0)) / len(x)], (9,)),
        Operation("matrix product", _matrices, product, (12, 12)),
        Operation("softmax", lambda x: torch.softmax(x, 1), shares, (5,), -30, 30),
        Operation(
            "log softmax", lambda x: torch.log_softmax(x, 1), lambda x: [p.log() for p in shares(x)], (5,), -30, 30
        ),
        Operation("cross entropy", *losses("ce"), (5,), -30, 30),
        Operation("squared error", *losses("mse"), (4, 4)),
        Operation("binary loss", *losses("bce"), (4, 4), 0.0, 30),
    ]
    return made


def _matrices(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a.reshape(-1, 2, 6), b.reshape(-1, 6, 2)).reshape(-1, 4)


def operand(
    operation: Operation, width: int, kind: str, dtype: torch.dtype, random: np.random.Generator, space: bf.Symbols
) -> tuple[Tensor, Tensor]:
    """A set of lines, and a member of it."""
    shape = (LINES, width)
    sizes = 10.0 ** random.uniform(-6, np.log10(operation.high), size=shape)
    signs = random.choice([-1.0, 1.0], size=shape) if operation.low < 0 else 1.0
    center = torch.tensor(np.clip(sizes * signs, operation.low, operation.high), dtype=dtype)
    if kind == "point":
        return bf.ball(center, 0.0), center
    share = 2.0 ** random.uniform(-22, -18, size=shape) if kind == "narrow" else random.uniform(0, 0.4, size=shape)
    radius = torch.tensor(share * np.abs(center.double().numpy()), dtype=dtype)
    low, high = center - radius, center + radius
    made = bf.interval(low, high)
    if kind == "zonotope":  # one symbol for each line and one for all
        rows = torch.zeros(2, *shape, dtype=dtype)
        rows[0], rows[1] = radius * 0.25, radius * 0.25 * torch.tensor(random.choice([-1, 1], size=shape))
        form = Form(center, rows, radius * 0.5 * (1 + 8 * SCALES[dtype]), space.fresh(2))
        made = bf.Bounded(Set(torch.stack((low, high)), form, space))
    ends = torch.tensor(random.integers(0, 4, size=shape))
    inner = center + (torch.tensor(random.uniform(-0.9, 0.9, size=shape), dtype=dtype) * radius * 0.5)
    member = torch.where(ends == 0, low, torch.where(ends == 1, high, inner))
    if kind == "zonotope":  # within the radius, with all symbols at 0
        member = torch.minimum(torch.maximum(member, center - radius * 0.4), center + radius * 0.4)
    return made, member


def judged(
    operation: Operation, kind: str, dtype: torch.dtype, random: np.random.Generator
) -> Iterator[tuple[bool, float | None]]:
    """For every element of one batch: whether it is inside, and on points how far the bounds are off, in relation."""
    space = bf.Symbols(Linf(1.0))
    given = [operand(operation, width, kind, dtype, random, space) for width in operation.widths]
    with torch.no_grad():
        result = operation.run(*(made for made, _ in given))
    lower, upper = (side.double().tolist() for side in (result.lower, result.upper))
    members = [member.double().tolist() for _, member in given]
    for line, (low, high) in enumerate(zip(lower, upper, strict=True)):
        balls = operation.exact(*([arb(x) for x in member[line]] for member in members))
        if not all(least <= ball <= most for ball, least, most in zip(balls, low, high, strict=True)):
            with ctx.workprec(4096):  # a ball around a bound: tanh(1000) is 1 to 868 digits
                balls = operation.exact(*([arb(x) for x in member[line]] for member in members))
        for ball, least, most in zip(balls, low, high, strict=True):
            inside = bool(ball >= least) and bool(ball <= most)
            slack = None
            if kind == "point" and (value := abs(float(ball))) > 1e-30:
                slack = (most - least) / 2 / value
            yield inside, slack


def operated(count: int, seed: int) -> int:
    """So many elements of all operations; prints a table, gives the number outside."""
    random, table, checked, outside = np.random.default_rng(seed), operations(), 0, 0
    slacks: dict[tuple[str, torch.dtype], list[float]] = {}
    found: dict[str, list[int]] = {operation.name: [0, 0] for operation in table}
    begin = time.perf_counter()
    while checked < count:
        for operation in table:
            for kind in KINDS:
                for dtype in SCALES:
                    for inside, slack in judged(operation, kind, dtype, random):
                        checked += 1
                        found[operation.name][0] += 1
                        found[operation.name][1] += not inside
                        if slack is not None:
                            slacks.setdefault((operation.name, dtype), []).append(slack)
        print(f"{checked:9d} operations, {time.perf_counter() - begin:5.0f} s", flush=True)
    print(f"\n{'operation':16s}{'checked':>9s}{'outside':>9s}   what rounding adds, in units u: float32, float64")
    for operation in table:
        told = []
        for dtype, unit in SCALES.items():
            values = np.array(slacks[operation.name, dtype]) / unit
            told.append(f"median {np.median(values):7.1f}  worst {values.max():9.3g}")
        made, wrong = found[operation.name]
        outside += wrong
        print(f"{operation.name:16s}{made:9d}{wrong:9d}   {'   '.join(told)}")
    for dtype, unit in SCALES.items():
        every = np.concatenate([np.array(v) for (_, found_dtype), v in slacks.items() if found_dtype is dtype])
        print(f"{dtype}: relative slack of all, median {np.median(every):.2g} ({np.median(every) / unit:.1f} u)")
    print(f"{checked} operations in {time.perf_counter() - begin:.0f} s: {outside} outside")
    return outside


TRAININGS: list[dict[str, Any]] = [
    {"loss": loss, "activation": activation, "dtype": dtype, "domain": domain, **threat, **more}
    for loss, activation, more in (
        ("bce", "tanh", {"flip_labels": 1}),
        ("ce", "sigmoid", {"flip_labels": 2}),
        ("mse", "relu", {}),
        ("bce", "relu", {"remove": 1}),
        ("ce", "tanh", {}),
    )
    for dtype in ("float32", "float64")
    for domain, threat in (("interval", {"epsilon": 1e-4}), ("zonotope", {"epsilon": 0.01}))
]


def trained(count: int, seed: int) -> int:
    """So many complete trainings; gives the number of parameters outside."""
    outside = parameters = 0
    begin = time.perf_counter()
    for number in range(count):
        chosen = TRAININGS[number % len(TRAININGS)]
        fixed = {"hidden": "3", "steps": 4, "batch_size": 20, "momentum": 0.5, "lr_decay": 0.1, "weight_decay": 0.01}
        recipe = Recipe(resolve({**chosen, **fixed, "frozen": 0, "seed": seed + number, "test_epsilon": 0.0}, {}))
        kept = recipe.certify([])
        assert kept.model is not None
        x, y = retraining.observed(recipe)
        random = np.random.default_rng([seed, number])
        data = poisoning.member(recipe.threats.training, x, y, recipe.data.classes, random)
        wrong = 0
        for name, balls in ball_training.trained(recipe, data).items():
            bounds: Any = kept.model.get_parameter(name)
            wrong += sum(ball_training.outside(balls, bounds.lower, bounds.upper))
            parameters += len(balls)
        outside += wrong
        print(f"training {number + 1:3d}: {wrong} outside  {chosen}", flush=True)
    seconds = time.perf_counter() - begin
    print(f"{count} trainings in {seconds:.0f} s: {parameters} parameters in real numbers, {outside} outside")
    return outside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--trainings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    ctx.prec = 128
    outside = operated(given.operations, given.seed) if given.operations else 0
    outside += trained(given.trainings, given.seed) if given.trainings else 0
    raise SystemExit(1 if outside else 0)


if __name__ == "__main__":
    main()
