"""How much memory a run takes when it was promised 200 MB: the peak above the start, or a refusal.

The plain part of the process (torch, the data), and what a first certified training of eight samples leaves behind, is
there before the measurement begins.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import boundflow as bf
from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import peak
from fullcert.experiment.trial_trainings import Training

PROMISED = 200e6
LABELS = bf.threats.Labels()


def data(samples: int, features: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(samples, features, generator=generator)
    return x, torch.randint(0, classes, (samples,), generator=generator)


def warm_up() -> None:
    """A training of two steps, so that libraries and caches are there."""
    threat = bf.threats.AtMost(1, LABELS)
    recipe = bf.Recipe(loss="ce", optimizer_options={"lr": 0.1}, epochs=2)
    bf.certify(nn.Linear(3, 3), data(8, 3, 3), recipe, threat=threat, progress=False)


def kept(work: Callable[[], object]) -> Measured:
    """The peak of a run; a refusal is as good, and says why."""
    warm_up()
    refused = ""
    started = time.perf_counter()
    with peak(torch.device("cpu")) as held:
        try:
            work()
        except (bf.BoundFlowError, ValueError, MemoryError) as error:
            refused = str(error)
    details: dict[str, object] = {"memory": PROMISED}
    details |= {"refused": refused} if refused else {}
    return Measured(1000 * (time.perf_counter() - started), None, held.bytes, details=details)


def task(
    model: Callable[[], nn.Module], samples: int, features: int, classes: int, threat: bf.threats.Threat
) -> Training:
    """Two steps on all samples."""
    torch.manual_seed(0)
    loss = "bce" if classes == 2 else "ce"
    recipe = bf.Recipe(loss=loss, optimizer_options={"lr": 0.1}, epochs=2, memory=PROMISED)
    return Training(model(), data(samples, features, classes), recipe, threat)


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 10), nn.ReLU(), nn.Linear(10, 1))


LINEAR: dict[str, Callable[[], Training]] = {
    "memory-labels": partial(task, partial(nn.Linear, 30, 1), 20_000, 30, 2, bf.threats.AtMost(50, LABELS)),
    "memory-classes": partial(task, partial(nn.Linear, 64, 10), 5_000, 64, 10, bf.threats.AtMost(20, LABELS)),
}


def trained(make: Callable[[], Training], device: torch.device) -> Measured:
    training = make()
    return kept(lambda: training.certify(progress=False))


case("memory-labels", "20,000 x 30, binary labels, k = 50, with 200 MB")(partial(trained, LINEAR["memory-labels"]))
case("memory-classes", "5,000 x 64, ten classes, k = 20, with 200 MB")(partial(trained, LINEAR["memory-classes"]))
case("memory-images", "784-10-1 on 2,000 images, with 200 MB")(
    partial(trained, partial(task, two_layers, 2_000, 784, 2, bf.threats.Linf(1e-4)))
)


@case("memory-predict", "predict on 10,000 inputs, with 200 MB")
def predict(device: torch.device) -> Measured:
    x, y = data(1_000, 30, 2)
    torch.manual_seed(0)
    recipe = bf.Recipe(loss="bce", optimizer_options={"lr": 0.1}, steps=2, epochs=2, memory=PROMISED)
    threat = bf.threats.AtMost(5, LABELS)
    certificate = bf.certify(nn.Linear(30, 1), (x, y), recipe, threat=threat, progress=False)
    inputs = data(10_000, 30, 2)[0]
    return kept(lambda: certificate.predict(inputs))
