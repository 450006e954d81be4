"""How long certified training takes, beside plain training of the same network in the same process.

Some epochs are timed, after one that is not, and scaled to the number that the paper reports: sets become void long
before 100 epochs, and a void set would be trained faster than it should. The value is seconds, so it depends on the
machine: compare the ratios.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

import boundflow as bf
from fullcert.data.datasets import Dataset, Split
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment
from fullcert.reproduce.pretraining import digits, moons
from fullcert.reproduce.published import Published, Sets, Source, stepped, tensors

EPSILON = 1e-4
NETWORKS: dict[str, tuple[Callable[[], tuple[Dataset, Split]], Published, int]] = {
    "Two-Moons, 100 epochs": (moons, Published(EPSILON, hidden=(20,)), 100),
    "MNIST, 1 epoch": (partial(digits, (0, 6)), Published(EPSILON, hidden=(10, 10), lr=0.01, clip=(0.0, 1.0)), 1),
}
PRINTED = {"Two-Moons, 100 epochs": {"interval": 7.6, "-": 0.5}, "MNIST, 1 epoch": {"interval": 2.0, "-": 0.38}}


def timed(task: str, domain: str, steps: int, seed: int, device: torch.device) -> Outcome:
    """Seconds for the epochs of the paper, from so many steps."""
    data, run, epochs = NETWORKS[task]
    x, y = tensors(data()[0].train, device)
    source = Source(seed)
    sets = Sets(source.network(x.shape[1], run.hidden).to(device).eval(), replace(run, domain=domain))
    batches = source.order(len(x)).to(device).split(run.batch_size)

    def step(number: int) -> None:
        index = batches[number % len(batches)]
        if domain == "-":
            stepped(sets.plain, sets.optimizers[0], x[index], y[index])
        else:
            stepped(sets.model, sets.optimizers[1], *sets.lifted(x[index], y[index], index))

    step(0)  # the first step is slower
    _wait(device)
    started = time.perf_counter()
    for number in range(1, steps + 1):
        step(number)
    _wait(device)
    each = (time.perf_counter() - started) / steps
    details = {"milliseconds a step": 1000 * each, "steps timed": steps, "boundflow": bf.__version__}
    return Outcome(each * len(batches) * epochs, None, details)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@experiment(
    "timing",
    title="Seconds of certified and of plain training",
    source="FullCert, Section 5, run time",
    differs="Another machine than the paper's, so ratios count; the time of some steps is scaled to all epochs; "
    "roundings are charged, which the published code leaves out.",
    value="seconds",
)
def timing(scale: Scale) -> list[Case]:
    cases = []
    for task, printed in PRINTED.items():
        for domain, steps in (("-", 200), ("interval", 100), ("zonotope", 20)):
            if domain == "zonotope" and task.startswith("MNIST"):
                continue  # its 8,000 parameters would have 160,000 rows
            steps = steps // 10 if scale.quick else steps
            run = partial(timed, task, domain, steps)
            recipe = "plain" if domain == "-" else "paper"
            quick = task.startswith("Two-Moons")
            cases.append(Case({"task": task}, domain, recipe, run, printed.get(domain), (0,), quick, {"steps": steps}))
    return cases
