"""Reading a certificate at the optimum: the inclusion is computed again from what the file holds.

The data, the features and the objective must be those whose digests the record has, as far as this version and that one
write digests alike; the plain model must give the answers that the file holds. Then rows are made, the gradient that
the given weights leave is enclosed, and ranges are found: as when it was made, so nothing that was computed is trusted.
"""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor, nn

from ..files import sealed_files as files
from ..files.checked_content import require
from ..same_program import identity
from ..same_program.network_probe import require_same
from . import optimum_files
from .certify_optimum import Counted, features_made, identity_of, optimum_of, targets_of
from .changes import Changes
from .optimum_certificate import OptimumCertificate, evaluated
from .optimum_files import Held
from .training_rows import Rows


def load(path: str | Path, features: nn.Module | None = None) -> OptimumCertificate:
    """Read a certificate; ``features``: the module that makes them, where it is code of the user."""
    held = optimum_files.opened(path)
    with files.told(path, optimum_files.WHAT):
        return _made(path, held, _module(path, held, features))


def _module(path: str | Path, held: Held, given: nn.Module | None) -> nn.Module | None:
    if not held.own:
        if held.described is None:
            return None
        made = optimum_files.made_features(held.described, held.within("features."))
        return made.eval().requires_grad_(False)
    if given is None:
        raise ValueError(
            "its features are code of the user: pass load(path, model=...) with the module that makes them"
        )
    made = copy.deepcopy(given).double().eval().requires_grad_(False)
    made.load_state_dict(held.within("features."))
    return made


def _made(path: str | Path, held: Held, module: nn.Module | None) -> OptimumCertificate:
    record = dict(held.record)
    x, y, weights = (held.tensors.get(name) for name in ("inputs", "targets", "weights"))
    assert x is not None and y is not None
    _require_digests(record, x, y, weights, module)
    given = [held.tensors[f"given.{place}"] for place in range(len(record["l2"]))]
    bias = bool(record["intercept"])
    head = _head(given[0], bias)
    nominal = nn.Sequential(evaluated(module), evaluated(head)).eval() if module is not None else evaluated(head)
    require_same(nominal, record["input_shape"], held.tensors, path, stranger=held.own)
    found = features_made(module, x.double())
    require(found.shape[1] == head.in_features, "its weights are for other features")
    classes, targets = targets_of(record["loss"], head, y)
    changes = Changes(optimum_files.clauses(held), y if classes is None else y.long(), classes)
    _require_sense(changes, record)
    counted = Counted.of(weights, record.get("class_weights"), y, record["loss"], record["tolerance"])
    optima = []
    for ridge, own in zip(record["l2"], given, strict=True):
        require(own.shape == given[0].shape, "the weights for its ridges have different shapes")
        rows = Rows.of(found, counted.weights, ridge * len(x), bias, bool(record["penalise_bias"]))
        options = targets, record["loss"], record["width"], own / rows.scale, counted
        optima.append(optimum_of(rows, changes, *options))
    del record["budgets"]
    return OptimumCertificate(nominal, module, tuple(optima), record, data=(x, y, weights))


def _head(given: Tensor, bias: bool) -> nn.Linear:
    head = nn.Linear(given.shape[1] - bias, len(given), bias=bias).double().requires_grad_(False)
    head.weight.copy_(given[:, : head.in_features])
    if bias:
        head.bias.copy_(given[:, -1])
    return head


def _require_digests(
    record: dict[str, object], x: Tensor, y: Tensor, weights: Tensor | None, module: nn.Module | None
) -> None:
    """Refuse data, features or an objective that are not those whose digests the record has."""
    then = record["identity"]
    assert isinstance(then, dict)
    now = identity_of(record, x, y, weights, module)
    same = all(then.get(f"{identity.VERSION}{name}") == version for name, version in identity.versions().items())
    asked = ("data", "features", "objective") if same else ("data",)
    changed = [name for name in asked if then.get(name) != now[name]]
    require(not changed, f"its {' and '.join(changed)} {'are' if changed else ''} not those that it was made of")


def _require_sense(changes: Changes, record: dict[str, object]) -> None:
    """Refuse clauses that change nothing of this kind, or rows that are verified."""
    verified = record.get("verified", [])
    assert isinstance(verified, list)
    for clause in changes.clauses:
        require((clause.allowed is None) == (changes.classes is None), "its threat is about another kind of targets")
        if clause.allowed is not None:
            require(clause.allowed.shape[1] == changes.classes, "its threat is about other classes than there are")
        require(not clause.touched[verified].any(), "a row that was verified is said to be in doubt")
