"""What answers withstand: for each the largest k or epsilon at which it is certain, and the curve of a test set.

A run whose set was made for k flips answers for fewer flips too, so one run gives a curve; runs at several k give a
better one, where each answer counts with the best of them (`boundflow/analysis/withstanding.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import boundflow as bf
from boundflow.analysis.withstanding import curve_of
from fullcert.data.encoding import Encoding, Target
from fullcert.experiment import identity, runs
from fullcert.experiment.training import of_run
from fullcert.results import beside, voting
from fullcert.results.answering import Made, load, refused
from fullcert.results.evaluation import CHUNK
from fullcert.system.mistakes import Mistake

UNITS = {
    "k": "changed training samples",
    "epsilon": "distance that training features moved",
    "share": "share of the distances that training features moved",
}


def column(found: bf.Withstood) -> list[int | float | None]:
    """What every answer withstands; none where it is not certain even if nothing was done."""
    return [None if value < 0 else value for value in found.value.tolist()]


def summary(found: bf.Withstood) -> dict[str, Any]:
    """What was asked, and what half of the answers withstand."""
    middle = torch.quantile(found.value.double(), 0.5, interpolation="lower").item()
    whole = int(middle) if found.unit == "k" else middle
    return {"unit": found.unit, "most": found.most, "median": None if middle < 0 else whole}


def sentence(told: dict[str, Any], samples: int) -> str:
    """The same for people."""
    what, most = UNITS[told["unit"]], f"{told['most']:g}"
    if told["median"] is None:
        return f"Half of the {samples:,} answers are not certain even if nothing was changed."
    more = ", the most that this run was made for" if told["median"] == told["most"] else f" (asked up to {most})"
    amount = f"{told['median']:g}"
    if told["unit"] == "k":
        amount += " changed training sample" + ("" if told["median"] == 1 else "s")
    else:
        amount += f" as the {what}"
    return f"Half of the {samples:,} answers withstand at least {amount}{more}."


# --- the test set of a run ----------------------------------------------------------------------------------------


class Tested:
    """The test set of a finished run, and its certificate."""

    def __init__(self, run: Path) -> None:
        self.run, path, self.kept = run, voting.certificate_of(run), identity.opened(run)
        self.options = self.kept.options
        self.recipe = of_run(self.kept)
        if self.recipe.task.regression:
            raise Mistake("what answers withstand is for classes, and this run predicts a number")
        self.x, self.y = self.recipe.tensors(self.recipe.data.test)
        self.encoding = self.recipe.task.encoding or Encoding((), Target("", self.classes))
        self.certificate = load(path, self.kept, tuple(self.x.shape[1:]), self.encoding)
        self.ensemble = voting.opened(run, self.certificate.nominal if ":" in self.options.model else None)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.recipe.task.class_names)

    def rows(self, found: bf.Withstood) -> dict[str, list[Any]]:
        """One entry for every test sample: where it stands in the file of the user, and what it withstands."""
        names, origin = self.classes, self.recipe.task.origins.get("test")
        places: dict[str, list[Any]] = {"row": list(range(len(found)))}
        if origin is not None:
            places |= {"line": origin.lines} | ({} if origin.ids is None else {"id": origin.ids})
        return {
            **places,
            "label": [names[label] for label in found.label.tolist()],
            "withstands": column(found),
            "true": [names[label] for label in self.y.tolist()],
        }


def of_test_set(test: Tested, others: Sequence[Made] = (), over: str | None = None) -> bf.Withstood:
    """What the answers for a test set withstand, by its run and by others of the same recipe at other k or epsilon."""
    asked: dict[str, Any] = {"threat": test.recipe.threats.test, "over": over, "chunk": CHUNK}
    with refused("what the answers withstand cannot be said"):
        if test.ensemble is not None:
            if others or over == "epsilon":
                raise Mistake("a vote counts changed samples, by its own members alone")
            return test.ensemble.withstands(test.x, threat=test.recipe.threats.test, chunk=CHUNK)
        if not others:
            return test.certificate.withstands(test.x, **asked)
        joined = [one for one in (test.certificate, *others) if isinstance(one, bf.Certificate)]
        if len(joined) <= len(others):
            raise Mistake("a run at the optimum answers for every number of labels by itself: ask about one run")
        return bf.withstands(joined, test.x, **asked)


def of_runs(folders: Sequence[Path], over: str | None = None) -> tuple[bf.Withstood, torch.Tensor]:
    """The same for the runs in some folders, and the true labels of the test set they share."""
    test, others = Tested(folders[0]), list[Made]()
    for folder in folders[1:]:
        kept = identity.opened(folder)
        identity.require_one(test.kept, kept)
        others.append(load(runs.existing(folder, runs.CERTIFICATE), kept, tuple(test.x.shape[1:]), test.encoding))
    return of_test_set(test, others, over), test.y


def values_of(found: bf.Withstood) -> list[float]:
    """Where the curve of these answers changes, and its ends."""
    return curve_of(found, found.label).values


def curve(
    found: bf.Withstood,
    y: torch.Tensor,
    values: Sequence[float] | None = None,
    broken: Mapping[float, torch.Tensor] | None = None,
) -> dict[str, Any]:
    """The curve as a file holds it, with the attacked accuracy where attacks were made."""
    with refused("the attacks and the certificates do not fit"):
        return curve_of(found, y, values, broken or None).as_data()


def write_curve(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    return beside.write(folder, runs.CURVE, data)
