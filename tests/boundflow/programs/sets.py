"""The same programs on sets: through `certify`, or through a loop of the user's own, as the documentation shows it.

What comes back are ends (lower, upper) of everything that the oracle's runs hand out. A plain tensor inside a bounded
model claims to be exact, so its ends are itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import boundflow as bf

from .oracle import first, handed_out, in_training, made, seeded
from .recipe import Attack, Recipe, observed
from .ways import Make, Through, once, one_by_one

Ends = tuple[Tensor, Tensor]


class Bounds(NamedTuple):
    """What all trainings together can have given. ``nominal`` is the plain model of a certificate, if there is one."""

    parameters: dict[str, Ends]
    buffers: dict[str, Ends]
    outputs: list[Ends]
    nominal: dict[str, Tensor] | None = None
    certified: Tensor | None = None  # whether the class of each test input is certified, and which it is
    label: Tensor | None = None


def threat_of(attack: Attack, classes: int) -> bf.threats.Threat:
    threats: list[bf.threats.Threat] = []
    if attack.epsilon:
        threats.append(bf.threats.Linf(attack.epsilon))
    if attack.flips:
        threats.append(bf.threats.AtMost(attack.flips, bf.threats.Labels(classes=classes)))
    if attack.removals:
        threats.append(bf.threats.AtMost(attack.removals, bf.threats.Removal()))
    threat = threats[0]
    for other in threats[1:]:
        threat = threat & other
    return threat


def ends(tensor: Tensor) -> Ends:
    if isinstance(tensor, bf.Bounded):
        return tensor.lower.detach().clone(), tensor.upper.detach().clone()
    return tensor.detach().clone(), tensor.detach().clone()


def held(model: nn.Module) -> tuple[dict[str, Ends], dict[str, Ends]]:
    parameters = {name: ends(value) for name, value in model.named_parameters()}
    return parameters, {name: ends(value) for name, value in model.named_buffers()}


# --- certify ---------------------------------------------------------------------------------------------------------


def certified(
    make: Make,
    recipe: Recipe,
    domain: str,
    through: Through = once,
    ask: Callable[..., list[bf.Prediction]] = one_by_one,
    answering: dict[str, Any] | None = None,
    **options: Any,
) -> list[Bounds]:
    """Bounds from every certificate that a way of certifying gives."""
    data = observed(recipe)
    certificates = through(
        lambda: made(make, recipe.dtype),
        (data.x, data.y),
        threat=threat_of(recipe.attack, recipe.classes),
        loss=recipe.loss,
        optimizer=recipe.optimizer,
        optimizer_options=recipe.options,
        schedule=recipe.schedule(),
        epochs=recipe.epochs,
        steps=recipe.steps,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        domain=domain,
        clip_gradients=recipe.clip_gradients,
        **{"order": 3, **options},
    )
    asking = {"epsilon": recipe.attack.epsilon, **(answering or {})}
    return [_answered(certificate, data.x, recipe, ask, asking) for certificate in certificates]


def _answered(certificate: bf.Certificate, x: Tensor, recipe: Recipe, ask: Callable, asking: dict) -> Bounds:
    if certificate.model is None:
        raise bf.VoidBounds(f"the certificate says that its bounds are void after step {certificate.void_at_step}")
    nominal = {name: value.detach().clone() for name, value in certificate.nominal.named_parameters()}
    nominal |= {name: value.detach().clone() for name, value in certificate.nominal.named_buffers()}
    parameters, buffers = held(certificate.model)
    answers = ask(certificate, x, recipe.evaluations, recipe.seed, **asking)
    if any(not bool(torch.isfinite(answer.upper).all()) for answer in answers):
        raise bf.VoidBounds("the bounds of a prediction are infinite: it is not certified")
    outputs = [(answer.lower, answer.upper) for answer in answers]
    classified = recipe.loss != "mse"
    known = (answers[0].certified, answers[0].label) if classified else (None, None)
    return Bounds(parameters, buffers, outputs, nominal, *known)


# --- loops ------------------------------------------------------------------------------------------------------------


class Sets:
    """The bounded side of a loop that is written once."""

    def __init__(self, recipe: Recipe, domain: str):
        self.recipe, self.data = recipe, observed(recipe)
        self.batches = recipe.batches
        self.threat = threat_of(recipe.attack, recipe.classes)
        self.symbols = bf.Symbols(self.threat, order=3) if domain == "zonotope" else None

    def lift(self, *models: nn.Module) -> None:
        for model in models:
            bf.lift(model, self.symbols)

    def attach(self, *optimizers: torch.optim.Optimizer) -> None:
        if self.symbols is not None:
            for optimizer in optimizers:
                self.symbols.attach(optimizer)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.data.x[index], self.data.y[index]
        if self.symbols is not None:
            return self.symbols.lift(x, y, index)
        if self.recipe.attack.flips:
            inputs, targets, _ = self.threat.lift(None, x, y, index)
            return inputs, targets
        return bf.ball(x, self.recipe.attack.epsilon), y


def looped(loop: Callable, make: Make, recipe: Recipe, domain: str) -> list[Bounds]:
    side = Sets(recipe, domain)
    model, extras = handed_out(loop(side, in_training(made(make, recipe.dtype))))
    model.eval()
    parameters, buffers = held(model)
    parameters |= {name: ends(value) for name, value in extras.items()}
    outputs = []
    for _ in range(recipe.evaluations):
        seeded(recipe.seed)
        with torch.no_grad():
            outputs.append(ends(first(model(bf.ball(side.data.x, recipe.attack.epsilon)))))
    return [Bounds(parameters, buffers, outputs)]
