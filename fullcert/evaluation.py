"""The numbers of a run: how often the plain model is right, and how often no attacker can change that."""

from typing import Any

import torch

import boundflow as bf
from fullcert.training import Recipe


def measure(recipe: Recipe, certificate: bf.Certificate) -> dict[str, Any]:
    """The metrics of a run, accuracies as fractions. `void_at_step` is there only if the bounds became void."""
    options = recipe.options
    test, validation = (
        certificate.accuracy(torch.from_numpy(split.inputs), torch.from_numpy(split.labels), options.test_epsilon)
        for split in (recipe.data.test, recipe.data.validation)
    )
    metrics = {
        "dataset": options.dataset,
        "domain": options.domain,
        "epsilon": options.epsilon,
        "test_epsilon": options.test_epsilon,
        "seed": options.seed,
        "steps": certificate.record["steps"],
        "seconds": certificate.seconds,
        "nominal_accuracy": test.nominal,
        "certified_accuracy": test.certified,
        "certified_robustness": test.robustness,
        "validation_certified_accuracy": validation.certified,
    }
    return metrics if certificate.void_at_step is None else {**metrics, "void_at_step": certificate.void_at_step}
