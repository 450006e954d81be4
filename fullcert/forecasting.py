"""How long a run will take, told before its first step: two short trials on few samples, and a line through them.

    seconds of a step on b samples  ~  fixed + each b,      both from the second step on n/2 and on n samples

The first step is cheaper than all others, since the parameters are not sets yet, so it is the second that counts. Rows
of all samples meet in every step, so that large batches cost somewhat more than the line says. It is a forecast, good
to a factor of about two, and nothing in training depends on it.
"""

import time
from dataclasses import replace

import torch

import boundflow as bf
from fullcert import threats
from fullcert.training import Recipe

TRIAL = 256  # samples
WORTH = 20_000  # samples in all steps, below which a run is over before a forecast would be
COUNTS = ("flip_labels", "remove", "replace", "at_most")


def steps_of(recipe: Recipe) -> tuple[int, int]:
    """How many steps a run has, and how many samples each."""
    options, samples = recipe.options, len(recipe.data.train.labels)
    size = min(options.batch_size or samples, samples)
    steps = options.epochs * -(-samples // size)
    return (steps if options.steps is None else min(steps, options.steps)), size


def seconds(recipe: Recipe) -> float | None:
    """How long training will take, or None where it is not worth asking."""
    steps, size = steps_of(recipe)
    if steps * size < WORTH or size < 2 * TRIAL:
        return None
    try:
        half, whole = (_second_step(recipe, count) for count in (TRIAL // 2, TRIAL))
    except (ValueError, bf.BoundFlowError):  # what is wrong with a recipe is said by the run itself
        return None
    each = max(0.0, whole - half) / (TRIAL - TRIAL // 2)
    return steps * (whole + each * (size - TRIAL))


def _second_step(recipe: Recipe, count: int) -> float:
    """The seconds that the second step on the first samples takes."""
    times: list[float] = []
    trial = _fewer(recipe, count)
    trial.certify([lambda step: times.append(time.perf_counter())])
    return times[-1] - times[-2] if len(times) > 1 else 0.0


def _fewer(recipe: Recipe, count: int) -> Recipe:
    """The same recipe on few samples, for two steps, with as many touched as can be."""
    made, data = object.__new__(Recipe), recipe.data
    vars(made).update(vars(recipe))
    train = replace(data.train, inputs=data.train.inputs[:count], labels=data.train.labels[:count])
    made.data = replace(data, train=train)
    counts = {name: getattr(recipe.options, name) for name in COUNTS}
    fewer = {name: number and min(number, count // 2) for name, number in counts.items()}
    made.options = replace(recipe.options, epochs=2, steps=2, batch_size=0, **fewer)
    unit = torch.finfo(recipe.dtype).eps
    subject = threats.Subject(train.inputs, recipe.task.encoding, data.classes, data.valid, unit, *recipe.reaches())
    made.threats = threats.build(made.options, subject)
    return made


def told(seconds: float) -> str:
    """A length of time, in the unit in which it is short."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
