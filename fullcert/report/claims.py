"""What a run proved, in one sentence, and the few figures behind it."""

from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any

from fullcert.results import constant_answer
from fullcert.system.numbers_as_text import below, count, number, percent, width


@dataclass(frozen=True)
class Figure:
    """A key figure: what it is, its value, and what it means."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Part:
    """A part of the test samples: its kind, how many, and its share of all."""

    kind: str
    name: str
    samples: int
    share: float


@dataclass(frozen=True)
class Fact:
    """Something to know before the result: what it is, and how it was typed where that says more."""

    name: str
    words: str
    typed: str = ""


NAMED = 4  # classes up to which all are named


def facts(evaluation: dict[str, Any]) -> list[Fact]:
    """What is predicted, from what, on how many rows, against whom, and when; what is not known is left out."""
    about, threat = evaluation.get("subject"), evaluation["threat"]
    found = []
    if about is not None:
        found += [Fact("Predicted", predicted(evaluation, about["target"])), Fact("From", inputs(about))]
        found.append(Fact("Rows", f"{count(about['training'])} to train on, {count(about['test'])} to test on"))
    untouched = "none: taken as they are"
    trained = untouched if threat["training"] in ("", "changed nothing") else f"someone {threat['training']}"
    tested = f"someone {threat['test']}" if threat["test"] else untouched
    found.append(Fact("Threat to the training data", trained, threat["formal"] or ""))
    found.append(Fact("Threat to test inputs", tested))
    if evaluation.get("finished"):
        found.append(Fact("Finished", evaluation["finished"]))
    return found


def predicted(evaluation: dict[str, Any], target: str | None) -> str:
    """What is predicted: a number, or one of these classes."""
    classes = evaluation["classes"]
    if evaluation["task"] == "regression":
        what = "a number"
    elif len(classes) <= NAMED:
        what = f"{', '.join(classes[:-1])} or {classes[-1]}" if len(classes) > 1 else "one class"
    else:
        what = f"one of {count(len(classes))} classes"
    return what if target is None else f"{target}: {what}"


def inputs(about: dict[str, Any]) -> str:
    """What a prediction is made from: an image, columns of a table, or so many numbers."""
    shape = about["inputs"]
    if len(shape) == 3:
        channels = "" if shape[0] == 1 else f" in {count(shape[0])} channels"
        return f"an image of {shape[1]} × {shape[2]} pixels{channels}"
    amount, what = (shape[0], "feature") if about["columns"] is None else (about["columns"], "column")
    return f"{count(amount)} {what}{'' if amount == 1 else 's'}"


def claim(evaluation: dict[str, Any]) -> str:
    """The result in plain words; and a second sentence where the model is no better than a constant answer."""
    return " ".join(filter(None, (proved(evaluation), constant_answer.told(evaluation["headline"]))))


def proved(evaluation: dict[str, Any]) -> str:
    """What is certified, right for none, one and all, and how much of that is wrong."""
    headline, who = evaluation["headline"], attacker(evaluation["threat"])
    samples, certified = headline["samples"], headline["certified"]
    if samples == 0:
        return "There were no test samples, so nothing is said about any prediction."
    if headline["void_at_step"] is not None:
        return (
            f"Nothing is certified: the bounds became void at step {count(headline['void_at_step'])}, "
            f"so it is not known what someone who {who} could have changed."
        )
    if certified == 0:
        which = "This prediction is not" if samples == 1 else f"None of these {count(samples)} predictions is"
        it = "it" if samples == 1 else "them"
        return f"{which} certified: it is not known whether someone who {who} could have changed {it}."
    if evaluation["task"] == "regression":
        return f"No one who {who} could have moved {chosen(certified, samples)} out of {bounds(headline)}."
    return f"No one who {who} could have changed {chosen(certified, samples)}{of_which(headline)}."


def wrong(headline: dict[str, Any]) -> int | None:
    """How many of the certified predictions are wrong, where the true classes are known."""
    accuracy = headline.get("certified_accuracy")
    return None if accuracy is None else int(headline["certified"]) - round(accuracy * headline["samples"])


def of_which(headline: dict[str, Any]) -> str:
    """How many of the certified predictions are wrong, for the end of a sentence: certified is not right."""
    amount, certified = wrong(headline), headline["certified"]
    if amount is None:
        return ""
    if certified == 1:
        return ", which is wrong" if amount else ", which is right"
    return f", of which {count(amount) if amount else 'none'} {'is' if amount < 2 else 'are'} wrong"


def attacker(threat: dict[str, str]) -> str:
    """What the attacker did, to the training data and to the test input."""
    return " and ".join(deed for deed in (threat["training"], threat["test"]) if deed) or "changed nothing at all"


def chosen(certified: int, samples: int) -> str:
    """These predictions: all, one or some of them."""
    if certified == samples:
        return "this prediction" if samples == 1 else f"any of these {count(samples)} predictions"
    if certified == 1:
        return f"this one of {count(samples)} predictions"
    return f"these {count(certified)} of {count(samples)} predictions"


def bounds(headline: dict[str, Any]) -> str:
    """The bounds of certified values, and how wide they are."""
    one = headline["certified"] == 1
    whose = "its bounds" if one or headline["certified"] == headline["samples"] else "their bounds"
    if headline.get("mean_width") is None:
        return whose
    return f"{whose}, which are {width(headline['mean_width'])} wide" + ("" if one else " on average")


def short(evaluation: dict[str, Any]) -> str:
    """The result in a few words, for the title of a window."""
    headline = evaluation["headline"]
    return f"{count(headline['certified'])} of {count(headline['samples'])} predictions certified"


def key_figures(evaluation: dict[str, Any]) -> list[Figure]:
    """The figures under the claim; those that are not known are left out."""
    headline = evaluation["headline"]
    shares = [
        ("certified_accuracy", "Certified accuracy", "right, and no one could have changed it"),
        ("nominal_accuracy", "Nominal accuracy", "right for the model trained on the data as they are"),
        ("certified_robustness", "Certified robustness", "right or wrong, no one could have changed it"),
    ]
    figures = [
        Figure(name, percent(headline[key]), meaning) for key, name, meaning in shares if headline.get(key) is not None
    ]
    if headline.get("mean_width") is not None:
        figures.append(Figure("Mean width", width(headline["mean_width"]), "of the bounds on a prediction"))
    if headline.get("mean_absolute_error") is not None:
        error = width(headline["mean_absolute_error"])  # rounded up
        figures.append(Figure("Mean absolute error", error, "of the model trained on the data as they are"))
    if headline.get("certified_mean_absolute_error") is not None:
        error = width(headline["certified_mean_absolute_error"])
        figures.append(Figure("Certified error", error, "mean absolute error at most, whatever the attacker did"))
    if headline.get("majority_accuracy") is not None:
        share = percent(headline["majority_accuracy"], ROUND_CEILING)
        figures.append(Figure("Majority", share, "right for always answering the most frequent class of the test set"))
    if headline.get("median_mean_absolute_error") is not None:
        error = number(below(headline["median_mean_absolute_error"], 3), 3)
        figures.append(Figure("Median", error, "mean absolute error of always answering the median of the test set"))
    abstained = headline["samples"] - headline["certified"]
    return [*figures, Figure("Abstained", count(abstained), f"of {count(headline['samples'])} test samples")]


def attack_claim(attack: dict[str, Any]) -> str:
    """What attacks found, in a sentence or two: what is broken is shown, and what is not says nothing."""
    states, trainings = attack["states"], count(attack["trainings"])
    if attack["attacked_accuracy"] is None and "largest_move" in attack:
        moved = number(attack["largest_move"])
        return f"{trainings} poisoned trainings moved no prediction by more than {moved}, and none out of its bounds."
    broken, undecided, certified = (states[name] for name in ("broken", "undecided", "certified"))
    if broken == 0:
        said = f"None of {trainings} poisoned trainings changed a prediction."
    else:
        said = f"{trainings} poisoned trainings changed {predictions(broken)}."
    if undecided:
        said += f" {predictions(undecided).capitalize()} {'is' if undecided == 1 else 'are'} undecided:"
        said += " not certified, and no attack was found."
    return said + (" No certified prediction was changed." if certified else "")


def predictions(amount: int) -> str:
    return "1 prediction" if amount == 1 else f"{count(amount)} predictions"


def attack_parts(attack: dict[str, Any]) -> list[Part]:
    """The test samples as attacks and bounds leave them."""
    kinds = {"certified": "right", "undecided": "abstained", "broken": "wrong"}
    total = sum(attack["states"].values())
    found = [(kinds[name], name, attack["states"][name]) for name in kinds]
    return [Part(kind, name, amount, amount / total) for kind, name, amount in found] if total else []


def parts(evaluation: dict[str, Any]) -> list[Part]:
    """The test samples by what is known of them: certified and right, certified but wrong, abstained."""
    headline = evaluation["headline"]
    samples, certified, amount = headline["samples"], headline["certified"], wrong(headline)
    if amount is None:
        found = [("right", "certified", certified)]
    else:
        found = [("right", "certified and right", certified - amount), ("wrong", "certified, but wrong", amount)]
    found.append(("abstained", "abstained", samples - certified))
    return [Part(kind, name, amount, amount / samples) for kind, name, amount in found] if samples else []
