"""Attacks on a finished run: its training is made again, on datasets that its threat allows.

The folder of a run holds neither data nor initial weights: both follow from its options, as in training. The
certificate says which they were, so a dataset that has changed since, or another network, is refused.
"""

import copy
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import boundflow as bf
from boundflow.attacks import Poisoned, Progress
from fullcert.experiment import identity, runs
from fullcert.experiment.training import Recipe, of_run
from fullcert.results import voting
from fullcert.results.evaluation import CHUNK
from fullcert.system.mistakes import Mistake


def loaded(run: Path) -> tuple[Recipe, bf.Certificate]:
    """The recipe of a finished run, with its data and initial weights, and the certificate."""
    if voting.votes(run):
        raise Mistake(
            f"{run} is a run of --members that vote, and attacks train one model: they would have to break many at once"
        )
    path = runs.existing(run, runs.CERTIFICATE)
    recipe = of_run(identity.opened(run))
    own = copy.deepcopy(recipe.initial) if ":" in recipe.options.model else None
    try:
        found = bf.load(path, own)
    except bf.BoundFlowError as error:
        raise Mistake(" ".join(str(error).split())) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise Mistake(f"the certificate {path} is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(found, bf.Certificate):
        raise Mistake(f"{run} was fitted to the optimum, and attacks here follow steps: train it with --fit steps")
    return recipe, found


def attacked(
    run: Path,
    recipe: Recipe,
    certificate: bf.Certificate,
    attacks: Sequence[str],
    tell: Callable[[Progress], None],
    **settings: Any,
) -> bf.Attacked:
    """What attacks find. A certificate that is shown to be wrong leaves the evidence in the folder."""
    x, y = recipe.tensors(recipe.data.test)
    try:
        return bf.attack(
            recipe.initial,
            recipe.observed(),
            recipe.program(),
            threat=recipe.threats.training,
            test=(x, y),
            test_threat=recipe.threats.test,
            certificate=certificate,
            attacks=attacks,
            predict_options={"chunk": CHUNK},
            callback=tell,
            **settings,
        )
    except bf.Violation as violation:
        poisoned = violation.evidence["poisoned"]
        assert isinstance(poisoned, Poisoned)
        runs.write(run / runs.VIOLATION, dataset(poisoned))
        raise Mistake(f"{violation.args[0].partition('. This')[0]}; the dataset is in {run / runs.VIOLATION}") from None
    except (bf.UnsupportedOperator, bf.UnsupportedProgram, ValueError) as error:
        raise Mistake(f"{run} cannot be attacked: {' '.join(str(error).split())}") from None


def dataset(poisoned: Poisoned) -> bytes:
    """A poisoned dataset as an NPZ file: inputs, targets as numbers, and weights, 0 where a sample is gone."""
    parts = {"inputs": poisoned.x[0], "targets": poisoned.y[0], "weights": poisoned.weights[0]}
    content = io.BytesIO()
    np.savez(content, **{name: part.detach().cpu().numpy() for name, part in parts.items()})  # type: ignore[arg-type]
    return content.getvalue()
