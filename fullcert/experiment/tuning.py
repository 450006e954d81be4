"""Steps and learning rate, chosen on data that are declared.

One certified training for each learning rate, measured at a few steps on samples that are held out: so the number of
steps costs nothing extra. Where the choice is made decides what it is worth:

    trusted     training and held-out samples are both of the trusted table: a choice made before the attacked data
                were looked at, like the seed. A threat that counts samples is scaled to the size of the table.
    declared    training samples and validation samples of the run itself: a choice made on data inside the threat,
                which the certificate does not cover, and says so. Test samples are never looked at.

Options that were chosen on trusted data name the choice and the table by a digest, and are refused with others.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import torch

import boundflow as bf
from fullcert.experiment import identity, tasks
from fullcert.experiment.options import Options
from fullcert.experiment.training import Recipe
from fullcert.system.mistakes import Mistake

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200)
RATES = (0.25, 0.5, 1.0, 2.0)  # times that of the rule
HELD_OUT = 500  # samples that are measured


class Tried(NamedTuple):
    """One learning rate after so many steps."""

    lr: float
    steps: int
    certified_accuracy: float
    nominal_accuracy: float


def tuned(
    options: Options, most: int, rates: Sequence[float], progress: Callable[[str], None]
) -> tuple[Options, list[Tried]]:
    """The options with the best learning rate and number of steps, and all that was tried."""
    if options.regression:
        raise Mistake("fullcert tune compares shares of certified answers, so it is for classes and not --regression")
    if options.members:
        raise Mistake("fullcert tune is for one model: leave --members out, and train them with what it chose")
    options = replace(options, fit="steps")
    where = trusted_part(options) if options.trusted is not None else options
    first = Recipe(where)
    found: list[Tried] = []
    for place, lr in enumerate(rates or [factor * first.options.lr for factor in RATES]):
        progress(f"learning rate {lr:g} ({place + 1} of {len(rates) or len(RATES)})")
        found += measured(replace(where, lr=lr), most, where is not options)
    best = max(found, key=lambda tried: (tried.certified_accuracy, -tried.steps, -tried.lr))
    chosen = replace(options, lr=best.lr, steps=best.steps, epochs=best.steps)
    source = "declared"
    if options.trusted is not None:
        source = f"trusted:{identity.of_choice(chosen, identity.of_files(options))}"
    return replace(chosen, tuned_on=source), found


def measured(options: Options, most: int, trusted: bool) -> list[Tried]:
    """One training, measured on the way; of trusted data, all that is held out is for this."""
    recipe = Recipe(replace(options, steps=most, epochs=most))
    parts = [recipe.data.validation, *([recipe.data.test] if trusted else [])]
    pairs = [recipe.tensors(part) for part in parts]
    x, y = (torch.cat(values)[:HELD_OUT] for values in zip(*pairs, strict=True))
    found: list[Tried] = []

    def look(step: bf.Step) -> None:
        if step.number in STEPS or step.number == step.total:
            with_threat = step.accuracy(x, y, threat=recipe.threats.test)
            found.append(Tried(float(recipe.options.lr), step.number, with_threat.certified, with_threat.nominal))

    recipe.certify([look])
    return found or [Tried(float(recipe.options.lr), 1, 0.0, 0.0)]


def trusted_part(options: Options) -> Options:
    """The same run on the trusted table alone: budgets in proportion to its size."""
    assert options.trusted is not None
    if options.data is None:
        raise Mistake("--trusted goes with --data, a table of your own")
    count, whole = (len(tasks.read(options, Path(path))) for path in (options.trusted, options.data))
    if count < 20:
        raise Mistake(f"{options.trusted} has {count} rows, too few to choose anything on: at least 20 are needed")

    def scaled(budget: int | None) -> Any:
        return None if budget is None else ceil(budget * count / whole) if budget else 0

    names = ("flip_labels", "remove", "replace", "at_most")
    budgets = {name: scaled(getattr(options, name)) for name in names}
    return replace(options, data=options.trusted, trusted=None, test_data=None, **budgets)
