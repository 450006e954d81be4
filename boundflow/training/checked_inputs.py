"""Model, data and threat of a training, checked and made ready: what is wrong is said before the first step."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from ..errors import BoundFlowError, UnsupportedProgram
from ..operators.losses import LOSSES, as_targets
from ..same_program import identity
from ..same_program.forward_effects import effects, faithful_copy, require_supported
from ..tensor.bounded import Bounded
from ..tensor.lift import Given
from ..threats import Lifted, Threat
from .recipe import Recipe

TRIED = 8  # samples that a forward pass is tried with


def in_training(model: nn.Module) -> nn.Module:
    """Training mode, in which a part that was put into evaluation mode stays there.

    Of a network that is in evaluation mode as a whole only BatchNorm does: there alone each sample stands for itself.
    """
    whole = model.training
    fixed = [part for part in model.modules() if not part.training and (whole or isinstance(part, _BatchNorm))]
    # a part may say itself what training means
    model.train()
    for part in fixed:
        part.training = False
    return model


class Prepared:
    """What a run starts from.

    ``y`` are the targets of plain training and ``targets`` those that are lifted (one-hot where labels can change);
    ``observed`` are the inputs that plain training sees; ``effects`` is what a forward pass does besides its result.
    Data are copied, unless they are ``ours``: whoever gave them may write to them while the run reads them.
    """

    def __init__(self, model: nn.Module, data: tuple[Given, Given], threat: Threat, recipe: Recipe, ours: bool = False):
        if any(isinstance(parameter, Bounded) for parameter in model.parameters()):
            raise BoundFlowError("certify lifts a copy of the model itself: give it a plain one")
        if threat.touches("gradients") and recipe.clip_gradients is None:
            raise ValueError("a replaced sample can have any gradient: bound it with clip_gradients=C")
        self.threat, self.recipe = threat, recipe
        self.x = torch.as_tensor(data[0]).detach()
        if not self.x.is_floating_point():
            raise ValueError("inputs must be floats in the range the threat is about: convert integer images first")
        reference = next(model.parameters())
        self.x = self.x.to(recipe.device or reference.device, recipe.dtype or self.x.dtype, copy=not ours)
        if len(self.x) == 0:
            raise ValueError("there are no samples to train on")
        self._copy(model)
        self.y = self.targets = self._targets(torch.as_tensor(data[1]).to(self.x.device, copy=not ours))
        if LOSSES[recipe.loss].outputs == "classes" and threat.touches("targets"):
            self.targets = F.one_hot(self.y, self.outputs).to(self.x.dtype)
        self.weights = self._weights(recipe.sample_weights)
        threat.check(self.x, self.targets)
        self.observed = threat.observed(self.x)
        self.effects = require_supported(self.model, self.observed[:TRIED])
        if self.effects.changes and recipe.clip_gradients is not None:
            raise UnsupportedProgram(
                f"the forward pass changes {', '.join(self.effects.changes)}, and clip_gradients calls it once for "
                "every sample, which is another training: leave clip_gradients out, or keep no state"
            )

    @cached_property
    def identity(self) -> dict[str, str]:
        """What the training rests on, before its first step (`identity.py`)."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        data, weights = identity.of_tensors(self.x, self.y), identity.of_tensors(*tensors)
        loss = LOSSES[self.recipe.loss]
        return identity.of_program(self.model, self.recipe, self.threat, data=data, initial_weights=weights, loss=loss)

    def _copy(self, model: nn.Module) -> None:
        """A copy of the model, so that the one that was given stays as it is, and how many outputs it has."""
        if any(is_lazy(parameter) for parameter in (*model.parameters(), *model.buffers())):
            raise UnsupportedProgram("the model has lazy layers without parameters yet: call it once on a batch before")
        self.model = in_training(faithful_copy(model).to(self.x.device, self.x.dtype))
        found = effects(self.model, torch.nan_to_num(self.x[:TRIED]), training=False)[1]
        if not isinstance(found, Tensor) or found.dim() != 2:
            shape = (
                f"shape {(len(self.x), *found.shape[1:])}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            )
            raise ValueError(f"the model must return (samples, outputs), with one column for one output, not {shape}")
        self.outputs = found.shape[1]

    def _weights(self, given: Tensor | None) -> Tensor | None:
        if given is None:
            return None
        if given.shape != (len(self.x),) or not bool((torch.isfinite(given) & (given >= 0)).all()):
            raise ValueError(f"sample_weights must be {len(self.x)} finite numbers of at least 0, one for each sample")
        return given.to(self.x.device, self.x.dtype, copy=True)

    def weighted(self, batch: Lifted, index: Tensor) -> Lifted:
        """A batch whose losses count as much as the recipe says, and less if a sample may be gone."""
        if self.weights is None:
            return batch
        fixed = self.weights[index]
        return batch._replace(weights=fixed if batch.weights is None else batch.weights * fixed)

    def _targets(self, y: Tensor) -> Tensor:
        if len(self.x) != len(y):
            raise ValueError(f"{len(self.x)} inputs and {len(y)} targets")
        loss, kind = self.recipe.loss, LOSSES[self.recipe.loss].outputs
        if kind == "values":
            y = as_targets(loss, y, self.x.dtype)
            if y.shape[1] != self.outputs or not bool(torch.isfinite(y).all()):
                raise ValueError(f"targets must be {self.outputs} finite numbers for each input, as the model returns")
            return y
        if y.numel() != len(y):
            raise ValueError(f"labels must be one whole number for each input, and they have shape {tuple(y.shape)}")
        if kind == "classes" and self.outputs < 2:
            raise ValueError(
                f"the loss {loss!r} needs a model with an output for each class, and this one has 1: use 'bce'"
            )
        if kind == "one" and self.outputs != 1:
            raise ValueError(
                f"the loss {loss!r} needs a model with one output, and this one has {self.outputs}: use 'ce'"
            )
        y, classes = y.reshape(-1), self.outputs if kind == "classes" else 2
        if bool((y < 0).any()) or bool((y >= classes).any()) or bool((y != y.long()).any()):
            raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}")
        return as_targets(loss, y, self.x.dtype)
