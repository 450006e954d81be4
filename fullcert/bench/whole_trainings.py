"""Whole trainings under a threat, from the first step to the certified test set, beside plain training alone."""

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.operators.losses import LOSSES
from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import clock_of, peak, seconds, wait
from fullcert.experiment import forecasting
from fullcert.experiment.options import resolve
from fullcert.experiment.training import Recipe
from fullcert.experiment.trial_trainings import Clock, Training
from fullcert.reproduce.agt import Attack, data_of, network, program, tensors, tested
from fullcert.results.evaluation import measure, on_test
from fullcert.system.mistakes import Mistake
from fullcert.system.startup import use_threads


@dataclass(frozen=True)
class Whole:
    """A training, how long it was said to take, and how its test set is certified; plain training beside it."""

    training: Callable[[], bf.Certificate]
    forecast: Callable[[Clock], float | None]
    tested: Callable[[bf.Certificate], float | None]
    plain: Callable[[], object] | None = None

    def timed(self, device: torch.device) -> Measured:
        """All of it, and training alone beside its forecast; plain training before and after it, the better of both.

        On a GPU, where the first call compiles kernels, it is told apart, and the better of two more is taken; forecast
        and training are those of the wall. On a processor they are those of its clock: other work does not count.
        """
        on_gpu = device.type == "cuda"
        clock = clock_of(device)
        first = {"first_call_seconds": seconds(self._certified, device)} if on_gpu else {}
        told, spent, accuracy = self.forecast(clock), [], []

        def work() -> None:
            started = clock()
            certificate = self.training()
            wait(device)
            spent.append(clock() - started)
            accuracy.append(self.tested(certificate))

        times = [seconds(self.plain, device)] if self.plain is not None else []
        with peak(device) as held:
            took = min(seconds(work, device) for _ in range(2 if on_gpu else 1))
        times += [seconds(self.plain, device)] if self.plain is not None else []
        return Measured(
            1000 * took,
            1000 * min(times) if times else None,
            held.bytes,
            accuracy[0],
            training_milliseconds=1000 * min(spent),
            forecast_milliseconds=None if told is None else 1000 * told,
            details=first,
        )

    def _certified(self) -> None:
        self.tested(self.training())


# --- recipes of Abstract Gradient Training ----------------------------------------------------------------------------


def attacked(attack: Attack, device: torch.device) -> Measured:
    """Train under the attack and certify the test set."""
    data = data_of(attack, 0)
    x, y = tensors(data.train, attack.samples, device)
    model, recipe = network(attack, x.shape[1], data.classes), program(attack, device)

    def plain() -> None:
        plainly(model, bf.Recipe(loss="ce", optimizer_options={"lr": attack.lr}, epochs=attack.steps), x, y)

    training = Training(model, (x, y), recipe, attack.threat)
    return Whole(
        training.certify,
        partial(forecasting.of, training),
        lambda certificate: tested(attack, data, certificate, device).value,
        plain,
    ).timed(device)


HALF_MOONS = Attack("half-moons", 3000, 128, 4, 2.0, 0.6, k=200, epsilon=0.01)
MAGIC = Attack("magic", 15216, 128, 3, 1.0, 0.6, k=15216, epsilon=0.01)
MNIST = Attack("mnist-32", 60000, 0, 2, 5.0, 1.0, k=10, labels=True, test=1000, weight_seed=0)
ATTACKS: dict[str, tuple[str, Attack]] = {
    "half-moons-200": ("half-moons 6-128-2, 200 of 3000 samples moved, 4 steps", HALF_MOONS),
    "magic-all": ("MAGIC 10-128-2, all samples moved by 0.01, 3 steps", MAGIC),
    "magic-200-3": ("MAGIC 10-128-2, 200 samples moved by 0.01, 3 steps", replace(MAGIC, k=200)),
    "magic-200-4": ("MAGIC 10-128-2, 200 samples moved by 0.01, 4 steps", replace(MAGIC, k=200, steps=4)),
    "mnist-32-10": ("MNIST on 32 components, linear, 10 flipped labels, 2 steps", MNIST),
    "mnist-32-100": ("MNIST on 32 components, linear, 100 flipped labels, 2 steps", replace(MNIST, k=100)),
}
for name, (title, attack) in ATTACKS.items():
    case(f"{name}-gpu", title, device="cuda")(partial(attacked, attack))
    case(f"{name}-cpu", title)(partial(attacked, attack))


# --- a head on fixed features -----------------------------------------------------------------------------------------


def gaussian_classes(samples: int, generator: torch.Generator, means: Tensor) -> tuple[Tensor, Tensor]:
    """Classes of ten Gaussians, in float64."""
    labels = torch.randint(0, len(means), (samples,), generator=generator)
    noise = torch.randn(samples, means.shape[1], generator=generator, dtype=torch.float64)
    return means[labels] + 0.0265 * noise, labels


@case("head-512", "a linear head, 50,000 x 512, ten classes, 50 flipped labels, 5 steps", device="cuda")
def head(device: torch.device) -> Measured:
    generator = torch.Generator().manual_seed(0)
    means = 0.0375 * torch.randn(10, 512, generator=generator, dtype=torch.float64)
    x, y = (part.to(device) for part in gaussian_classes(50_000, generator, means))
    test = [part.to(device) for part in gaussian_classes(2_000, generator, means)]
    torch.manual_seed(0)
    model = nn.Linear(512, 10).double()
    recipe = bf.Recipe(loss="ce", optimizer_options={"lr": 2.0}, epochs=5, memory=64e9, device=device)

    training = Training(model, (x, y), recipe, bf.threats.AtMost(50, bf.threats.Labels()))
    return Whole(
        partial(training.certify, progress=False),
        partial(forecasting.of, training),
        lambda certificate: 100 * certificate.accuracy(test[0], test[1]).certified,
        lambda: plainly(model, recipe, x, y),
    ).timed(device)


def plainly(model: nn.Module, recipe: bf.Recipe, x: Tensor, y: Tensor) -> None:
    """The same training without sets."""
    trainer = recipe.trainer(copy.deepcopy(model).to(x.device, x.dtype))
    for index in recipe.batches(len(x), x.device):
        trainer.optimizer.zero_grad()
        LOSSES[recipe.loss](trainer.model(x[index]), y[index]).backward()
        trainer.step()


# --- what the command does --------------------------------------------------------------------------------------------


def commanded(options: dict[str, Any], device: torch.device) -> Measured:
    """Train with the defaults of the command, and certify its test set."""
    recipe = Recipe(resolve(options, {}))
    use_threads(None, recipe)

    def tested(certificate: bf.Certificate) -> float:
        return 100 * float(measure(recipe, certificate, on_test(recipe, certificate))["certified_accuracy"])

    return Whole(lambda: recipe.certify([]), partial(forecasting.seconds, recipe), tested).timed(device)


@case("digits", "digits of scikit-learn, linear, 3 flipped labels, defaults of the command")
def digits(device: torch.device) -> Measured:
    return commanded({"dataset": "digits", "flip_labels": 3}, device)


@case("table-20000", "a table of 20,000 rows, 3 classes, 8 mixed columns, 5 flipped labels, 5 steps")
def table(device: torch.device) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(mixed_table(20_000))
        return commanded({"data": str(path), "target": "class", "flip_labels": 5, "steps": 5}, device)


def mixed_table(rows: int) -> str:
    """Four numbers and four categories of four values each: 20 columns once encoded. The class goes by all of them."""
    generator = np.random.RandomState(0)
    numbers, kinds = generator.normal(size=(rows, 4)), generator.randint(4, size=(rows, 4))
    score = numbers @ np.array([1.0, -0.5, 0.5, 0.25]) + (kinds @ np.array([0.5, -0.25, 0.25, -0.5]))
    labels = np.digitize(score + 0.1 * generator.normal(size=rows), np.quantile(score, [1 / 3, 2 / 3]))
    head = ",".join([*(f"number{i}" for i in range(4)), *(f"kind{i}" for i in range(4)), "class"])
    lines = [
        ",".join([*(f"{value:.6f}" for value in row), *("abcd"[kind] for kind in kind_row), f"class{label}"])
        for row, kind_row, label in zip(numbers, kinds, labels, strict=True)
    ]
    return "\n".join([head, *lines]) + "\n"


def command_runs(count: int, device: torch.device) -> Measured:
    """So many `fullcert train` at once, from start to report."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["train", "--dataset", "two-moons", "--epsilon", "1e-3", "--quiet", "--out"]

        def work() -> None:
            started = [
                subprocess.Popen([sys.executable, "-m", "fullcert", *arguments, f"{folder}/{number}"])
                for number in range(count)
            ]
            if any([run.wait() for run in started]):
                raise Mistake("fullcert train has failed: try it by itself")

        return Measured(1000 * seconds(work, device))


case("command-two-moons", "fullcert train on Two-Moons, from start to report", quick=True)(partial(command_runs, 1))
case("command-two-moons-twice", "two of them at once")(partial(command_runs, 2))
