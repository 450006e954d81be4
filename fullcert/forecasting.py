"""How long a run will take, told before its first step: short trials on few samples, and a surface through them.

    seconds of a step on n samples, with S rows of samples and E of errors  ~  a + b n + c S + d E + e n (S + E),
    none of them negative

A trial makes its first step on some samples, whose symbols are known from then on, and its next ones on many and on few
of these, so that samples and rows vary apart. Each trial is the largest for which there is time. The run is then its
first step, in which parameters are not sets yet and seconds go by n alone, and all later ones with the rows there are
by then: of the samples it has met, and of errors, of which a step adds as many as in a trial, up to ``order`` for each
scalar. It is a forecast, good to a factor of two, and nothing in training depends on it.
"""

import time
from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np

import boundflow as bf
from boundflow.tuning import COMPILED_STEPS, COMPILED_ZONOTOPE_STEPS
from fullcert.mistakes import Mistake
from fullcert.training import Recipe
from fullcert.trials import Clock, Plan, Seen, Training, trial

WORTH, WORTH_ROWS = 10_000, 4_000_000  # samples in all steps, also times error rows, below which a run is over soon
FIRST, SHARE = 64, 8  # samples of the first trial, and of how many steps on few samples have one
TIMES_AS_MANY_ROWS = (8, 6, 4, 3, 2)  # as the trial before
# Numbers (scalars x error rows) with which a step takes seconds on however few samples, and the steps that trials make.
# 784-10-1 has 6e7, and a step on 8 samples takes 4 s; half-moons 3e6, and 0.6 s.
LARGE, STEPS_OF_TRIALS = 2**24, 10
# Seconds that trials may take, if that is not more than a part of the run; for two of them whatever part of it that is,
# or longer if it is a small part.
ENOUGH, PART, SMALL_PART = 3.0, 0.3, 0.1
REPEATED = 8  # times that steps of a trial are made, at most
# How far trials are off, beside terms of a step that are taken for equal where nothing is known of them. With 0.1 what
# disturbs a trial is taken for a term that grows with all samples, and with 1 trials hardly count.
UNKNOWN = 0.5
# What a compiled step takes of one by the rules: 2-20-1 on intervals 0.2 ms of 2.5, on zonotopes 7 of 60.
COMPILED = 0.1


def seconds(recipe: Recipe, clock: Clock = time.perf_counter) -> float | None:
    """How long the training of a command will take, or None where it is not worth asking."""
    return of(Training(recipe.initial, recipe.observed(), recipe.program(), recipe.threats.training), clock)


def of(training: Training, clock: Clock = time.perf_counter) -> float | None:
    """How long it will take, or None where it is not worth asking, or where asking takes as long as the run."""
    scalars = sum(parameter.numel() for parameter in training.model.parameters() if parameter.requires_grad)
    visits = training.steps * training.size
    if visits < WORTH and visits * scalars * training.recipe.order < WORTH_ROWS:
        return None
    large = training.recipe.domain == "zonotope" and scalars * scalars * training.recipe.order > LARGE
    if large and training.steps < STEPS_OF_TRIALS / SMALL_PART:
        return None
    try:
        found = _forecast(training, clock)
        return None if found is None else found.seconds()
    except (ValueError, bf.BoundFlowError, Mistake):  # what is wrong with a recipe is said by the run itself
        return None


def _forecast(training: Training, clock: Clock) -> "Forecast | None":
    """What trials say, each the largest for which there is time; a second one is worth a share of the run.

    None where even the smallest one would take too much of the run.
    """
    plan = Plan.of(training)
    first, most = min(FIRST, training.met(training.steps)), min(training.size, plan.piece)
    many = min(first, most)
    loading = trial(training, plan, (first, many), clock)  # what later ones find loaded and compiled
    found, made = Forecast(training, plan, [loading]), []
    if found.trial(first) > max(ENOUGH, PART * found.seconds()):
        return None  # one step, which has found nothing ready, says too little
    begun = clock()
    while True:
        made.append(trial(training, plan, (first, many, *(many, max(1, many // SHARE)) * REPEATED), clock))
        found, spent = Forecast(training, plan, made), clock() - begun
        left = min(ENOUGH, PART * found.seconds()) - spent
        larger = found.larger(first, left)
        if larger is None and len(made) == 1:
            longer = max(ENOUGH, SMALL_PART * found.seconds()) - spent
            larger = found.larger(first, longer, TIMES_AS_MANY_ROWS[-1:])
        if larger is None:
            return found
        first, many = larger, min(larger, most, found.telling(larger, left))


class Forecast:
    """The steps of a run, from those of trials."""

    def __init__(self, training: Training, plan: Plan, trials: Sequence[Sequence[Seen]]):
        self.training, self.plan = training, plan
        firsts, later = [seen[0] for seen in trials], [step for seen in trials for step in shortest(seen[1:])]
        self.first = fitted([(1.0, step.samples) for step in firsts], [step.seconds for step in firsts])
        terms = [_terms(step.samples, step.owned, step.errors) for step in later]
        self.later = fitted(terms, [step.seconds for step in later])
        self.each = firsts[-1].owned / firsts[-1].samples
        self.errors, self.most = firsts[-1].errors, firsts[-1].most
        self.added = max(seen[1].errors - seen[0].errors for seen in trials)

    def seconds(self) -> float:
        """Of all steps; a run is compiled from where that takes as long as the steps before it by the rules."""
        size, steps = self.training.size, np.arange(2, self.training.steps + 1)
        owned = self.each * np.minimum(self.training.samples, size * steps)
        errors = np.minimum(self.most, self.errors + self.added * (steps - 1))
        fixed, sample, of_owned, of_errors, pair = self.later
        each = fixed + sample * size + of_owned * owned + of_errors * errors + pair * size * (owned + errors)
        if self.plan.compiled:
            each[COMPILED_STEPS if self.training.recipe.domain == "interval" else COMPILED_ZONOTOPE_STEPS :] *= COMPILED
        return float(self.first @ (1, size) + each.sum())

    def step(self, samples: int, met: int) -> float:
        """What the second step of a trial takes on some samples, where symbols of so many are known."""
        return float(self.later @ _terms(samples, self.each * met, self.errors))

    def larger(self, met: int, left: float, as_many: Sequence[int] = TIMES_AS_MANY_ROWS) -> int | None:
        """How many samples a trial has for which there is time, if it is more than the last one, on ``met``, had."""
        rows = self.each * met + self.errors
        most = self.training.met(self.training.steps) if self.each else self.training.size
        for times in as_many:
            count = min(most, int((times * rows - self.errors) / self.each if self.each else times * met))
            if count > met and self.trial(count) <= left:
                return count
        return None

    def trial(self, met: int) -> float:
        """What a trial takes: its first step, two that are twice as long as one without samples, and one like that."""
        return float(self.first @ (1, met)) + 5 * self.step(0, met)

    def telling(self, met: int, left: float) -> int:
        """How many samples make a step of a trial twice as long as without any, and up to four times with the time."""
        none, one = self.step(0, met), self.step(1, met)
        longest = max(2 * none, min(4 * none, (left - float(self.first @ (1, met)) - none) / 2))
        return self.training.size if one <= none else max(1, int((longest - none) / (one - none)))


def _terms(samples: int, owned: float, errors: float) -> tuple[float, ...]:
    return 1.0, samples, owned, errors, samples * (owned + errors)


def shortest(steps: Sequence[Seen]) -> list[Seen]:
    """Of steps that are alike: what disturbs one makes it longer, as does memory that was not held before."""
    found: dict[tuple[int, int, int], Seen] = {}
    for step in steps:
        alike = step.samples, step.owned, step.errors
        found[alike] = min(step, found.get(alike, step), key=lambda one: one.seconds)
    return [*found.values()]


def fitted(terms: Sequence[Sequence[float]], seconds: Sequence[float]) -> np.ndarray:
    """The coefficients that come closest, in proportion, with none below zero.

    Where trials do not tell terms apart, these share alike: each is expected to be as large as any other one in the
    longest step, which counts as much as a trial that is off by so much more.
    """
    found, given = np.maximum(np.array(seconds), 1e-9), np.array(terms, dtype=float)
    longest, made = given[found.argmax()], np.zeros(given.shape[1])
    there = np.flatnonzero(longest)
    scale = found.max() / longest[there]
    weighted = np.concatenate((given[:, there] * scale / found[:, None], UNKNOWN * np.eye(len(there))))
    wanted = np.concatenate((np.ones(len(found)), np.full(len(there), UNKNOWN / len(there))))
    least = np.inf
    for some in chain.from_iterable(combinations(range(len(there)), count + 1) for count in range(len(there))):
        shares = np.zeros(len(there))
        shares[list(some)] = np.linalg.lstsq(weighted[:, some], wanted, rcond=None)[0]
        error = float(np.square(weighted @ shares - wanted).sum())
        if (shares >= 0).all() and error < least:
            made[there], least = shares * scale, error
    return made


def told(seconds: float) -> str:
    """A length of time, in the unit in which it is short."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
