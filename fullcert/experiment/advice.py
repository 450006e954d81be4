"""What a run itself shows when little is certified, and the commands to type.

Every sentence rests on something that this run has measured: its curve over the steps, its plain model against the most
frequent class, the terms of its abstained predictions by column (`boundflow/analysis/audit.py`), the step at which its
bounds became void. It ends with the whole command of another run, never with that of this one. To follow the curve is a
choice made on the samples it was measured on; `fullcert tune` says which.
"""

import shlex
from collections.abc import Sequence
from typing import Any

import boundflow as bf
from boundflow.symbols.recorded_values import LABEL, PRESENCE
from fullcert.experiment.options import Options, command_for, given_for, resolve
from fullcert.experiment.training import Recipe
from fullcert.system.numbers_as_text import count, percent

ASKED = 64  # abstained test samples whose terms are looked at
LITTLE = 0.5  # of the nominal accuracy
FELL = 0.05  # below the best step
LEARNS = 50  # steps that show what a network learns


def advice(
    recipe: Recipe,
    certificate: bf.Certificate | bf.OptimumCertificate,
    metrics: dict[str, Any],
    steps: Sequence[dict[str, Any]],
) -> list[str]:
    """Sentences about this run, each with a command to type; none where much is certified."""
    if not little(metrics):
        return []
    if isinstance(certificate, bf.OptimumCertificate):
        less = typed(recipe.asked, "Ask about less", **smaller(recipe.asked))
        return [sentence for sentence in (_plain(recipe.asked, metrics), less) if sentence]
    found = [
        _void(recipe, metrics),
        _peak(recipe, steps, metrics),
        _plain(recipe.asked, metrics),
        *_terms(recipe, certificate),
        _kind(recipe.asked),
    ]
    found = [sentence for sentence in found if sentence]
    if found:
        return found
    fewer = typed(recipe.asked, "Fewer steps widen less", steps=max(1, metrics["steps"] // 2))
    return [
        sentence for sentence in (fewer, typed(recipe.asked, "Ask about less", **smaller(recipe.asked))) if sentence
    ]


def typed(options: Options, sentence: str, **changes: Any) -> str:
    """A sentence with the command that makes this run with some options changed; nothing where that is this run."""
    other = resolve({**given_for(options), "epsilon": options.epsilon, **changes}, {})
    return "" if other == options else f"{sentence}: {command_for(given_for(other))}"


def smaller(options: Options) -> dict[str, Any]:
    """The same threat with less of what there is most of; nothing where it cannot be less."""
    for name in ("flip_labels", "remove", "replace"):
        if getattr(options, name) > 1:
            return {name: getattr(options, name) // 2}
    if options.epsilon:
        return {"epsilon": float(f"{options.epsilon / 3:.1g}")}
    if options.tolerance:
        return {"tolerance": tuple(_halved(part) for part in options.tolerance)}
    return {"target_tolerance": options.target_tolerance / 2} if options.target_tolerance else {}


def _halved(tolerance: str) -> str:
    """COLUMN=AMOUNT, or in per cent, with half of it."""
    name, _, amount = tolerance.rpartition("=")
    unit = "%" * amount.endswith("%")
    return f"{name}={float(amount.removesuffix('%')) / 2:g}{unit}"


def little(metrics: dict[str, Any]) -> bool:
    """Whether less is certified than always answering the most frequent class would get right, or half of the plain."""
    if "void_at_step" in metrics:
        return True
    certified = metrics.get("certified_accuracy")
    if certified is None:
        return False
    return bool(certified < max(metrics["majority_accuracy"], LITTLE * metrics["nominal_accuracy"]))


def _void(recipe: Recipe, metrics: dict[str, Any]) -> str:
    void = metrics.get("void_at_step")
    if void is None:
        return ""
    said = f"The bounds became void at step {count(void)}"
    if void == 1:
        return typed(recipe.asked, f"{said}, and smaller steps widen less", lr=recipe.options.lr / 10)
    return typed(recipe.asked, f"{said}, and half as many stop well before", steps=void // 2)


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
    return typed(
        recipe.asked,
        f"Its own curve peaked at step {count(best['step'])} with {percent(best['certified_accuracy'])} of some "
        f"{split} samples (a choice made on those samples: fullcert tune declares it)",
        steps=best["step"],
    )


def _plain(options: Options, metrics: dict[str, Any]) -> str:
    plain, majority = metrics.get("nominal_accuracy"), metrics.get("majority_accuracy")
    if plain is None or majority is None or plain > majority + 0.02:
        return ""
    nothing: dict[str, Any] = dict.fromkeys(("flip_labels", "remove", "replace"), 0) | {
        "tolerance": (),
        "any_category": (),
    }
    nothing |= {"epsilon": 0.0, "test_epsilon": 0.0, "test_tolerance": (), "target_tolerance": 0.0, "at_most": None}
    guessed = {"missing": (), "impute": (*options.impute, *(f"{_column(part)}=mode" for part in options.missing))}
    return typed(
        options,
        f"The plain model is right for {percent(plain)}, and always answering the most frequent class for "
        f"{percent(majority)}: there is little to certify. See what it can learn without a threat, before asking for "
        "certainty",
        **nothing,
        **(guessed if options.missing else {}),
        steps=max(LEARNS, 2 * metrics.get("steps", 0)),
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
        said = f"{percent(1 - owned / reach)} of what widens the bounds belongs to no training row: errors that grow "
        return [typed(recipe.asked, said + "with every step, and less with smaller ones", lr=recipe.options.lr / 2)]
    share, name = max(zip(found.by_column.sum(0).tolist(), found.columns.tolist(), strict=True))
    share /= float(found.by_column.sum()) or 1.0
    if share < 0.3 or not found.names_columns:
        return []
    said = f"The largest term comes from {_column_told(recipe, name)} ({percent(share)})"
    if 1 in (recipe.options.flip_labels, recipe.options.remove) and name in (LABEL, PRESENCE):
        return [f"{said}, and less than 1 is none: check the rows it leans on, with {audited(recipe.asked)}"]
    what, changes = less_of(recipe, name)
    return [typed(recipe.asked, f"{said}: {what}", **changes)]


def audited(options: Options) -> str:
    """The commands that keep this run and list the rows whose checking settles predictions."""
    out = shlex.quote(f"runs/{options.title.partition('.')[0]}-audited")
    return f"{command_for(given_for(options))} --out {out} && fullcert audit {out}"


def column_of(recipe: Recipe, number: int) -> str | None:
    """The column of the user that an input is made of."""
    encoding = recipe.task.encoding
    if number < 0:
        return None
    if encoding is not None:
        return [column.name for column in encoding.columns for _ in range(column.width)][number]
    return recipe.data.features[number] if recipe.data.features is not None else f"input {number}"


def _column_told(recipe: Recipe, number: int) -> str:
    return {LABEL: "the labels", PRESENCE: "rows that may be gone"}.get(number) or f"“{column_of(recipe, number)}”"


def _column(part: str) -> str:
    """The column of COLUMN=..., or of COLUMN alone."""
    return part.partition("=")[0]


def less_of(recipe: Recipe, number: int) -> tuple[str, dict[str, Any]]:
    """What to do about the column behind the largest term, and the options that it changes."""
    options, name = recipe.asked, column_of(recipe, number) or ""
    if number in (LABEL, PRESENCE):
        counted = "remove" if number == PRESENCE else "flip_labels" if options.flip_labels else ""
        if not counted:
            return "ask about a smaller tolerance", {"target_tolerance": options.target_tolerance / 2}
        return "ask about fewer", {counted: getattr(options, counted) // 2}
    left_out = {"ignore": (*options.ignore, name)}
    for threat in ("missing", "any_category"):
        if name in map(_column, getattr(options, threat)):
            others = tuple(part for part in getattr(options, threat) if _column(part) != name)
            ways = {"missing": "fill in some of its missing values (fullcert audit says which first)"}
            return f"{ways.get(threat, 'find out some of its categories')}, or leave it out", {
                **left_out,
                threat: others,
            }
    if name in map(_column, options.tolerance):
        tolerance = tuple(_halved(part) if _column(part) == name else part for part in options.tolerance)
        return "measure it more exactly, or leave it out (--ignore)", {"tolerance": tolerance}
    return "ask about smaller moves", smaller(options)


def _kind(options: Options) -> str:
    """Sets and activations that are known to certify more."""
    if options.domain == "interval":
        return typed(options, "Intervals certify least", domain="zonotope")
    has_layers = options.model == "cnn" or (options.model == "mlp" and options.hidden != "none")
    if has_layers and options.activation == "relu":
        return typed(options, "Smooth activations certify further", activation="tanh")
    return ""
