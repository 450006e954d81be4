"""How long a run will take, told before its first step: short trials on few samples, and a curve through them.

    seconds of a step on n samples  ~  fixed + each n + pairs n^2,        none of them negative

from the second step on n = 64, 128, 256, ... samples, for as long as a trial is short. Symbols of all samples meet in
every support, hence the square. The first step is cheaper than all others, since the parameters are not sets yet, so it
is the second that counts; a third says how much more each step takes than the one before, as error rows are added, up
to ``order`` of them. It is a forecast, good to a factor of about two, and nothing in training depends on it.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

import boundflow as bf
from boundflow.thread_context import thread, using
from fullcert import threats
from fullcert.training import Recipe

FIRST, LONG = 64, 0.2  # samples of the first trial, and seconds of a step after which no longer one is tried
WORTH, WORTH_SCALARS = 10_000, 2_000_000  # samples in all steps, also times scalars, below which a run is over soon
ADDED = 2  # error rows for each scalar that a step adds
COUNTS = ("flip_labels", "remove", "replace", "at_most")

Clock = Callable[[], float]


def steps_of(recipe: Recipe) -> tuple[int, int]:
    """How many steps a run has, and how many samples each."""
    options, samples = recipe.options, len(recipe.data.train.labels)
    size = min(options.batch_size or samples, samples)
    steps = options.epochs * -(-samples // size)
    return (steps if options.steps is None else min(steps, options.steps)), size


def seconds(recipe: Recipe, clock: Clock = time.perf_counter) -> float | None:
    """How long training will take, or None where it is not worth asking."""
    steps, size = steps_of(recipe)
    scalars = sum(parameter.numel() for parameter in recipe.initial.parameters() if parameter.requires_grad)
    if size < 8 * FIRST or (steps * size < WORTH and steps * size * scalars < WORTH_SCALARS):
        return None
    met = min(len(recipe.data.train.labels), steps * size)  # samples whose symbols meet those of a batch in the end
    try:
        tried = _trials(recipe, size, met, clock)
    except (ValueError, bf.BoundFlowError):  # what is wrong with a recipe is said by the run itself
        return None
    one = float(_curve({count: second for count, (second, _) in tried.items()}) @ (1, size, size * met))
    second, third = tried[max(tried)]
    growth = max(0.0, third / second - 1) if second > 0 else 0.0
    last = max(2, recipe.options.order // ADDED)
    return one * sum(1 + growth * (min(step, last) - 2) for step in range(2, steps + 2))


def _trials(recipe: Recipe, size: int, met: int, clock: Clock) -> dict[int, tuple[float, float]]:
    """By samples, what the second and the third step take: twice as many each time, at least three trials.

    Each leaves out what a step on ``size`` samples, with the symbols of ``met``, would leave out.
    """
    tried: dict[int, tuple[float, float]] = {}
    for count in (FIRST << number for number in itertools.count()):
        few = min(count, size)
        with using(replace(thread.arithmetic, trial_of=size * met / few**2)):
            tried[count] = _steps(recipe, few, clock)
        if 2 * count > size or (len(tried) > 2 and tried[count][0] > LONG):
            return tried
    raise AssertionError("sizes double")


def _curve(times: dict[int, float]) -> np.ndarray:
    """The coefficients of 1, n and n^2 that come closest, in proportion, with none below zero."""
    counts, found = np.array([*times], dtype=float), np.maximum(np.array([*times.values()]), 1e-9)
    powers = np.stack((np.ones_like(counts), counts, counts**2), 1) / found[:, None]
    best, least = np.zeros(3), np.inf
    for some in itertools.chain.from_iterable(itertools.combinations(range(3), count) for count in (1, 2, 3)):
        values = np.zeros(3)
        values[list(some)] = np.linalg.lstsq(powers[:, some], np.ones(len(counts)), rcond=None)[0]
        error = float(np.square(powers @ values - 1).sum())
        if (values >= 0).all() and error < least:
            best, least = values, error
    return best


def _steps(recipe: Recipe, count: int, clock: Clock) -> tuple[float, float]:
    """The seconds that the second and the third step on the first samples take."""
    times: list[float] = []
    _fewer(recipe, count).certify([lambda step: times.append(clock())])
    if len(times) < 3:
        return 0.0, 0.0
    return times[1] - times[0], times[2] - times[1]


def _fewer(recipe: Recipe, count: int) -> Recipe:
    """The same recipe on few samples, for three steps, with as many touched as can be."""
    made, data = object.__new__(Recipe), recipe.data
    vars(made).update(vars(recipe))
    train = replace(data.train, inputs=data.train.inputs[:count], labels=data.train.labels[:count])
    made.data = replace(data, train=train)
    counts = {name: getattr(recipe.options, name) for name in COUNTS}
    fewer = {name: number and min(number, count // 2) for name, number in counts.items()}
    made.options = replace(recipe.options, epochs=3, steps=3, batch_size=0, **fewer)
    unit = torch.finfo(recipe.dtype).eps
    subject = threats.Subject(train.inputs, recipe.task.encoding, data.classes, data.valid, unit, *recipe.reaches())
    made.threats = threats.build(made.options, subject)
    return made


def told(seconds: float) -> str:
    """A length of time, in the unit in which it is short."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
