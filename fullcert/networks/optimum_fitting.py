"""Fitting to the optimum by rule: columns made comparable, features, and the certificate of what is fitted on them.

    columns  ->  (a scaler that was given)  ->  comparable columns  ->  features  ->  one linear layer

All but the last see no label, so they are the same in every dataset that differs in labels; they are fitted here on the
rows in hand, and stay as they are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor, nn

import boundflow as bf
from boundflow.optimum import KernelFeatures, NormalScores, OptimumCertificate, RandomFeatures, Standardised
from boundflow.threats import Labels, Threat
from fullcert.networks import optimum_rules
from fullcert.networks.optimum_rules import AS_THEY_ARE, KERNEL, NONE, Choice, Situation
from fullcert.system.mistakes import Mistake

MOST_KERNEL_ROWS = 20_000
COMPARABLE: dict[str, Callable[[Tensor], nn.Module]] = {
    optimum_rules.SCORES: NormalScores,
    optimum_rules.STANDARDISED: Standardised,
}


class Given(NamedTuple):
    """What somebody said instead of the rule; None: nothing."""

    features: str | None = None
    columns: str | None = None
    l2: float | None = None
    loss: str | None = None


BY_RULE = Given()


def changed(threat: Threat, samples: int) -> int:
    """How many labels or targets may be wrong."""
    budgets = [clause.budget for clause in threat.clauses if any(isinstance(c, Labels) for c in clause.changes)]
    for budget in budgets:
        if budget is not None and budget > samples:
            raise Mistake(f"at most {budget} of {samples} samples: the budget exceeds the data")
    return min(samples, sum(samples if budget is None else budget for budget in budgets))


def fitted(
    inputs: Tensor,
    targets: Tensor,
    classes: int | None,
    threat: Threat,
    given: Given = BY_RULE,
    *,
    scaled: nn.Module | None = None,
    sample_weights: Tensor | None = None,
    seed: int = 0,
) -> OptimumCertificate:
    """The certificate of the optimum on inputs (n, d), for class numbers or numbers (n).

    ``classes`` None: numbers. ``scaled``: a layer that stands before everything else.
    """
    inputs = inputs.detach().double()
    seen = inputs if scaled is None else scaled.double()(inputs).detach()
    if given.features is not None:
        _features(given.features)
    faced = Situation(
        len(seen),
        optimum_rules.share_a_unit(seen.cpu().numpy()),
        classes is None,
        changed(threat, len(seen)),
        given.features,
    )
    ruled = optimum_rules.chosen(faced)
    choice = replace(ruled, columns=given.columns or ruled.columns, loss=given.loss or ruled.loss)
    module, found = features_of(choice, seen, scaled, seed)
    l2 = given.l2 if given.l2 is not None else choice.ridge * (_size(found) if choice.features == NONE else 1.0)
    outputs = 1 if classes is None or choice.loss != "squared" else classes
    certificate = bf.certify_optimum(
        nn.Linear(found.shape[1], outputs).double(),
        (inputs, targets),
        threat=threat,
        loss=choice.loss,
        l2=l2,
        features=module,
        sample_weights=sample_weights,
    )
    certificate.record["recipe"] = optimum_rules.record(
        {**vars(choice), "l2": l2}, {**vars(ruled), "l2": l2 if given.l2 is None else None}
    )
    return certificate


def features_of(
    choice: Choice, inputs: Tensor, scaled: nn.Module | None = None, seed: int = 0
) -> tuple[nn.Module | None, Tensor]:
    """What is done to inputs before the last layer, as one module, and what it makes of these."""
    parts = [] if scaled is None else [scaled]
    if choice.columns != AS_THEY_ARE:
        parts.append(COMPARABLE[choice.columns](inputs))
        inputs = parts[-1](inputs)
    made = _features(choice.features)
    if made is not None:
        parts.append(made(inputs, choice.length, seed))
        inputs = parts[-1](inputs)
    return (nn.Sequential(*parts).eval() if parts else None), inputs


def raw_weights(model: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Weights (outputs, d) and intercepts (outputs) for columns as they come; None where features are not columns."""
    layers = [layer for layer in model.modules() if not list(layer.children())]
    head = layers.pop()
    assert isinstance(head, nn.Linear)
    weights, intercepts = head.weight.detach(), head.bias.detach()
    for layer in reversed(layers):
        if isinstance(layer, Standardised):
            weights = weights / layer.scale
            intercepts = intercepts - weights @ layer.center
        elif isinstance(layer, nn.Linear):  # a scaler that was given
            intercepts = intercepts if layer.bias is None else intercepts + weights @ layer.bias
            weights = weights @ layer.weight
        else:
            return None
    return weights, intercepts


def _features(name: str) -> Callable[[Tensor, float, int], nn.Module] | None:
    """The features that a name means, made of inputs, a length and a seed."""
    kind, _, count = name.partition(":")
    if name == NONE:
        return None
    if name == KERNEL:
        return _kernel
    if kind == "random" and count.isdecimal() and 0 < int(count) <= 10**6:
        return lambda inputs, length, seed: RandomFeatures(inputs, int(count), seed, length)
    raise Mistake(f"features must be none, kernel, or random: and how many, such as random:2000, and not {name!r}")


def _kernel(inputs: Tensor, length: float, seed: int) -> nn.Module:
    if len(inputs) > MOST_KERNEL_ROWS:
        raise Mistake(
            f"a kernel is for up to {MOST_KERNEL_ROWS:,} rows, and there are {len(inputs):,}: use random:2000"
        )
    return KernelFeatures(inputs, length)


def _size(inputs: Tensor) -> float:
    """The mean square of how far rows are from their mean."""
    found = float((inputs - inputs.mean(0)).square().sum(1).mean())
    return found if found > 0 else 1.0
