"""The numbers of a run: how often the plain model is right, how often no attacker can change that, and what the report
shows of it."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import rounding
from boundflow.answers.prediction import classes, share
from boundflow.threats import Linf, Threat
from fullcert.data.encoding import DECLARED, Encoding, Image
from fullcert.data.plane_grid import grid_around
from fullcert.experiment import missing_cells, runs, threats
from fullcert.experiment.options import THREAT, Options, flag_of
from fullcert.experiment.training import Recipe
from fullcert.networks import linear_weights, optimum_fitting
from fullcert.results import constant_answer
from fullcert.system.jobs import UNFOLLOWED, Counted

CHUNK = 1024  # test inputs at a time
STEP_SAMPLES = 200  # validation samples, on which `step_log.py` measures
CURVE = 500  # test samples on which the test radius is varied
POINTS = 60  # along each axis of the plane
DRAWN = 1000  # training samples
SCALED = ("breast-cancer", "iris")  # datasets whose columns come scaled by what was observed
FINISHED = "finished"  # when, which no training gives again
RADII = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # times the radius of the run


Made = bf.Certificate | bf.OptimumCertificate


class Answers:
    """What a certificate says of labelled samples, in the units of the user: bounds and widths are rounded outwards."""

    def __init__(
        self,
        recipe: Recipe,
        certificate: Made,
        x: Tensor,
        y: Tensor,
        threat: Threat,
        follow: Counted = UNFOLLOWED,
    ):
        self.regression, self.true = recipe.task.regression, y
        found = certificate.predict(x, threat=threat, chunk=CHUNK, tell=follow.part())
        self.label, self.certified = found.label.cpu(), found.certified.cpu()
        self.lower, self.upper = found.lower.cpu(), found.upper.cpu()
        self.measure = "width" if self.regression else "margin"  # smaller is better, or larger
        self.measured = (found.width if self.regression else found.margin).cpu()
        with torch.no_grad():
            parts = [as_asked(certificate, threat.observed(part)) for part in x.split(CHUNK)]
            plain = torch.cat([certificate.nominal(part) for part in parts]).cpu()
        if self.regression and recipe.task.encoding is not None:
            scale, center = recipe.task.encoding.target.scale, recipe.task.encoding.target.center
            bounds = rounding.affine_image(torch.stack((self.lower, self.upper)), scale, center)
            self.lower, self.upper = bounds
            self.measured = rounding.width(bounds).amax(1)
            plain, self.label, self.true = (part.double() * scale + center for part in (plain, self.label, y))
            self.between = rounding.before_scaling(y, scale, center)
        self.plain = plain[:, 0] if self.regression else classes(plain)

    @property
    def right(self) -> Tensor:
        return self.certified & (self.label == self.true)

    def accuracies(self) -> dict[str, float]:
        """Fractions of the samples; for regression, errors and widths. What one constant answer would reach, too."""
        if self.regression:
            low, high = self.between
            # either end may be the farther one, and the largest of both differences is not negative
            worst = rounding.up(torch.maximum(self.upper[:, 0] - low, high - self.lower[:, 0]))
            return {
                "mean_absolute_error": _finite((self.plain - self.true).abs().mean()),
                "certified_mean_absolute_error": _finite(rounding.upper_mean(worst)),
                "mean_width": _finite(rounding.upper_mean(rounding.width(torch.stack((self.lower, self.upper))))),
                "median_mean_absolute_error": float((self.true - self.true.median()).abs().mean()),
            }
        return {
            "nominal_accuracy": share(self.plain == self.true),
            "certified_accuracy": share(self.right),
            "certified_robustness": share(self.certified),
            "majority_accuracy": share(self.true == self.true.mode().values),
        }


def as_asked(certificate: Made, x: Tensor) -> Tensor:
    """Inputs in the precision of the plain model, which is that of the run, and double at the optimum."""
    return x.double() if isinstance(certificate, bf.OptimumCertificate) else x


def asked(recipe: Recipe, drawn: bool) -> int:
    """How many inputs are asked about, all in all; with what is ``drawn`` in the report."""
    test = len(recipe.data.test.labels)
    curve = len(RADII) + 1 if drawn else 0
    plane = curve * POINTS**2 if recipe.task.planar else 0
    held = min(CURVE, len(recipe.data.validation.labels)) if holds_out(recipe) else 0
    return test + held + curve * min(CURVE, test) + plane


def on_test(recipe: Recipe, certificate: Made, follow: Counted = UNFOLLOWED) -> Answers:
    """The answers for the test set, under the threat to test inputs."""
    return Answers(recipe, certificate, *recipe.tensors(recipe.data.test), recipe.threats.test, follow)


def _finite(value: Tensor) -> Any:
    """A number for JSON; None where training has diverged, or a bound is void."""
    return float(value) if bool(torch.isfinite(value)) else None


def holds_out(recipe: Recipe) -> bool:
    """Whether some samples are held out for validation."""
    return recipe.options.data is None and recipe.data.validation is not recipe.data.test and not recipe.task.regression


def measure(recipe: Recipe, certificate: Made, test: Answers, follow: Counted = UNFOLLOWED) -> dict[str, Any]:
    """The metrics of a run. `void_at_step` is there only if the bounds became void."""
    options = recipe.options
    metrics = {
        "dataset": options.title,
        "domain": options.domain,
        "threat": repr(recipe.threats.training),
        "epsilon": options.epsilon,
        "test_epsilon": options.test_epsilon,
        "seed": options.seed,
        "steps": certificate.record["steps"],
        **({"fit": "optimum"} if isinstance(certificate, bf.OptimumCertificate) else {}),
        "recipe": recipe.rule,
        "seconds": certificate.seconds,
        "test_samples": len(test.true),
        **test.accuracies(),
    }
    metrics["beats_constant_answer"] = constant_answer.beats(metrics)
    if holds_out(recipe):
        x, y = recipe.tensors(recipe.data.validation)
        chosen = slice(0, CURVE)
        held = Answers(recipe, certificate, x[chosen], y[chosen], recipe.threats.test, follow)
        metrics["validation_certified_accuracy"] = held.accuracies()["certified_accuracy"]
    return metrics if certificate.void_at_step is None else {**metrics, "void_at_step": certificate.void_at_step}


def essence(recipe: Recipe, certificate: Made, test: Answers, metrics: dict[str, Any]) -> dict[str, Any]:
    """The task, the threat and the figures: all that the sentence about a run needs."""
    names = (
        *("nominal_accuracy", "certified_accuracy", "certified_robustness", "majority_accuracy"),
        *("mean_width", "mean_absolute_error", "certified_mean_absolute_error", "median_mean_absolute_error"),
    )
    return {
        "task": "regression" if recipe.task.regression else "classification",
        "threat": {
            "training": recipe.threats.training_words,
            "test": recipe.threats.test_words,
            "formal": formal(recipe),
        },
        "headline": {
            "samples": len(test.true),
            "certified": int(test.certified.sum()),
            "void_at_step": certificate.void_at_step,
            **{name: metrics.get(name) for name in names},
        },
    }


def evaluate(
    recipe: Recipe,
    certificate: Made,
    test: Answers,
    metrics: dict[str, Any],
    steps: Sequence[dict[str, Any]],
    follow: Counted,
) -> dict[str, Any]:
    """What the report of a run shows."""
    follow.now("varying the test radius")
    radii = _radii(recipe, certificate, follow)
    follow.now("drawing the plane" if recipe.task.planar else "listing the samples")
    return {
        "format": runs.EVALUATION_FORMAT,
        "title": recipe.options.title,
        "subject": subject(recipe),
        FINISHED: now(),
        **essence(recipe, certificate, test, metrics),
        "measured": measured(recipe),
        "features": linear_weights.intervals(certificate, recipe.data.features, recipe.task.class_names),
        "steps": [{"nominal_accuracy": None, "certified_accuracy": None, **step} for step in steps],
        "radii": radii,
        "layers": layers(certificate),
        "classes": list(recipe.task.class_names) if not recipe.task.regression else [],
        "samples": samples(recipe, test),
        "samples_left_out": 0,
        "plane": plane(recipe, certificate, follow) if recipe.task.planar else None,
        "details": details(recipe, certificate, curve=bool(radii)),
        "notes": notes(recipe, certificate),
        "advice": metrics.get("advice", []),
        "written": written(certificate),
    }


def subject(recipe: Recipe) -> dict[str, Any]:
    """What is predicted, from what, and on how many rows."""
    encoding, data = recipe.task.encoding, recipe.data
    return {
        "target": None if encoding is None else encoding.target.name,
        "inputs": list(data.train.inputs.shape[1:]),
        "columns": None if encoding is None else len(encoding.columns),
        "training": len(data.train.labels),
        "test": len(data.test.labels),
    }


def now() -> str:
    """The time, for people; the one thing about a run that is never made again."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def measured(recipe: Recipe) -> dict[str, Any]:
    """On which samples accuracies were measured while it trained (`step_log.py`)."""
    split = "test" if recipe.data.validation is recipe.data.test else "validation"
    return {"samples": min(STEP_SAMPLES, len(recipe.data.validation.labels)), "split": split}


def formal(recipe: Recipe) -> str:
    """The threat to the training data as it was given: to a table by flags, whose amounts are in its own units."""
    if recipe.task.encoding is None:
        return repr(recipe.threats.training)
    told = []
    for entry in fields(Options):
        value = getattr(recipe.options, entry.name)
        if entry.metadata["rich_help_panel"] != THREAT or entry.name.startswith("test_") or value in (entry.default, 0):
            continue
        told += [f"{flag_of(entry.name)} {part}" for part in (value if isinstance(value, tuple) else (value,))]
    return " ".join(told)


def samples(recipe: Recipe, test: Answers) -> list[dict[str, Any]]:
    """One entry for every test sample."""
    names = recipe.task.class_names
    rows = []
    for row in range(len(test.true)):
        named = {"true": float(test.true[row]), "label": _finite(test.plain[row])}
        if not test.regression:
            named = {"true": names[int(test.true[row])], "label": names[int(test.label[row])]}
        bounds = {end: [_finite(v) for v in getattr(test, end)[row]] for end in ("lower", "upper")}
        certified = {"certified": bool(test.certified[row]), test.measure: _finite(test.measured[row])}
        where = recipe.task.origins["test"].of(row) if recipe.task.origins else {}
        rows.append({"row": row, **where, **named, **certified, **bounds})
    return rows


def _radii(recipe: Recipe, certificate: Made, follow: Counted) -> list[dict[str, float]]:
    """How far test inputs could move: from none to the radius of the run and beyond, on some of the samples."""
    if not movable(certificate):
        return []
    x, y = (part[:CURVE] for part in recipe.tensors(recipe.data.test))
    if bool(torch.isnan(x).any()):
        return []
    curve = []
    for epsilon in radii_of(recipe):
        threat = _moved(recipe, epsilon)
        if threat is None:
            return []
        found = Answers(recipe, certificate, x, y, threat, follow).accuracies()
        of_sets = {name: value for name, value in found.items() if name.startswith("certified") or name == "mean_width"}
        curve.append({"epsilon": epsilon, **of_sets})
    return curve


def movable(certificate: Made) -> bool:
    """Whether inputs can be asked about that have moved: there are sets of models, or features are columns."""
    if isinstance(certificate, bf.OptimumCertificate):
        return optimum_fitting.raw_weights(certificate.nominal) is not None
    return certificate.model is not None


def radii_of(recipe: Recipe) -> list[float]:
    """None, the radius of the run to the last digit, and others around it."""
    base = recipe.options.test_epsilon or recipe.options.epsilon or 0.001
    return [0.0, *(base if factor == 1 else float(f"{base * factor:.3g}") for factor in RADII)]


def _moved(recipe: Recipe, epsilon: float) -> Threat | None:
    """Every number of a test input moved by epsilon, categories not; None where there are no numbers."""
    encoding, data = recipe.task.encoding, recipe.data
    if not epsilon or encoding is None or isinstance(encoding.columns[0], Image):
        return Linf(epsilon, clip=data.valid)
    unit = torch.finfo(recipe.dtype).eps
    subject = threats.Subject(data.test.inputs, encoding, data.classes, data.valid, unit, *recipe.reaches())
    # a run that moves no test input may have filled cells with numbers that --valid excludes
    options = recipe.options if recipe.options.test_epsilon else replace(recipe.options, valid=())
    return threats.moved(subject, epsilon, options) if encoding.numbers else None


def layers(certificate: Made) -> list[dict[str, Any]]:
    """How wide the parameters are, by layer."""
    if isinstance(certificate, bf.OptimumCertificate) or certificate.model is None:
        return []
    found = []
    for name, parameter in certificate.model.named_parameters():
        assert isinstance(parameter, bf.Bounded)
        width = parameter.upper - parameter.lower
        found.append(
            {
                "name": name,
                "shape": list(parameter.shape),
                "mean_width": float(width.mean()),
                "largest_width": float(width.max()),
                "typical_size": float(((parameter.upper + parameter.lower) / 2).abs().mean()),
            }
        )
    return found


# --- the plane --------------------------------------------------------------------------------------------------------


def plane(recipe: Recipe, certificate: Made, follow: Counted) -> dict[str, Any]:
    """Which class is certified at every point of a grid, for some radii."""
    train = recipe.data.train
    known = ~np.isnan(train.inputs).any(1)  # a sample of which a value is missing has no place in the plane
    inputs, labels = train.inputs[known], train.labels[known]
    x = torch.as_tensor(inputs, dtype=recipe.dtype, device=recipe.device)
    across, down, grid = grid_around(x, POINTS)
    fixed = isinstance(certificate, bf.OptimumCertificate) and not movable(certificate)
    epsilons = [0.0] if fixed else radii_of(recipe)
    with torch.no_grad():
        plain = "".join(map(str, classes(certificate.nominal(as_asked(certificate, grid))).tolist()))
    drawn = slice(0, DRAWN)
    points = zip(*inputs[drawn].T.tolist(), labels[drawn].tolist(), strict=True)
    return {
        "features": list(recipe.data.features or ("first feature", "second feature")),
        "across": [float(across[0]), float(across[-1])],
        "down": [float(down[0]), float(down[-1])],
        "points": POINTS,
        "epsilons": epsilons,
        "start": epsilons.index(recipe.options.test_epsilon),  # what the claim of the run is about
        "certified": _marks(certificate, grid, epsilons, follow),
        "nominal": plain,
        "train": [list(point) for point in points],
    }


def _marks(certificate: Made, grid: Tensor, epsilons: list[float], follow: Counted) -> list[str]:
    """The certified class at every point, or a dot, for each radius.

    From the largest radius down: what is certain within a radius is certain within every smaller one, so that most
    points are asked for once.
    """
    marks, found = np.full(len(grid), "."), {}
    for epsilon in sorted(epsilons, reverse=True):
        left = np.flatnonzero(marks == ".")
        if len(left):
            answers = certificate.predict(grid[torch.from_numpy(left).to(grid.device)], epsilon, chunk=CHUNK)
            labels = answers.label.cpu().numpy().astype(int).astype(str)
            marks[left] = np.where(answers.certified.cpu().numpy(), labels, ".")
        found[epsilon] = "".join(marks)
        follow.count(len(grid))
    return [found[epsilon] for epsilon in epsilons]


# --- words ------------------------------------------------------------------------------------------------------------


def details(recipe: Recipe, certificate: Made, curve: bool = True) -> list[list[Any]]:
    """What was fixed, what is covered and what is not, as pairs of words."""
    options, record, data = recipe.options, certificate.record, recipe.data
    optimum = isinstance(certificate, bf.OptimumCertificate)
    fixed = [
        ["data", f"{options.title}: {len(data.train.labels):,} training and {len(data.test.labels):,} test samples"],
        ["seed", str(options.seed)],
        *(_fitted(record) if optimum else _trained(recipe, certificate)),
        ["recipe", recipe_words(recipe.rule)],
        ["precision", "float64" if optimum else options.dtype],
        *([] if optimum else [["sets", options.domain]]),
        ["data fingerprint", f"sha256 {record['data'][:16]}…"],
    ]
    covered = [
        ["training data", f"everyone who {recipe.threats.training_words}"],
        ["test inputs", f"everyone who {recipe.threats.test_words}" if recipe.threats.test_words else "as they are"],
        ["floating point", "every order of summation, in the precision of the run"],
        *([["solver", str(record["statement"])]] if optimum else []),
    ]
    not_covered = [
        ["choices", "options that were chosen by looking at data inside the threat"],
    ]
    chosen_on = options.tuned_on.partition(":")[0]
    if chosen_on == "trusted":
        covered.append(["steps and learning rate", "chosen on trusted data, before the training data were looked at"])
    elif chosen_on == "declared":
        declared = "chosen on training and validation samples, declared as if fixed beforehand"
        not_covered.append(["steps and learning rate", declared])
    if recipe.task.encoding is None and options.dataset in SCALED:
        not_covered.append(
            ["scaling", "columns span [0, 1] over the observed training samples, as if fixed beforehand"]
        )
    for source, told in encoded(recipe.task.encoding):
        (not_covered if source == DECLARED else covered).append(told)
    not_covered += filled(recipe.task.encoding)
    if recipe.task.unlabelled:
        fixed.append(["rows left out", f"{recipe.task.unlabelled:,}, which have no value in the target column"])
    if curve and (recipe.task.encoding is not None or len(data.test.labels) > CURVE):
        unit = "" if recipe.task.encoding is None else ", moved in units of the columns' scales, categories not"
        fixed.append(
            ["curve over the test radius", f"of the first {min(CURVE, len(data.test.labels))} test samples{unit}"]
        )
    return [["What was fixed", fixed], ["What is covered", covered], ["What is not covered", not_covered]]


def _trained(recipe: Recipe, certificate: Made) -> list[list[str]]:
    """How a network was trained."""
    options = recipe.options
    return [
        ["steps", str(certificate.record["steps"])],
        ["network", _network(certificate.nominal)],
        ["loss", options.loss],
        ["optimizer", f"{options.optimizer}, learning rate {options.lr:g}"],
        ["batches", "all samples at once" if not options.batch_size else f"{options.batch_size} samples, shuffled"],
    ]


def _fitted(record: dict[str, Any]) -> list[list[str]]:
    """What was fitted to its optimum."""
    used = {**record["recipe"]["by_rule"], **record["recipe"]["given"]}
    features = {"none": "the columns themselves", "kernel": "a Gaussian kernel on the training rows"}
    ridge = ", ".join(f"{l2:.3g}" for l2 in record["l2"])
    return [
        ["fit", "to the optimum: no steps, learning rate or order of samples"],
        ["columns", str(used["columns"])],
        ["features", features.get(used["features"], str(used["features"]))],
        ["loss", f"{record['loss']}, with a ridge of {ridge} on all but the intercept"],
    ]


def recipe_words(rule: dict[str, Any]) -> str:
    """Which rule chose how the network is trained, and what was given instead."""
    told, given = f"by the rule \u201c{rule['rule']}\u201d", [name.replace("_", " ") for name in rule["given"]]
    if not rule["by_rule"]:
        return "all of it given, none by rule"
    return f"{told}; given instead: {', '.join(given)}" if given else told


def encoded(encoding: Encoding | None) -> list[tuple[str, list[str]]]:
    """Where the numbers and names by which a table became inputs and targets come from, and what is said of them."""
    if encoding is None:
        return []
    by_source: dict[str, list[str]] = {}
    for column in encoding.columns:
        by_source.setdefault(column.source, []).append(column.name)
    found = [
        (source, [f"encoding of {len(names)} column{'s' if len(names) > 1 else ''}", f"{source}: {', '.join(names)}"])
        for source, names in by_source.items()
    ]
    target = encoding.target
    what = "scale of the target" if target.regression else "list of classes"
    return [*found, (target.source, [what, f"{target.source}: {target.name}"])]


def filled(encoding: Encoding | None) -> list[list[str]]:
    """Missing cells in which one value stands: what really stood there is not covered, wherever the value is from."""
    found = {} if encoding is None else missing_cells.told(encoding)
    told = {source: f"filled with one value, {source}: {', '.join(values)}" for source, values in found.items()}
    return [["missing cells", words] for words in told.values()]


def _network(model: nn.Module) -> str:
    layers = [layer for layer in model.modules() if not list(layer.children())]
    told = [f"{type(layer).__name__} {layer.extra_repr()}".strip() for layer in layers]
    return ", ".join(told[:8]) + (", ..." if len(told) > 8 else "")


def notes(recipe: Recipe, certificate: Made) -> list[str]:
    """What a reader must know."""
    found = list(certificate.record.get("not_tracked", ()))
    if recipe.options.remove:
        found.append(
            "Training without a sample is training with weight 0 in its place: batches, their order, the split and the "
            "divisor of the mean stay."
        )
    if recipe.options.replace:
        found.append("What bounds a replaced sample is the clipping of its gradient, which is part of training here.")
    return [note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".") for note in found]


def written(certificate: Made) -> str:
    versions = {name: certificate.record.get(name) for name in ("boundflow", "torch", "rounding")}
    return ", ".join(f"{name} {value}" for name, value in versions.items() if value is not None)
