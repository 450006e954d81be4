"""Plain PyTorch training of a recipe on one dataset, as anybody would write it: what a certificate is about.

Batches, optimizer, schedule and loss are those of the recipe, written out once more: nothing of what computes bounds is
used, so that a mistake there is not repeated here. A sample that is gone has weight 0 in its slot.
"""

import copy
import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from fullcert.evidence.poisoning import Data
from fullcert.experiment.training import Recipe


class NotTrained(Exception):
    """A recipe that is not trained here; the message says why."""


def batches(recipe: Recipe, samples: int) -> list[Tensor]:
    """The samples of every step: all of them, or shuffled anew in each epoch by the seed."""
    options = recipe.options

    def each() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(options.seed)
        for _ in range(options.epochs):
            if options.batch_size:
                yield from torch.randperm(samples, generator=generator).split(options.batch_size)
            else:
                yield torch.arange(samples)

    return list(itertools.islice(each(), options.steps))


def rate(recipe: Recipe, step: int) -> float:
    """The share of the learning rate that is left at a step."""
    return 1 / (1 + recipe.options.lr_decay * step)


def targets(recipe: Recipe, labels: Tensor) -> Tensor:
    """What the outputs are compared with: for mse, classes are -1 and +1."""
    return 2 * labels - 1 if recipe.options.loss == "mse" and recipe.data.classes else labels


def losses(name: str, outputs: Tensor, compared: Tensor) -> Tensor:
    """The loss of every sample."""
    if name == "ce":
        return F.cross_entropy(outputs, compared.long(), reduction="none")
    wanted = compared.to(outputs.dtype)
    if name == "bce":
        return F.binary_cross_entropy_with_logits(outputs[:, 0], wanted, reduction="none")
    if name == "mse":
        return (outputs[:, 0] - wanted) ** 2
    return torch.relu(1 - (2 * wanted - 1) * outputs[:, 0])


def check(recipe: Recipe) -> None:
    """Refuse a network that draws or keeps state in training: its masks are drawn by the library."""
    kinds = nn.modules.dropout._DropoutNd | nn.modules.batchnorm._NormBase
    for layer in recipe.initial.modules():
        if isinstance(layer, kinds):
            raise NotTrained(f"its network has {type(layer).__name__}, whose draws or state belong to the run")


def trained(recipe: Recipe, data: Data) -> nn.Module:
    """The network after training on a dataset."""
    check(recipe)
    model = copy.deepcopy(recipe.initial).to(recipe.device, recipe.dtype).train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = recipe.optimizer(parameters, **recipe.optimizer_options)
    schedule = LambdaLR(optimizer, lambda step: rate(recipe, step)) if recipe.options.lr_decay else None
    compared = targets(recipe, data.targets)
    for batch in batches(recipe, len(data.inputs)):
        batch = batch.to(data.inputs.device)
        optimizer.zero_grad()
        if recipe.options.clip_gradients is None:
            found = losses(recipe.options.loss, model(data.inputs[batch]), compared[batch])
            (found * data.there[batch].to(found.dtype)).sum().div(len(batch)).backward()
        else:
            _clipped(recipe, model, parameters, data, compared, batch)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return model.eval()


def _clipped(
    recipe: Recipe, model: nn.Module, parameters: list[nn.Parameter], data: Data, compared: Tensor, batch: Tensor
) -> None:
    """The mean of the gradients of single samples, each clipped to the norm."""
    kept = [torch.zeros_like(parameter) for parameter in parameters]
    assert recipe.options.clip_gradients is not None
    for sample in batch.split(1):
        model.zero_grad()
        found = losses(recipe.options.loss, model(data.inputs[sample]), compared[sample])
        (found * data.there[sample].to(found.dtype)).sum().backward()
        nn.utils.clip_grad_norm_(parameters, recipe.options.clip_gradients)
        for total, parameter in zip(kept, parameters, strict=True):
            if parameter.grad is not None:
                total += torch.nan_to_num(parameter.grad, nan=0.0, posinf=0.0, neginf=0.0)
    for total, parameter in zip(kept, parameters, strict=True):
        parameter.grad = total / len(batch)
