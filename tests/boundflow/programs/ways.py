"""Ways of certifying and of asking: once, interrupted, through files and copies, watched, in threads."""

from __future__ import annotations

import contextlib
import copy
import pickle
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import boundflow as bf

from .oracle import seeded

Make = Callable[[], nn.Module]


Through = Callable[..., list[bf.Certificate]]


def once(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    return [bf.certify(make(), data, progress=False, **options)]


def resumed(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    """Interrupted in the second step, and taken up again by another process: with a model that was made anew."""

    def interrupt(step: bf.Step) -> None:
        if step.number == 2:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        options = {**options, "checkpoint": Path(folder) / "state.safetensors", "checkpoint_every": 0.0}
        try:
            once(make, data, callbacks=[interrupt], **options)
        except KeyboardInterrupt:
            return once(make, data, resume=True, **options)
    raise AssertionError("the run was too short to be interrupted")


def reloaded(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    """Written to a file and read again, with a module made anew for the code."""
    with tempfile.TemporaryDirectory() as folder:
        (certificate,) = once(make, data, **options)
        certificate.save(Path(folder) / "certificate.safetensors")
        return [bf.load(Path(folder) / "certificate.safetensors", model=make())]


def pickled(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    return [pickle.loads(pickle.dumps(certificate)) for certificate in once(make, data, **options)]


def copied(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    (certificate,) = once(make, data, **options)
    return [copy.deepcopy(certificate), certificate]


def watched(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    """With answers asked for after every step."""

    def look(step: bf.Step) -> None:
        step.predict(data[0], epsilon=0.01)

    return once(make, data, callbacks=[look], **options)


def left_in_evaluation(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    """With a callback that puts the bounded model in evaluation mode and forgets about it."""
    return once(make, data, callbacks=[lambda step: step.model.eval()], **options)


def with_another_inside(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    """With a callback that trains another network on sets, with another seed."""

    def train(step: bf.Step) -> None:
        if step.number == 2:
            once(make, data, **{**options, "seed": 7, "epochs": 1})

    return once(make, data, callbacks=[train], **options)


HERE = threading.local()
"""``HERE.pause()`` is what a thread does inside a forward pass, so that what threads share is sure to clash."""


def pause() -> None:
    """Called by networks in their forward pass: nothing, unless this thread was told otherwise."""
    getattr(HERE, "pause", lambda: None)()


def in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """All calls at once; the first exception is raised here."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def two_at_once(make: Make, data: tuple[Tensor, Tensor], **options: Any) -> list[bf.Certificate]:
    """Two trainings that wait for each other in every forward pass, unless one of them is kept out."""
    models, barrier = [make(), make()], threading.Barrier(2)  # making a model draws random numbers, too

    def meet() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.2)

    def train(model: nn.Module) -> bf.Certificate:
        HERE.pause = meet
        return bf.certify(model, data, progress=False, **options)

    return in_threads([lambda model=model: train(model) for model in models])


def one_by_one(certificate: bf.Certificate, x: Tensor, times: int, seed: int, **options: Any) -> list[bf.Prediction]:
    answers = []
    for _ in range(times):
        seeded(seed)
        answers.append(certificate.predict(x, **options))
    return answers


def two_askers(certificate: bf.Certificate, x: Tensor, times: int, seed: int, **options: Any) -> list[bf.Prediction]:
    """The second thread asks about another threat while the first is inside the network, and leaves after it."""
    everything = bf.threats.Tolerance({feature: options["epsilon"] for feature in range(x.shape[1])})
    inside, both, left = (threading.Event() for _ in range(3))

    def first_asker() -> bf.Prediction:
        HERE.pause = lambda: (inside.set(), both.wait(0.2))
        try:
            return certificate.predict(x, **options)
        finally:
            left.set()

    def second_asker() -> bf.Prediction:
        inside.wait(0.2)
        HERE.pause = lambda: (both.set(), left.wait(0.2))
        return certificate.predict(x, threat=everything)

    return in_threads([first_asker, second_asker])
