"""Which predictions can no attacker change?

The lead of a class on an input is the amount by which its logit exceeds every other logit. A lower bound on it
holds for every model in the set and every input within reach: a class whose bound is positive is certified.
Bounds are taken on logit differences, because the logits of one model rise and fall together.
"""

from typing import Any

import torch
from torch import Tensor, nn

import boundflow as bf
from fullcert.training import Certified, Recipe, Samples

ABSTAIN = -1
CHUNK = 128  # inputs at a time: each one carries its own copy of the generators


def measure(recipe: Recipe, plain: nn.Module, certified: Certified) -> dict[str, Any]:
    """The metrics of a run, accuracies as fractions. `void_at_step` is there only if the bounds became void."""
    options = recipe.options
    labels = certified_labels(recipe, certified, recipe.test)
    metrics = {
        "dataset": options.dataset,
        "domain": options.domain,
        "epsilon": options.epsilon,
        "test_epsilon": options.test_epsilon,
        "seed": options.seed,
        "steps": len(recipe.batches),
        "seconds": certified.seconds,
        "nominal_accuracy": share(predicted_labels(plain, recipe.test.inputs) == recipe.test.labels),
        "certified_accuracy": share(labels == recipe.test.labels),
        "certified_robustness": share(labels != ABSTAIN),
        "validation_certified_accuracy": share(
            certified_labels(recipe, certified, recipe.validation) == recipe.validation.labels
        ),
    }
    return metrics if certified.void_at_step is None else {**metrics, "void_at_step": certified.void_at_step}


def certified_labels(recipe: Recipe, certified: Certified, samples: Samples) -> Tensor:
    """The label that no attacker can change, or ABSTAIN."""
    lead, label = least_leads(recipe, certified, samples.inputs).max(dim=1)
    return torch.where(lead > 0, label, ABSTAIN)


def least_leads(recipe: Recipe, certified: Certified, inputs: Tensor) -> Tensor:
    """Lower bounds on the lead of every class, (N, classes). Void bounds say nothing: minus infinity."""
    nothing = inputs.new_full((len(inputs), recipe.classes), -torch.inf)
    if certified.model is None:
        return nothing
    try:
        with torch.no_grad():
            sets = (bf.ball(chunk, recipe.options.test_epsilon) for chunk in inputs.split(CHUNK))
            return torch.cat([leads(certified.model(chunk)) for chunk in sets])
    except bf.VoidBounds:
        return nothing


def leads(logits: bf.Bounded) -> Tensor:
    """Lower bounds on the leads, from bounded logits. One logit is the lead of class 1 over class 0."""
    if logits.shape[1] == 1:
        return torch.cat([-logits.upper, logits.lower], dim=1)
    return torch.stack([lead_of(label, logits) for label in range(logits.shape[1])], dim=1)


def lead_of(label: int, logits: bf.Bounded) -> Tensor:
    """A lower bound on the lead of one class over all others."""
    differences: Any = logits[:, label : label + 1] - logits
    others = torch.arange(logits.shape[1], device=logits.device) != label
    return differences.lower[:, others].amin(dim=1)


def predicted_labels(model: nn.Module, inputs: Tensor) -> Tensor:
    """What a plain model predicts."""
    with torch.no_grad():
        logits = model(inputs)
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(dim=1)


def share(decisions: Tensor) -> float:
    """The fraction that is true."""
    return decisions.double().mean().item()
