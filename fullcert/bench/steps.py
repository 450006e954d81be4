"""One step on intervals or zonotopes beside an eager step of torch.optim.SGD on the same network and batch.

The learning rate is so small that nothing moves: the time of a step does not depend on its numbers, and the plain
parameters stay inside the sets while the steps of one kind are timed alone.
"""

import itertools
import time
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.fast.steps.compiled_steps import FIRST
from boundflow.training.certified_training import _Run
from boundflow.training.checked_inputs import Prepared
from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import ROUNDS, Work, peak, seconds, taking_turns
from fullcert.system.startup import use_threads_for

EPSILON, RATE = 1e-6, 1e-12


def network(widths: tuple[int, ...]) -> nn.Sequential:
    """A ReLU network of these widths."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inward, outward in itertools.pairwise(widths):
        layers += [nn.Linear(inward, outward), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batch_of(widths: tuple[int, ...], size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random inputs, and labels as the loss of these outputs takes them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(size, widths[0], generator=generator)
    y = torch.randint(0, max(2, widths[-1]), (size,), generator=generator)
    return x.to(device), (y if widths[-1] > 1 else y.float().unsqueeze(1)).to(device)


def use_threads_of(recipe: bf.Recipe, widths: tuple[int, ...], size: int) -> None:
    """As many as `fullcert train` would take, for steps with bounds and without."""
    trained = sum((inward + 1) * outward for inward, outward in itertools.pairwise(widths))
    use_threads_for(trained, size, recipe.order * trained if recipe.domain == "zonotope" else None)


def plain_step(widths: tuple[int, ...], x: Tensor, y: Tensor) -> Work:
    """An eager step of plain PyTorch."""
    model = network(widths).to(x.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loss = F.cross_entropy if widths[-1] > 1 else F.binary_cross_entropy_with_logits

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def bounded_step(
    recipe: bf.Recipe, widths: tuple[int, ...], x: Tensor, y: Tensor, tripwire: bool = True
) -> tuple[Work, float]:
    """A step of a certified training with its tripwire, and the seconds that compiling took."""
    work = next_step(recipe, widths, x, y, tripwire)
    for _ in range(FIRST):
        work()
    started = time.perf_counter()
    work()
    return work, time.perf_counter() - started


def next_step(recipe: bf.Recipe, widths: tuple[int, ...], x: Tensor, y: Tensor, tripwire: bool = True) -> Work:
    """A certified training that has made no step yet: each call makes its next one."""
    model = network(widths).to(x.device)
    run = _Run(Prepared(model, (x, y), bf.threats.Linf(EPSILON), recipe.but(optimizer_options={"lr": RATE})))
    run.tripwire.outward = tripwire
    if run.space is not None:
        run.space.attach(run.sets.optimizer)
    index, number = torch.arange(len(x), device=x.device), itertools.count()

    def step() -> None:
        made = next(number)
        with run.program.step(index) if tripwire else nullcontext():
            run._next(index, made)
        if tripwire:
            run.program.require_same_options(made + 1)

    return step


def measured(recipe: bf.Recipe, widths: tuple[int, ...], size: int, device: torch.device) -> Measured:
    """Steps with bounds and without, taking turns."""
    use_threads_of(recipe, widths, size)
    x, y = batch_of(widths, size, device)
    recipe = recipe.but(loss="ce" if widths[-1] > 1 else "bce")
    with peak(device) as held:
        bounded, first = bounded_step(recipe, widths, x, y)
        plain = plain_step(widths, x, y)
        for work in (bounded, plain):
            seconds(work, device, 3)
        best = taking_turns({"bounded": bounded, "plain": plain}, device)
    compiled = {"first_call_seconds": first} if recipe.compile is True else {}
    return Measured(best["bounded"], best["plain"], held.bytes, details=compiled)


def tripwire(recipe: bf.Recipe, widths: tuple[int, ...], size: int, device: torch.device) -> Measured:
    """Steps with the tripwire and without, taking turns."""
    use_threads_of(recipe, widths, size)
    x, y = batch_of(widths, size, device)
    recipe = recipe.but(loss="ce" if widths[-1] > 1 else "bce")
    works = {name: bounded_step(recipe, widths, x, y, name == "with")[0] for name in ("with", "without")}
    for work in works.values():
        seconds(work, device, 3)
    best = taking_turns(works, device, 3 * ROUNDS)
    return Measured(best["with"], best["without"], None)


INTERVAL, ZONOTOPE = (bf.Recipe(domain=domain, order=20, compile=True) for domain in ("interval", "zonotope"))
NETWORKS: dict[str, tuple[tuple[int, ...], int]] = {
    "2-20-1": ((2, 20, 1), 100),
    "784-10-10-1": ((784, 10, 10, 1), 100),
    "784-512-512-1": ((784, 512, 512, 1), 250),
    "4096": ((4096, 4096, 4096, 10), 1024),
}
STEPS = (
    ("interval", "2-20-1", "cpu"),
    ("interval", "784-10-10-1", "cpu"),
    ("interval", "784-512-512-1", "cpu"),
    ("interval", "2-20-1", "cuda"),
    ("interval", "784-10-10-1", "cuda"),
    ("interval", "4096", "cuda"),
    ("zonotope", "2-20-1", "cpu"),
    ("zonotope", "2-20-1", "cuda"),
)
for domain, named, place in STEPS:
    widths, size = NETWORKS[named]
    case(
        f"{domain}-{named}-{'gpu' if place == 'cuda' else 'cpu'}",
        f"a step on {domain}s of {'-'.join(map(str, widths))}, batch {size}, beside a plain step",
        device=place,
        quick=True,
    )(partial(measured, INTERVAL if domain == "interval" else ZONOTOPE, widths, size))
TRIPWIRES = {"interval": INTERVAL, "eager interval": INTERVAL.but(compile=False), "zonotope": ZONOTOPE}
for named, recipe in TRIPWIRES.items():
    for place in ("cpu", "cuda"):
        case(
            f"tripwire-{named.replace(' ', '-')}-{'gpu' if place == 'cuda' else 'cpu'}",
            f"a step on {named}s of 2-20-1, batch 100, with the tripwire beside one without",
            device=place,
        )(partial(tripwire, recipe, *NETWORKS["2-20-1"]))
