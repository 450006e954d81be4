"""What a fit has found, known again before an answer: the certificate, the classes, the threat and the program.

Attributes of an estimator can be replaced, and it can be pickled and read by other versions, or beside other code of
its model. Then its answers would be those of nothing that was fitted: they are refused, as far as that can be told.
"""

import warnings
from typing import Any, NamedTuple

from torch import nn

from boundflow.optimum import OptimumCertificate
from boundflow.same_program.identity import of_tensors, of_value, versions
from boundflow.tensor.bounded import Bounded

OBJECTS = ("certificate_", "threat_", "program_")  # the very ones that the fit has made
VALUES = ("classes_", "n_features_in_", "feature_names_in_", "categories_", "columns_")
CODE = "code of its model"
SETS = ("boundflow", "python")  # other versions of which may read sets otherwise


class OtherVersions(UserWarning):
    """An estimator was fitted by other versions than those that read it."""


class Fitted(NamedTuple):
    """What an estimator has found: objects, digests of what can change within them, and what has computed it."""

    objects: dict[str, Any]
    digests: dict[str, str]
    versions: dict[str, str]


def of(estimator: Any) -> Fitted:
    """What an estimator has found by now."""
    objects = {name: getattr(estimator, name, None) for name in OBJECTS}
    return Fitted(objects, digests(estimator), versions())


def digests(estimator: Any) -> dict[str, str]:
    """The numbers of both models, the code of the plain one, the record, and what answers are called."""
    certificate = estimator.certificate_
    if isinstance(certificate, OptimumCertificate):
        rows = [(o.rows.inputs, o.rows.weights, o.rows.ridge, o.rows.scale) for o in certificate.optima]
        numbers = of_value([rows, [(o.changes.clauses, o.changes.targets, o.weights) for o in certificate.optima]])
        return {
            "numbers of its models": of_value((of_tensors(*certificate.nominal.state_dict().values()), numbers)),
            CODE: of_value(certificate.nominal),
            **_said(estimator),
        }
    plain = [*certificate.nominal.parameters(), *certificate.nominal.buffers()]
    model = () if certificate.model is None else (*certificate.model.parameters(), *certificate.model.buffers())
    sets = [value.set.bounds if isinstance(value, Bounded) else value for value in model]
    return {
        "numbers of its models": of_value((of_tensors(*plain), of_tensors(*sets))),
        CODE: of_value(certificate.nominal),
        **_said(estimator),
    }


def _said(estimator: Any) -> dict[str, str]:
    """Digests of the record, and of what answers are called."""
    record = {"record of its certificate": of_value(estimator.certificate_.record)}
    return record | {name: of_value(getattr(estimator, name, None)) for name in VALUES}


def require(estimator: Any, certified: bool) -> None:
    """Refuse what is not what was fitted; ``certified`` answers of another version of the library, too."""
    fitted: Fitted | None = getattr(estimator, "_fitted", None)
    if fitted is None:
        raise ValueError(
            "this estimator does not say what it was fitted with, like those of earlier versions: fit again"
        )
    others = [name for name, version in versions().items() if fitted.versions[name] != version]
    changed = [name for name in OBJECTS if getattr(estimator, name, None) is not fitted.objects[name]]
    if not changed:
        now = digests(estimator)
        changed = [name for name in now if now[name] != fitted.digests[name] and not (others and name == CODE)]
    if changed:
        raise ValueError(f"this estimator was changed after it was fitted, in {', '.join(changed)}: fit again")
    if certified and (any(name in others for name in SETS) or (others and _has_code(estimator.certificate_.nominal))):
        raise ValueError(f"{told(fitted)}, whose sets or code may mean something else here: fit again")


def _has_code(model: nn.Module) -> bool:
    """Whether a model is more than layers of PyTorch: code of other versions cannot be compared."""
    return any(getattr(nn, type(module).__name__, None) is not type(module) for module in model.modules())


def warn(estimator: Any) -> None:
    """Say of an estimator that is read which versions fitted it, where they are others."""
    fitted: Fitted | None = getattr(estimator, "_fitted", None)
    if fitted is not None and fitted.versions != versions():
        warnings.warn(
            f"{told(fitted)}: its last digits may be others, and its sets are those of then", OtherVersions, 3
        )


def told(fitted: Fitted) -> str:
    now = versions()
    others = [f"{name} {version}" for name, version in fitted.versions.items() if now.get(name) != version]
    return f"this estimator was fitted with {', '.join(others)}"
