"""Ordinary trainings of poisoned datasets, many at once, and derivatives through all their steps.

    theta(t + 1) = step of the optimizer at theta(t), gradient of  sum_i w_i c_i loss(f(theta(t), x_i), y_i) / B

where w_i is 0 if the sample is gone, and c_i is how much it counts (``sample_weights``), or 1.

The program is that of the run: its initial weights, order of batches, loss, optimizer, schedule, dtype and masks. The
parameters of D models are stacked on a first axis and held by one optimizer of PyTorch, which works element by element,
so these are D trainings. To differentiate through them the optimizer is given fresh copies before each step: what it
changes in place is then needed by nobody. Programs that draw numbers are trained one after the other, and so are those
that `vmap` cannot map. Where a forward pass keeps state, or the optimizer mixes elements, only `plainly` is left.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from ..errors import UnsupportedProgram
from ..tensor.draws import Draws
from ..training.checked_inputs import Prepared
from .poisoned import Poisoned
from .steepest import Slopes

Parameters = dict[str, Tensor]
OPT = torch.optim
ELEMENTWISE: tuple[type[OPT.Optimizer], ...] = (
    *(OPT.SGD, OPT.Adam, OPT.AdamW, OPT.RMSprop, OPT.Adagrad, OPT.Adadelta, OPT.Adamax, OPT.NAdam, OPT.RAdam),
    *(OPT.ASGD, OPT.Rprop),
)
ROOM = {"cpu": 2**25, "cuda": 2**30}  # numbers that the trainings of one call may hold, roughly


def _hinge(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return torch.relu(1 - (2 * targets - 1) * outputs)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "bce": F.binary_cross_entropy_with_logits,
    "ce": F.cross_entropy,
    "mse": F.mse_loss,
    "hinge": _hinge,
}


class Trainings:
    """The training program of a run, for any data."""

    def __init__(self, prepared: Prepared):
        self.prepared, self.recipe = prepared, prepared.recipe
        self.model, self.loss = prepared.model, LOSSES[prepared.recipe.loss]
        self.batches = self.recipe.batches(len(prepared.x), prepared.x.device)
        self.evaluated = copy.deepcopy(prepared.model).eval()
        self.trained = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        self.why_plain = self._why_plain()
        self.mapped = self.why_plain is None and not prepared.effects.draws
        self.mapped = self.mapped and self._maps()

    def _why_plain(self) -> str | None:
        """Why trainings must be made by ordinary modules alone, without derivatives."""
        if self.prepared.effects.changes:
            return "the forward pass keeps state"
        if self.recipe.optimizer not in ELEMENTWISE:
            return f"{self.recipe.optimizer.__name__} is not known to work element by element"
        return None

    def _maps(self) -> bool:
        """Whether the model can be mapped over stacked parameters: tried with two copies and two samples."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stacked = {name: value.expand(2, *value.shape) for name, value in self._initial().items()}
                self.outputs(stacked, self.prepared.observed[:2])
                some = torch.arange(min(2, len(self.prepared.x)), device=self.prepared.x.device)
                data = self.observed()
                self._mapped_gradients(stacked, data.repeated(2), some)
        except (RuntimeError, ValueError, NotImplementedError):
            return False
        return True

    def observed(self) -> Poisoned:
        """The data as they were observed, as one dataset."""
        x, targets = self.prepared.observed, self.targets()
        return Poisoned(x[None], targets[None], torch.ones(1, len(x), dtype=x.dtype, device=x.device))

    def targets(self) -> Tensor:
        """Targets as numbers: one-hot where they are classes."""
        y = self.prepared.y
        return y if y.is_floating_point() else F.one_hot(y, self.prepared.outputs).to(self.prepared.x.dtype)

    def _initial(self) -> Parameters:
        return {name: value.detach() for name, value in self.model.named_parameters() if name in self.trained}

    def _counted(self, poisoned: Poisoned) -> Poisoned:
        """The same datasets, with every sample counting as much as the recipe says."""
        counts = self.prepared.weights
        return poisoned if counts is None else Poisoned(poisoned.x, poisoned.y, poisoned.weights * counts)

    def at_once(self, moved: bool, differentiated: bool) -> int:
        """How many trainings fit into memory together."""
        samples = max(len(batch) for batch in self.batches)
        widths = sum(value.shape[0] if value.dim() else 1 for value in self.model.parameters())
        each = samples * (widths + 4 * self.prepared.outputs) * 4
        each += self.prepared.x.numel() * (4 if differentiated else 2) if moved else 0
        each = each * len(self.batches) if differentiated else each
        return int(min(512, max(1, ROOM.get(self.prepared.x.device.type, 2**25) // max(1, each))))

    # --- training -------------------------------------------------------------------------------------------------

    def train(self, poisoned: Poisoned) -> Parameters:
        """The trained parameters of every dataset, (D, *shape)."""
        if self.why_plain is not None:
            return self._one_by_one(poisoned)
        with torch.no_grad():
            return {name: value.detach() for name, value in self._steps(poisoned, differentiable=False).items()}

    def slopes(
        self, poisoned: Poisoned, margin: Callable[[Parameters], Tensor], by_inputs: bool = True
    ) -> tuple[Slopes, Parameters]:
        """The gradient of each dataset's margin, (D,), by its inputs, targets and weights, and the parameters.

        Where nobody can change inputs their gradient is not needed, and takes the most memory: it is then zero.
        """
        if self.why_plain is not None:
            raise UnsupportedProgram(f"no derivatives through training: {self.why_plain}")
        full = poisoned.written_out()
        wanted = (full.x, full.y, full.weights) if by_inputs else (full.y, full.weights)
        leaves = [part.detach().clone().requires_grad_() for part in wanted]
        with torch.enable_grad():
            parameters = self._steps(Poisoned(*((poisoned.x, *leaves) if not by_inputs else leaves)), True)
            value = margin(parameters).sum()
            found = torch.autograd.grad(value, leaves, allow_unused=True) if value.requires_grad else (None,) * 3
        *inputs, y, weights = (
            torch.zeros_like(leaf) if slope is None else torch.nan_to_num(slope, 0.0, 0.0, 0.0)
            for leaf, slope in zip(leaves, found, strict=False)
        )
        x = inputs[0] if by_inputs else full.x.new_zeros(()).expand(full.x.shape)
        return Slopes(x.flatten(2), y, weights), {name: value.detach() for name, value in parameters.items()}

    def _steps(self, poisoned: Poisoned, differentiable: bool) -> Parameters:
        poisoned, count = self._counted(poisoned), poisoned.count
        values = [value.expand(count, *value.shape).clone() for value in self._initial().values()]
        # what computes many tensors at once cannot be differentiated, and what an optimizer is told stays as it is
        options = {**copy.deepcopy(self.recipe.optimizer_options), "foreach": False, "differentiable": differentiable}
        if not differentiable:
            values = [value.requires_grad_() for value in values]
        optimizer = self.recipe.optimizer(values, **options)
        schedule = self.recipe.schedule(optimizer) if self.recipe.schedule else None
        for number, index in enumerate(self.batches):
            gradients = self._gradients(dict(zip(self.trained, values, strict=True)), poisoned, index, number)
            if differentiable:
                values = _renewed(optimizer)
                if number == 0:
                    _begun(optimizer, list(gradients.values()))
            for name, value in zip(self.trained, values, strict=True):
                value.grad = gradients[name]
            optimizer.step()
            if schedule is not None:
                schedule.step()
        return dict(zip(self.trained, values, strict=True))

    def _gradients(self, stacked: Parameters, poisoned: Poisoned, index: Tensor, number: int) -> Parameters:
        if self.mapped:
            return self._mapped_gradients(stacked, poisoned, index)
        full, each = poisoned.written_out(), []
        for dataset in range(poisoned.count):
            own = {name: value[dataset] for name, value in stacked.items()}
            batch = full.x[dataset, index], full.y[dataset, index], full.weights[dataset, index]
            draws = Draws(self.recipe.seed_of_step(number)) if self.prepared.effects.draws else nullcontext()
            each.append(self._gradient(own, *batch, context=draws))
        return {name: torch.stack([gradient[name] for gradient in each]) for name in stacked}

    def _mapped_gradients(self, stacked: Parameters, poisoned: Poisoned, index: Tensor) -> Parameters:
        parts = (poisoned.x, poisoned.y, poisoned.weights)
        batch = [part[:, index] if len(part) > 1 else part[0, index] for part in parts]
        places = (0, *(0 if len(part) > 1 else None for part in parts))
        if poisoned.count == 1:
            found = self._gradient({name: value[0] for name, value in stacked.items()}, *batch)
            return {name: value[None] for name, value in found.items()}
        return vmap(self._gradient, in_dims=places)(stacked, *batch)

    def _gradient(
        self, parameters: Parameters, x: Tensor, y: Tensor, weights: Tensor, context: Any = None
    ) -> Parameters:
        """The gradient of one batch at one set of parameters."""
        if self.recipe.clip_gradients is not None:
            return self._clipped(parameters, x, y, weights, self.recipe.clip_gradients)

        def value(parameters: Parameters) -> Tensor:
            with context or nullcontext():
                outputs = self._call(self.model, parameters, x)
            losses = self.loss(outputs, y, reduction="none").reshape(len(outputs), -1).mean(1)
            return (losses * weights).sum() / len(outputs)

        found: Parameters = grad(value)(parameters)
        return found

    def _clipped(self, parameters: Parameters, x: Tensor, y: Tensor, weights: Tensor, norm: float) -> Parameters:
        """The mean of the gradients of single samples, clipped as PyTorch clips; one that is not finite is zero."""

        def value(parameters: Parameters, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            outputs = self._call(self.model, parameters, x[None])
            return self.loss(outputs, y[None], reduction="none").mean() * weight

        each = vmap(grad(value), in_dims=(None, 0, 0, 0))(parameters, x, y, weights)
        squares = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0)
        length = torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)  # the root has no slope at zero
        factor = (norm / (length + 1e-6)).clamp(max=1.0)
        clipped = {name: g * factor.view(-1, *(1,) * (g.dim() - 1)) for name, g in each.items()}
        return {name: torch.nan_to_num(g, 0.0, 0.0, 0.0).sum(0) / len(x) for name, g in clipped.items()}

    def _call(self, model: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(model, parameters, (x.clone(),))  # a network may write into its inputs
        return outputs

    # --- answers --------------------------------------------------------------------------------------------------

    def outputs(self, stacked: Parameters, x: Tensor, own: bool = False) -> Tensor:
        """What every trained model answers to the inputs, (D, T, outputs); ``own``: each has inputs of its own."""
        if self.why_plain is None and self.mapped:
            found: Tensor = vmap(lambda p, v: self._call(self.evaluated, p, v), (0, 0 if own else None))(stacked, x)
            return found
        count = len(next(iter(stacked.values())))
        each = [{name: value[number] for name, value in stacked.items()} for number in range(count)]
        return torch.stack([self._call(self.evaluated, p, x[n] if own else x) for n, p in enumerate(each)])

    # --- ordinary modules -----------------------------------------------------------------------------------------

    def plainly(self, poisoned: Poisoned) -> nn.Module:
        """One dataset, trained by an ordinary module and optimizer as a user would: what every finding is held to."""
        model, recipe = copy.deepcopy(self.model), self.recipe
        trainer, effects = recipe.trainer(model), self.prepared.effects
        x, y, weights = poisoned.x[0], poisoned.y[0], self._counted(poisoned).weights[0]
        for number, index in enumerate(self.batches):
            trainer.optimizer.zero_grad()
            if recipe.clip_gradients is not None:
                own = {name: value for name, value in model.named_parameters() if name in self.trained}
                found = self._clipped(
                    {k: v.detach() for k, v in own.items()}, x[index], y[index], weights[index], recipe.clip_gradients
                )
                for name, value in own.items():
                    value.grad = found[name]
            else:
                seeded = Draws(recipe.seed_of_step(number)) if effects.draws or effects.changes else nullcontext()
                with seeded:
                    outputs = model(x[index])
                losses = self.loss(outputs, y[index], reduction="none").reshape(len(index), -1).mean(1)
                (losses * weights[index]).sum().div(len(index)).backward()  # type: ignore[no-untyped-call]
            trainer.step()
        return model.eval()

    def _one_by_one(self, poisoned: Poisoned) -> Parameters:
        """Parameters and buffers of ordinary modules, stacked."""
        full = poisoned.written_out()
        models = [self.plainly(full.pick([number])) for number in range(poisoned.count)]
        named = [{**dict(model.named_parameters()), **dict(model.named_buffers())} for model in models]
        return {name: torch.stack([found[name].detach() for found in named]) for name in named[0]}


def _begun(optimizer: OPT.Optimizer, gradients: list[Tensor]) -> None:
    """Momentum b with ``m b + (1 - d) g = g``: SGD itself starts with a copy of g that has no derivatives."""
    for group in optimizer.param_groups if isinstance(optimizer, OPT.SGD) else ():
        for parameter, gradient in zip(group["params"], gradients, strict=True):
            if group["momentum"]:
                whole = (-gradient if group["maximize"] else gradient) + group["weight_decay"] * parameter
                before = whole * (group["dampening"] / group["momentum"])
                optimizer.state[parameter]["momentum_buffer"] = before


def _renewed(optimizer: OPT.Optimizer) -> list[Tensor]:
    """Fresh copies of all that the next step changes in place."""
    fresh = []
    for group in optimizer.param_groups:
        copies = []
        for before in group["params"]:
            after = before.clone()
            kept = optimizer.state.pop(before, None)
            if kept is not None:
                optimizer.state[after] = {
                    key: value.clone() if isinstance(value, Tensor) else value for key, value in kept.items()
                }
            copies.append(after)
        group["params"] = copies
        fresh += copies
    return fresh
