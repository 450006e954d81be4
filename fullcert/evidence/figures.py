"""The numbers of a report, made again: what a certificate says of the test set, beside what its files say that it did.

    the same training, test data and machine   =>   the same numbers, to the last digit

`beside.py` compares files with each other, which somebody may have changed together; here they are compared with a
training that was made just now. What was measured while it was trained, and the seconds, is not made again.
"""

import json
from pathlib import Path
from typing import Any

import boundflow as bf
from fullcert.experiment import runs
from fullcert.experiment.training import Recipe
from fullcert.results import voting
from fullcert.results.beside import ABOUT, Beside, Unfit, require_near
from fullcert.results.evaluation import FINISHED, evaluate, measure, on_test
from fullcert.results.voting import Tell
from fullcert.system.jobs import Counted

MEASURED = {runs.EVALUATION: {"steps", "advice", FINISHED, ABOUT}, runs.METRICS: {"seconds", "claim", "advice", ABOUT}}


def differ(run: Path, recipe: Recipe, made: bf.Certificate | bf.Ensemble, exactly: bool, tell: Tell) -> str | None:
    """In what the files of a run differ from what its training, made again, says of the test set; None: in nothing.

    Not ``exactly``: it was made on another machine, where a few answers may be other ones.
    """
    beside = Beside(run)
    evaluation = beside.evaluation
    said = {runs.EVALUATION: evaluation, runs.METRICS: beside.read(runs.METRICS)}
    again = _voted(recipe, made, tell) if isinstance(made, bf.Ensemble) else _answered(recipe, made, evaluation, tell)
    if not exactly:
        return _headlines(evaluation["headline"], again[runs.EVALUATION]["headline"])
    for file, numbers in again.items():
        numbers = json.loads(runs.as_line(numbers))
        names = sorted({*numbers, *said[file]} - MEASURED[file])
        other = [name for name in names if numbers.get(name) != said[file].get(name)]
        if other:
            return f"{', '.join(other)} of {file}"
    return None


def _answered(recipe: Recipe, made: bf.Certificate, evaluation: dict[str, Any], tell: Tell) -> dict[str, Any]:
    tell("testing")
    test = on_test(recipe, made)
    metrics = measure(recipe, made, test)
    follow = Counted(0, lambda progress: tell(progress.now))
    again = evaluate(recipe, made, test, metrics, evaluation["steps"], follow)
    return {runs.EVALUATION: again, runs.METRICS: metrics}


def _voted(recipe: Recipe, made: bf.Ensemble, tell: Tell) -> dict[str, Any]:
    test = voting.Tested(recipe, made, tell)
    metrics = test.metrics(0.0)
    return {runs.EVALUATION: test.evaluation(metrics), runs.METRICS: metrics}


def _headlines(said: dict[str, Any], made: dict[str, Any]) -> str | None:
    if said["samples"] != made["samples"]:
        return "the number of test samples"
    count = said["samples"] or 1
    try:
        require_near(said["certified"] / count, made["certified"] / count, count, "number of certified predictions")
        for name in ("certified_accuracy", "nominal_accuracy"):
            if made[name] is not None:
                require_near(said[name], made[name], count, name.replace("_", " "))
    except Unfit as unfit:
        return f"the headline of {runs.EVALUATION}: {unfit}"
    return None
