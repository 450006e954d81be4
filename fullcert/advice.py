"""What a run itself shows when little is certified, and the flags to type.

Every sentence rests on something that this run has measured: its curve over the steps, its plain model against the most
frequent class, the terms of its abstained predictions by column (`boundflow/audit.py`), the step at which its bounds
became void. To follow the curve is a choice made on the samples it was measured on; `fullcert tune` says which.
"""

from collections.abc import Sequence
from typing import Any

import boundflow as bf
from boundflow.recorded import LABEL, PRESENCE
from fullcert.numerals import count, percent
from fullcert.training import Recipe

ASKED = 64  # abstained test samples whose terms are looked at
LITTLE = 0.5  # of the nominal accuracy
FELL = 0.05  # below the best step


def advice(
    recipe: Recipe, certificate: bf.Certificate, metrics: dict[str, Any], steps: Sequence[dict[str, Any]]
) -> list[str]:
    """Sentences about this run, each with what to type; none where much is certified."""
    if not little(metrics):
        return []
    found = [
        _void(metrics),
        _peak(recipe, steps, metrics),
        _plain(metrics),
        *_terms(recipe, certificate),
        _kind(recipe),
    ]
    return [sentence for sentence in found if sentence] or ["Try a smaller threat, or fewer steps: --steps 1."]


def little(metrics: dict[str, Any]) -> bool:
    """Whether less is certified than always answering the most frequent class would get right, or half of the plain."""
    if "void_at_step" in metrics:
        return True
    certified = metrics.get("certified_accuracy")
    if certified is None:
        return False
    return bool(certified < max(metrics["majority_accuracy"], LITTLE * metrics["nominal_accuracy"]))


def _void(metrics: dict[str, Any]) -> str:
    void = metrics.get("void_at_step")
    if void is None:
        return ""
    return f"The bounds became void at step {count(void)}: --steps {max(1, void // 2)} stops well before."


def _peak(recipe: Recipe, steps: Sequence[dict[str, Any]], metrics: dict[str, Any]) -> str:
    """The step at which this run was best, if it has fallen since."""
    measured = [step for step in steps if step.get("certified_accuracy") is not None]
    if not measured:
        return ""
    best = max(measured, key=lambda step: step["certified_accuracy"])
    last = measured[-1]["certified_accuracy"] if "void_at_step" not in metrics else 0.0
    if best["certified_accuracy"] <= last + FELL or best["step"] == metrics["steps"]:
        return ""
    split = "test" if recipe.data.validation is recipe.data.test else "validation"
    return (
        f"Its own curve peaked at step {count(best['step'])} with {percent(best['certified_accuracy'])} of some "
        f"{split} samples: --steps {best['step']} (a choice made on those samples: fullcert tune declares it)."
    )


def _plain(metrics: dict[str, Any]) -> str:
    plain, majority = metrics.get("nominal_accuracy"), metrics.get("majority_accuracy")
    if plain is None or majority is None or plain > majority + 0.02:
        return ""
    return (
        f"The plain model is right for {percent(plain)}, and always answering the most frequent class for "
        f"{percent(majority)}: there is little to certify. See what it can learn without a threat, with --epsilon 0 "
        "--steps 50, before asking for certainty."
    )


def _terms(recipe: Recipe, certificate: bf.Certificate) -> list[str]:
    """What widens the bounds of abstained predictions most, by column, and how much of it belongs to nobody."""
    x = recipe.tensors(recipe.data.test)[0][:ASKED]
    if certificate.model is None:
        return []
    try:
        found = certificate.audit(x, threat=recipe.threats.test)
    except (bf.BoundFlowError, ValueError):  # a run that did not track its rows
        return []
    reach, owned = float(found.reach.sum()), float(found.owned.sum())
    if not len(found) or not reach:
        return []
    if owned < 0.4 * reach:
        return [
            f"{percent(1 - owned / reach)} of what widens the bounds belongs to no training row: errors that grow with "
            f"every step. Fewer steps or a smaller learning rate help: --lr {recipe.options.lr / 2:g}."
        ]
    share, name = max(zip(found.by_column.sum(0).tolist(), found.columns.tolist(), strict=True))
    share /= float(found.by_column.sum()) or 1.0
    if share < 0.3 or not found.names_columns:
        return []
    return [f"The largest term comes from {told(recipe, name)} ({percent(share)}): {typed(recipe, name)}."]


def column_of(recipe: Recipe, number: int) -> str | None:
    """The column of the user that an input is made of."""
    encoding = recipe.task.encoding
    if number < 0:
        return None
    if encoding is not None:
        return [column.name for column in encoding.columns for _ in range(column.width)][number]
    return recipe.data.features[number] if recipe.data.features is not None else f"input {number}"


def told(recipe: Recipe, number: int) -> str:
    return {LABEL: "the labels", PRESENCE: "rows that may be gone"}.get(number) or f"“{column_of(recipe, number)}”"


def typed(recipe: Recipe, number: int) -> str:
    """What to type about the column behind the largest term."""
    options, name = recipe.options, column_of(recipe, number)
    if number == LABEL:
        fewer = f"ask about fewer, with --flip-labels {max(1, options.flip_labels // 2)}" if options.flip_labels else ""
        return f"{fewer or 'ask about a smaller --target-tolerance'}, or check rows, with fullcert audit"
    if number == PRESENCE:
        return f"ask about fewer, with --remove {max(1, options.remove // 2)}"
    if name in [part.partition("=")[0] for part in options.missing]:
        return f"fill in some of its missing values (fullcert audit says which first), or --ignore {name}"
    if recipe.task.encoding is not None:
        return f"measure it more exactly, with a smaller --tolerance {name}=..., or --ignore {name}"
    return f"ask about a smaller --epsilon, such as {options.epsilon / 3:.1g}"


def _kind(recipe: Recipe) -> str:
    """Sets and activations that are known to certify more."""
    options = recipe.options
    if options.domain == "interval":
        return "Intervals certify least: --domain zonotope."
    if options.hidden != "none" and options.activation == "relu":
        return "Smooth activations certify further: --activation tanh."
    return ""
