"""What to do with the predictions: which are settled, which are open, and how that looks class by class.

A certified prediction is settled: no one within the threat could have changed it, be it right or wrong; so it is said
with them how many are wrong. An abstained one is open, and for a person.
Certified recall of a class is the share of its samples that are certified and right. Samples that are certified as
another class are listed in one cell, so that the table is as wide for twenty classes as for two. A value that is
predicted stays within its bounds; to review are the widest ones.
"""

import math
from dataclasses import dataclass
from typing import Any

from fullcert.system.numbers_as_text import above, below, count, number, percent

LISTED = 12  # predictions to review that are written out; the table below has all of them


@dataclass(frozen=True)
class Review:
    """One prediction to review: where it stands, what was predicted, and how far from certain it is."""

    place: str
    prediction: str
    true: str
    measure: str


@dataclass(frozen=True)
class ClassRow:
    """One class: its samples, how many are certified and right, and what was predicted for them."""

    name: str
    samples: int
    recall: str
    right: int  # certified as this class
    wrong: list[tuple[int, str]]  # certified as another class: how many, and as which
    abstained: int


@dataclass(frozen=True)
class Decisions:
    """Sentences about those that are settled and those that are open, and some of the latter."""

    settled: str
    open: str
    listed: list[Review]
    left_out: int
    order: str  # in which the list is


OPEN = {
    False: "the bounds could not decide",
    True: "for each there are allowed data that change it, as far as rounding can tell",
}


def decisions(evaluation: dict[str, Any]) -> Decisions | None:
    """Which predictions are settled, and which are open."""
    rows = evaluation["samples"]
    if not rows:
        return None
    abstained, settled = ([row for row in rows if row["certified"] is kind] for kind in (False, True))
    if evaluation["task"] == "regression":
        widest = sorted(rows, key=lambda row: -_width(row))
        return Decisions(
            _sentence(len(settled), "nobody within the threat could have moved {} out of {their} bounds"),
            "those with the widest bounds" + (f", and {count(len(abstained))} without bounds" if abstained else ""),
            [_value(row) for row in widest[:LISTED]],
            max(0, len(rows) - LISTED),
            "the widest bounds first",
        )
    shown = sorted(abstained, key=_nearness)
    return Decisions(
        _sentence(len(settled), "nobody within the threat could have changed {}", wrong(settled)),
        _sentence(len(abstained), OPEN[is_exact(evaluation)], wrong(abstained)),
        [_review(row) for row in shown[:LISTED]],
        max(0, len(abstained) - LISTED),
        "those nearest to certain first",
    )


def is_exact(evaluation: dict[str, Any]) -> bool:
    """Whether what is open can be changed: at the optimum of squared loss, for inputs that are taken as they are."""
    said = {label: value for _, pairs in evaluation.get("details", ()) for label, value in pairs}
    return (
        "fit" in said and str(said.get("loss", "")).startswith("squared") and said.get("test inputs") == "as they are"
    )


def _nearness(row: dict[str, Any]) -> float:
    """What is nearest to certain comes first: by its margin, or by what the vote withstands."""
    found = row.get("margin") if "votes" not in row else row.get("withstands")
    return math.inf if found is None else -float(found)


def wrong(rows: list[dict[str, Any]]) -> int:
    return sum(row["label"] != row["true"] for row in rows)


def _sentence(amount: int, why: str, mistaken: int | None = None) -> str:
    """How many, how many of them are wrong where that is said, and why."""
    if not amount:
        return "No prediction"
    it, their = ("it", "its") if amount == 1 else ("them", "their")
    also = "" if mistaken is None else f", {count(mistaken) if mistaken else 'none'} of {it} wrong"
    if amount == 1 and mistaken is not None:
        also = ", which is wrong" if mistaken else ", which is right"
    return f"{count(amount)} prediction{'' if amount == 1 else 's'}{also}: {why.format(it, their=their)}"


def _review(row: dict[str, Any]) -> Review:
    words = {name: "–" if row.get(name) is None else str(row[name]) for name in ("label", "true")}
    margin = row.get("margin")
    measure = "no bounds" if margin is None else number(below(margin, 3), 3)
    if "votes" in row:
        measure = "nothing" if row.get("withstands") is None else count(row["withstands"])
    return Review(place_of(row), words["label"], words["true"], measure)


def _value(row: dict[str, Any]) -> Review:
    wide = _width(row)
    words = {name: number(row.get(name), 3) for name in ("label", "true")}
    measure = "no bounds" if wide == math.inf else number(above(wide, 3), 3)
    return Review(place_of(row), words["label"], words["true"], measure)


def _width(row: dict[str, Any]) -> float:
    """How wide the bounds of a value are; without bounds, or with one side alone, infinitely."""
    ends = (row["lower"] or [None])[0], (row["upper"] or [None])[0]
    return math.inf if None in ends or not row["certified"] else float(ends[1]) - float(ends[0])


def place_of(row: dict[str, Any]) -> str:
    """Where a sample stands: its id, its line, or its number."""
    told = f"line {count(row['line'])}" if row.get("line") is not None else f"row {count(row['row'])}"
    return f"{row['id']} ({told})" if row.get("id") is not None else told


def by_class(evaluation: dict[str, Any]) -> list[ClassRow]:
    """Every class that occurs, with its certified recall."""
    names = evaluation["classes"]
    if evaluation["task"] == "regression" or not names or len(names) > 20:
        return []
    places = {name: place for place, name in enumerate(names)}
    table = [[0] * (len(names) + 1) for _ in names]
    for row in evaluation["samples"]:
        true, label = places.get(row["true"]), places.get(row["label"])
        if true is not None and label is not None:
            table[true][label if row["certified"] else len(names)] += 1
    found = []
    for place, (name, cells) in enumerate(zip(names, table, strict=True)):
        if sum(cells):
            others = [(amount, names[other]) for other, amount in enumerate(cells[:-1]) if amount and other != place]
            wrong, recall = sorted(others, key=lambda pair: -pair[0]), percent(cells[place] / sum(cells))
            found.append(ClassRow(name, sum(cells), recall, cells[place], wrong, cells[-1]))
    return found
