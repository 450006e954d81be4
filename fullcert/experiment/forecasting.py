"""How long a run will take, told before its first step: short trials on few samples, and a surface through them.

    seconds of a step on n samples, with S rows of samples and E of errors  ~  a + b n + c S + d E + e n (S + E),
    none of them negative

A trial makes its first step on some samples, whose symbols are known from then on, and its next ones on many and on few
of these, so that samples and rows vary apart. Each trial is the largest for which there is time. The run is then its
first step, in which parameters are not sets yet and seconds go by n alone, and all later ones with the rows there are
by then: of the samples it has met, and of errors, of which a step adds as many as in a trial, up to ``order`` for each
scalar. It is a forecast, good to a factor of two, and nothing in training depends on it.

On a GPU a step on few samples takes as long as its launches do, and what grows with samples does not show. So what
trials do not tell apart is taken for launches, and trials grow to half of the samples: short ones are cheap there.
"""

import time
from collections.abc import Callable, Sequence
from itertools import chain, combinations

import numpy as np

import boundflow as bf
from boundflow.arithmetic.tuned_numbers import COMPILED_STEPS, COMPILED_ZONOTOPE_STEPS
from fullcert.experiment.training import Recipe
from fullcert.experiment.trial_trainings import Clock, Plan, Seen, Training, trial
from fullcert.system.mistakes import Mistake

WORTH, WORTH_ROWS = 10_000, 4_000_000  # samples in all steps, also times error rows, below which a run is over soon
FIRST, SHARE = 64, 8  # samples of the first trial, and of how many steps on few samples have one
TIMES_AS_MANY_ROWS = (8, 6, 4, 3, 2)  # as the trial before
# Numbers (scalars x error rows) with which a step takes seconds on however few samples, and the steps that trials make.
# 784-10-1 has 6e7, and a step on 8 samples takes 4 s; half-moons 3e6, and 0.6 s.
LARGE, STEPS_OF_TRIALS = 2**24, 10
LARGE_ON_A_GPU = 2**30  # a linear head of 512 features and ten classes has 5e8, and a step on 64 samples takes 0.2 s
# Seconds that trials may take, if that is not more than a part of the run; for two of them whatever part of it that is,
# or longer if it is a small part.
ENOUGH, PART, SMALL_PART = 3.0, 0.3, 0.1
TIMES_AS_MANY_SAMPLES = 16  # as the trial before, on a GPU
REPEATED = 8  # times that steps of a trial are made, at most
# How far trials are off, beside terms of a step that are taken for equal where nothing is known of them. With 0.1 what
# disturbs a trial is taken for a term that grows with all samples, and with 1 trials hardly count.
UNKNOWN = 0.5
# The same on a GPU, beside launches alone: with 0.5, MAGIC with all samples moved would take 0.7 of what it does.
UNKNOWN_ON_A_GPU = 0.2
# What a compiled step takes of one by the rules: 2-20-1 on intervals 0.2 ms of 2.5, on zonotopes 7 of 60.
COMPILED = 0.1


def training_of(recipe: Recipe) -> Training:
    """The training of a command, as `bf.certify` is given it."""
    return Training(recipe.initial, recipe.observed(), recipe.program(), recipe.threats.training)


def seconds(recipe: Recipe, clock: Clock = time.perf_counter) -> float | None:
    """How long the training of a command will take, or None where it is not worth asking."""
    return of(training_of(recipe), clock)


def of(training: Training, clock: Clock = time.perf_counter) -> float | None:
    """How long it will take, or None where it is not worth asking, or where asking takes as long as the run."""
    scalars = sum(parameter.numel() for parameter in training.model.parameters() if parameter.requires_grad)
    visits = training.steps * training.size
    if visits < WORTH and visits * scalars * training.recipe.order < WORTH_ROWS:
        return None
    if has_long_steps(training) and training.steps < STEPS_OF_TRIALS / SMALL_PART:
        return None
    try:
        found = (_on_a_gpu if training.on_gpu else _on_a_processor)(training, Plan.of(training), clock)
        return None if found is None else found.seconds()
    except (ValueError, bf.BoundFlowError, Mistake):  # what is wrong with a recipe is said by the run itself
        return None


def has_long_steps(training: Training) -> bool:
    """Whether a step takes seconds on however few samples, so that trials would be a large part of a short run."""
    scalars = sum(parameter.numel() for parameter in training.model.parameters() if parameter.requires_grad)
    numbers = scalars * scalars * training.recipe.order if training.recipe.domain == "zonotope" else 0
    return numbers > (LARGE_ON_A_GPU if training.on_gpu else LARGE)


def warning(training: Training) -> str | None:
    """What a run with long steps and no forecast says instead, before its first step; not where it has few of them."""
    recipe = training.recipe
    if not has_long_steps(training) or training.steps < STEPS_OF_TRIALS:
        return None
    scalars = sum(parameter.numel() for parameter in training.model.parameters() if parameter.requires_grad)
    return (
        f"no forecast: a zonotope of {scalars:,} trained numbers has up to {recipe.order * scalars:,} rows of errors, "
        f"all of which go through the network with each of {training.size:,} samples in each of {training.steps:,} "
        "steps: seconds to minutes a step, by the machine. After two steps the bar says what is left. --order 1, fewer "
        "--steps, a smaller --batch-size or network, and --frozen layers take less; --domain interval takes next to "
        "nothing, and certifies less"
    )


def _on_a_gpu(training: Training, plan: Plan, clock: Clock) -> "Forecast":
    """What trials say, each on many times the samples of the one before; a second one is worth a share of the run."""
    met = training.met(training.steps)
    first, most = min(FIRST, met), max(min(FIRST, met), met // 2)

    def sizes(size: int) -> tuple[int, ...]:
        """Of steps that are alike, one may wait for memory or for a compiler."""
        many = min(size, training.size, plan.piece)
        return size, *(many, max(1, many // SHARE)) * 2

    size, made = min(most, TIMES_AS_MANY_SAMPLES * first), []
    trial(training, plan, sizes(size)[:3], clock, 2)  # what later ones find loaded and compiled
    begun = clock()
    while True:
        made.append(trial(training, plan, sizes(size), clock, 4))
        found, larger = Forecast(training, plan, made), min(most, TIMES_AS_MANY_SAMPLES * size)
        worth = max(ENOUGH, SMALL_PART * found.seconds()) if len(made) == 1 else ENOUGH
        if larger == size or clock() - begun + found.takes(sizes(larger)) > worth:
            return found
        size = larger


def _on_a_processor(training: Training, plan: Plan, clock: Clock) -> "Forecast | None":
    """What trials say, each the largest for which there is time; a second one is worth a share of the run.

    None where even the smallest one would take too much of the run.
    """
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
        expected = launches if training.on_gpu else alike
        self.first = fitted([(1.0, step.samples) for step in firsts], _undisturbed(trials), expected)
        terms = [_terms(step.samples, step.owned, step.errors) for step in later]
        self.later = fitted(terms, [step.seconds for step in later], expected)
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

    def takes(self, sizes: Sequence[int]) -> float:
        """What a trial takes that has steps on so many samples each."""
        return float(self.first @ (1, sizes[0])) + sum(self.step(size, sizes[0]) for size in sizes[1:])

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


def _undisturbed(trials: Sequence[Sequence[Seen]]) -> list[float]:
    """Seconds of first steps. Parameters are no sets yet: after getting ready, none takes longer than a later one.

    One that does has waited for memory that was not held before.
    """
    later = [min((s.seconds for s in seen[1:] if s.samples == seen[0].samples), default=np.inf) for seen in trials]
    ready = max(0.0, trials[0][0].seconds - later[0])
    return [min(seen[0].seconds, ready + longest) for seen, longest in zip(trials, later, strict=True)]


def alike(terms: int) -> tuple[np.ndarray, float]:
    """Where trials do not tell terms apart, each is expected to be as large as any other one; how much that counts."""
    return np.full(terms, 1 / terms), UNKNOWN


def launches(terms: int) -> tuple[np.ndarray, float]:
    """On a GPU, the first one, which is there however many samples there are."""
    return np.eye(terms)[0], UNKNOWN_ON_A_GPU


def fitted(
    terms: Sequence[Sequence[float]],
    seconds: Sequence[float],
    expected: Callable[[int], tuple[np.ndarray, float]] = alike,
) -> np.ndarray:
    """The coefficients that come closest, in proportion, with none below zero.

    Where trials do not tell terms apart, shares of the longest step are as expected, which counts as much as a trial
    that is off by so much more.
    """
    found, given = np.maximum(np.array(seconds), 1e-9), np.array(terms, dtype=float)
    longest, made = given[found.argmax()], np.zeros(given.shape[1])
    there = np.flatnonzero(longest)
    scale = found.max() / longest[there]
    share, counts = expected(len(there))
    weighted = np.concatenate((given[:, there] * scale / found[:, None], counts * np.eye(len(there))))
    wanted = np.concatenate((np.ones(len(found)), counts * share))
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
