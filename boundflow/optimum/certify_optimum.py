"""`certify_optimum`: a certificate of the model that minimises a convex objective, whichever solver finds it.

    F(Theta) = 1/n sum_i w_i loss(Theta x_i, y_i) + l2/2 |weights|^2

    squared        1/2 |z - onehot(y)|^2, one output a class; for numbers 1/2 (z - y)^2
    logistic       one output, classes 0 and 1
    squared_hinge  1/2 max(0, 1 - (2 y - 1) z)^2, one output, classes 0 and 1; the intercept penalised
    huber          numbers, one output, with its width; the intercept penalised

The intercept of the head has no ridge unless ``penalise_bias``. scikit-learn's ``Ridge(alpha)`` is ``l2 = alpha / n``,
``LogisticRegression(C)`` is ``l2 = 1 / (C n)``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..arithmetic import rounding
from ..errors import BoundFlowError, UnsafePrecision, UnsupportedProgram
from ..same_program import identity
from ..tensor.lift import Given
from ..threats import Threat
from ..version import __version__
from .changes import Changes
from .logit_bounds import Optimum
from .logit_losses import Huber, Logistic, Loss, SquaredHinge
from .optimum_certificate import OptimumCertificate, evaluated
from .ranges import Observed
from .squared import SquaredOptimum
from .training_rows import Rows

SQUARED = "squared"
ALONE, SAME = 8, 2.0**-20  # rows whose features are made alone, too, and how near these must be
LOSSES: dict[str, Callable[..., Loss]] = {"logistic": Logistic, "squared_hinge": SquaredHinge, "huber": Huber}


class Mapped(nn.Module):
    """A function of inputs as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def certify_optimum(
    head: nn.Linear,
    data: tuple[Given, Given],
    *,
    threat: Threat,
    loss: str = SQUARED,
    l2: float | Sequence[float],
    penalise_bias: bool = False,
    features: nn.Module | Callable[[Tensor], Tensor] | None = None,
    sample_weights: Given | None = None,
    class_weights: Sequence[float] | None = None,
    fitted: bool = False,
    tolerance: float = 0.0,
    width: float = 1.0,
) -> OptimumCertificate:
    """The certificate of the optimum on ``data = (inputs, targets)`` under a threat to labels or targets.

    ``head`` is the last layer; it is fitted, or, with ``fitted``, taken as it is, and the gradient that it leaves is
    charged. ``features`` make what the head sees, fixed and without looking at labels. ``class_weights``: how much rows
    of class 0 and of class 1 count, which a wrong label changes, too (not for squared loss). ``tolerance``: no entry of
    the gradient of the mean objective, over samples or over their weights, that a solver leaves on other data is
    larger. Several ``l2``: an answer is certain only if it is the same for each.
    """
    begin = time.perf_counter()
    rounding.require_gradual_underflow()
    ridges = _ridges(l2)
    module = _module(features)
    x, y = torch.as_tensor(data[0]).detach(), torch.as_tensor(data[1]).detach().clone()
    found = features_made(module, x.double())
    classes, targets = targets_of(loss, head, y)
    changes = Changes.of(threat, y if classes is None else y.long(), classes)
    weights = None if sample_weights is None else torch.as_tensor(sample_weights).double()
    counted = Counted.of(weights, class_weights, y, loss, tolerance)
    optima: list[Optimum] = []
    for ridge in ridges:
        rows = Rows.of(found, counted.weights, ridge * len(x), head.bias is not None, penalise_bias)
        options = targets, loss, width, _given(head, rows) if fitted else None, counted
        optima.append(optimum_of(rows, changes, *options))
    if not fitted:
        head = _fitted(head, optima[0])
    nominal = evaluated(head) if module is None else nn.Sequential(evaluated(module), evaluated(head)).eval()
    record = _record(locals() | {"ridges": ridges})
    made = None if module is None else evaluated(module)
    held = x, y, None if weights is None else weights.clone()
    certificate = OptimumCertificate(nominal, made, tuple(optima), record, data=held)
    certificate.seconds = time.perf_counter() - begin
    return certificate


def _ridges(l2: float | Sequence[float]) -> list[float]:
    ridges = [float(value) for value in (l2 if isinstance(l2, Sequence) else [l2])]
    if not ridges or not all(0 < ridge < float("inf") for ridge in ridges):
        raise ValueError(f"l2 must be above 0, since without a ridge one wrong label can move anything: got {l2!r}")
    return ridges


def _module(features: Any) -> nn.Module | None:
    if features is None or isinstance(features, nn.Module):
        return None if features is None else copy.deepcopy(features).double().eval().requires_grad_(False)
    return Mapped(features)


def features_made(module: nn.Module | None, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = x if module is None else module(x)
        if found.dim() != 2 or len(found) != len(x):
            raise ValueError(f"features must be a row for every sample, and not of shape {tuple(found.shape)}")
        if module is not None:
            _require_fixed(module, x, found)
    return found.double()


def _require_fixed(module: nn.Module, x: Tensor, found: Tensor) -> None:
    """Refuse features that are others the second time, or in other company."""
    if not torch.equal(module(x), found):
        raise UnsupportedProgram("the features are others when they are made again: they draw, or keep something")
    places = torch.linspace(0, len(x) - 1, min(len(x), ALONE)).long()
    alone = torch.cat([module(x[place : place + 1]) for place in places.tolist()])
    size = found.abs().amax(0) + torch.finfo(found.dtype).tiny
    if not bool(((alone - found[places]).abs() <= SAME * size).all()):
        raise UnsupportedProgram("the features of a row depend on the other rows: give features of one row at a time")


def targets_of(loss: str, head: nn.Linear, y: Tensor) -> tuple[int | None, Tensor]:
    """How many classes there are (None: numbers), and what the outputs are to be, (n, outputs) or (n)."""
    if loss != SQUARED and loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join((SQUARED, *LOSSES))}, and not {loss!r}")
    outputs = head.out_features
    if y.dim() != 1:
        raise ValueError(f"targets must be one class number or one number a sample, and not of shape {tuple(y.shape)}")
    if loss == SQUARED and not y.is_floating_point():
        _check_classes(y, outputs)
        return outputs, torch.nn.functional.one_hot(y.long(), outputs).double()
    if outputs != 1:
        raise ValueError(f"{loss} is for a head with one output, and this one has {outputs}")
    if loss == "huber" or loss == SQUARED:
        if not bool(torch.isfinite(y).all()):
            raise ValueError("a target is NaN or infinite")
        return None, y.double().unsqueeze(1) if loss == SQUARED else y.double()
    _check_classes(y, 2)
    return 2, y.double()


def _check_classes(y: Tensor, classes: int) -> None:
    if classes < 2:
        raise ValueError("squared loss on classes needs a head with one output for each of them")
    if y.is_floating_point() or not bool(((y >= 0) & (y < classes)).all()):
        raise ValueError(f"classes must be whole numbers from 0 to {classes - 1}")


class Counted(NamedTuple):
    """How much rows count as they are labelled, what classes count, and how large the gradient of a solver may be."""

    weights: Tensor | None
    of_classes: Tensor | None
    tolerance: float

    @staticmethod
    def of(weights: Tensor | None, by_class: Sequence[float] | None, y: Tensor, loss: str, tolerance: float) -> Counted:
        """With weights of classes the mean on other data is one over other weights, which the tolerance is for."""
        if by_class is None:
            return Counted(weights, None, tolerance)
        of_classes = _class_weights(by_class, loss)
        counted = of_classes.to(y.device)[y.long()] * (1.0 if weights is None else weights.to(y.device))
        return Counted(counted, of_classes, tolerance * float(of_classes.max() / of_classes.min()))


def _class_weights(given: Sequence[float], loss: str) -> Tensor:
    if loss not in ("logistic", "squared_hinge"):
        raise BoundFlowError(
            f"class_weights are for logistic and squared_hinge, and not for {loss}: give sample_weights"
        )
    found = torch.tensor([float(weight) for weight in given], dtype=torch.float64)
    if len(found) != 2 or not bool((torch.isfinite(found) & (found > 0)).all()):
        raise ValueError(f"class_weights are one finite number above 0 for each of the two classes, got {given!r}")
    return found


def optimum_of(
    rows: Rows, changes: Changes, targets: Tensor, loss: str, width: float, given: Tensor | None, counted: Counted
) -> Optimum:
    if loss == SQUARED:
        return SquaredOptimum.of(rows, changes, targets, given, counted.tolerance)
    made = Huber(width) if loss == "huber" else LOSSES[loss]()
    made.of_classes = counted.of_classes
    if made.penalised and rows.free_intercept:
        raise BoundFlowError(f"{loss} with a free intercept can have several optima: say penalise_bias=True")
    if len(changes.clauses) != 1:
        raise BoundFlowError(f"{loss} is for one budget: write AtMost(k, Labels()), or use loss='squared'")
    return Observed.of(rows, changes, targets, made, given, counted.tolerance)


def _given(head: nn.Linear, rows: Rows) -> Tensor:
    weights = head.weight.detach().double()
    if head.bias is not None:
        weights = torch.cat((weights, head.bias.detach().double()[:, None]), 1)
    if weights.shape[1] != rows.width:
        raise ValueError(f"the head takes {head.in_features} features, and there are {rows.width} columns")
    return weights / rows.scale


def _fitted(head: nn.Linear, optimum: Optimum) -> nn.Linear:
    weights = optimum.weights * optimum.rows.scale
    if not bool(torch.isfinite(weights).all()):
        raise UnsafePrecision("the optimum was not found: a larger l2 makes it unique and near")
    made = copy.deepcopy(head).double()
    with torch.no_grad():
        made.weight.copy_(weights[:, : head.in_features])
        if made.bias is not None:
            made.bias.copy_(weights[:, -1])
    return made


def _record(given: dict[str, Any]) -> dict[str, Any]:
    """What the certificate rests on."""
    x, y, threat = given["x"], given["y"], given["threat"]
    by_class = given["class_weights"]
    record = {
        "way": "optimum",
        "version": __version__,
        "task": "regression" if given["classes"] is None else "classification",
        "samples": len(x),
        "input_shape": list(x.shape[1:]),
        "threat": repr(threat),
        "loss": given["loss"],
        "l2": given["ridges"],
        "penalise_bias": given["penalise_bias"],
        **({} if by_class is None else {"class_weights": [float(weight) for weight in by_class]}),
        "intercept": given["head"].bias is not None,
        "width": float(given["width"]),
        "fitted": given["fitted"],
        "tolerance": float(given["tolerance"]),
        "rounding": rounding.mode(),
        "statement": _statement(given["tolerance"]),
    }
    parts = identity_of(record, x, y, given["weights"], given["module"])
    return {**record, "identity": {**parts, "threat": identity.of_value(threat)}}


def _statement(tolerance: float) -> str:
    """Of which solvers a certificate speaks."""
    whichever = "whichever of these datasets it is given"
    if not tolerance:
        return f"every solver that reaches the optimum, on {whichever}"
    return f"every solver whose weights leave no entry of the gradient above {tolerance:g}, on {whichever}"


def identity_of(
    record: dict[str, Any], x: Tensor, y: Tensor, weights: Tensor | None, module: nn.Module | None
) -> dict[str, str]:
    """Digests of what a certificate rests on, but for the threat."""
    names = (
        "loss",
        "l2",
        "penalise_bias",
        "intercept",
        "width",
        *(["class_weights"] if "class_weights" in record else []),
    )
    return {
        "data": identity.of_tensors(x, y),
        "features": identity.of_value(None if module is None else (identity.of_model(module), module.state_dict())),
        "objective": identity.of_value(([record[name] for name in names], weights)),
        "solver": identity.of_value((record["fitted"], record["tolerance"])),
        **{f"{identity.VERSION}{name}": version for name, version in identity.versions().items()},
    }
