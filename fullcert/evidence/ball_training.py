"""Training of small networks in ball arithmetic: the result in real numbers, enclosed to more than 50 digits.

Linear layers with activations between them, trained by gradient descent with momentum and weight decay; forward pass,
backward pass and update are written out by hand over balls (Arb, by python-flint). It shares no code with the library:
neither its rules nor PyTorch's derivatives. A ball of a result lies between the bounds, or the bounds are wrong.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from fullcert.evidence.plain_training import NotTrained, batches, rate, targets
from fullcert.evidence.poisoning import Data
from fullcert.experiment.training import Recipe

BITS = 256
MOST = 40_000_000  # products of balls in a training: about a minute
Matrix = Any  # a flint.arb_mat
Ball = Any  # a flint.arb


class Activation(NamedTuple):
    """A function of one ball, and its derivative from its argument and its value."""

    value: Callable[[Ball], Ball]
    slope: Callable[[Ball, Ball], Ball]


class Layer(NamedTuple):
    """``x W^T + b``, and whether it is trained."""

    weight: Matrix
    bias: Matrix | None
    trained: bool


def trained(recipe: Recipe, data: Data) -> dict[str, list[Ball]]:
    """Every trained parameter by name, as the balls of its elements in order."""
    from flint import ctx

    before, ctx.prec = ctx.prec, BITS
    try:
        return _Training(recipe).run(data)
    finally:
        ctx.prec = before


def check(recipe: Recipe) -> None:
    """Refuse what is not trained here, and what would take too long."""
    options = recipe.options
    if options.optimizer != "sgd" or options.clip_gradients is not None:
        raise NotTrained("in ball arithmetic there is sgd without clipped gradients only")
    if options.loss not in ("bce", "ce", "mse"):
        raise NotTrained(f"in ball arithmetic there is no loss {options.loss}")
    _parts(recipe.initial)
    samples = len(recipe.data.train.labels)
    scalars = sum(parameter.numel() for parameter in recipe.initial.parameters())
    work = 3 * scalars * sum(len(batch) for batch in batches(recipe, samples))
    if work > MOST:
        raise NotTrained(f"this run is too large for ball arithmetic: {work:.1g} products, and {MOST:.0g} are tried")


def _parts(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of a chain, by name; nothing else is known here."""
    chain = list(model.named_children()) if isinstance(model, nn.Sequential) else [("", model)]
    for _, layer in chain:
        plain = isinstance(layer, nn.Linear) or type(layer) in (nn.Tanh, nn.Sigmoid, nn.ReLU, nn.Flatten, nn.Identity)
        if not plain:
            raise NotTrained(f"in ball arithmetic there is no {type(layer).__name__}")
    return chain


def _activations() -> dict[type[nn.Module], Activation]:
    from flint import arb

    def sigmoid(z: Ball) -> Ball:
        return 1 / (1 + (-z).exp())

    def relu(z: Ball) -> Ball:
        return z if z > 0 else arb(0) if z <= 0 else z.union(arb(0))

    def gate(z: Ball, value: Ball) -> Ball:
        return arb(1) if z > 0 else arb(0) if z <= 0 else arb(0.5, 0.5)

    return {
        nn.Tanh: Activation(lambda z: z.tanh(), lambda z, value: 1 - value * value),
        nn.Sigmoid: Activation(sigmoid, lambda z, value: value * (1 - value)),
        nn.ReLU: Activation(relu, gate),
    }


def matrix(values: Tensor) -> Matrix:
    """The very numbers of a tensor."""
    from flint import arb, arb_mat

    return arb_mat([[arb(value) for value in row] for row in values.detach().double().cpu().tolist()])


class _Training:
    """One training, with all its numbers as balls."""

    def __init__(self, recipe: Recipe):
        check(recipe)
        self.recipe, self.activations = recipe, _activations()
        self.chain: list[tuple[str, Layer | Activation]] = []
        for name, layer in _parts(copy.deepcopy(recipe.initial).to(recipe.dtype)):
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else matrix(layer.bias.unsqueeze(0))
                self.chain.append((name, Layer(matrix(layer.weight), bias, layer.weight.requires_grad)))
            elif type(layer) in self.activations:
                self.chain.append((name, self.activations[type(layer)]))
        self.first = min(
            place for place, (_, layer) in enumerate(self.chain) if isinstance(layer, Layer) and layer.trained
        )
        self.momenta: dict[tuple[int, str], Matrix] = {}

    def run(self, data: Data) -> dict[str, list[Ball]]:
        inputs = data.inputs.flatten(1)
        compared = targets(self.recipe, data.targets)
        for step, batch in enumerate(batches(self.recipe, len(inputs))):
            there = data.there[batch].tolist()
            self._step(step, matrix(inputs[batch]), compared[batch].tolist(), there)
        found = {}
        for name, layer in self.chain:
            if isinstance(layer, Layer) and layer.trained:
                prefix = f"{name}." if name else ""
                found[f"{prefix}weight"] = layer.weight.entries()
                if layer.bias is not None:
                    found[f"{prefix}bias"] = layer.bias.entries()
        return found

    def _step(self, step: int, inputs: Matrix, compared: list[float], there: list[bool]) -> None:
        seen = [inputs]
        for _, layer in self.chain:
            seen.append(self._forward(layer, seen[-1]))
        slope = self._loss_slope(seen[-1], compared, there)
        for place in reversed(range(self.first, len(self.chain))):
            name, layer = self.chain[place]
            if isinstance(layer, Activation):
                slope = _elementwise(layer.slope, seen[place], seen[place + 1], times=slope)
                continue
            gradients = {"weight": slope.transpose() * seen[place], "bias": _column_sums(slope)}
            slope = slope * layer.weight if place > self.first else slope
            if layer.trained:
                self.chain[place] = name, self._updated(place, layer, gradients, step)

    def _forward(self, layer: Layer | Activation, inputs: Matrix) -> Matrix:
        from flint import arb_mat

        if isinstance(layer, Activation):
            return arb_mat([[layer.value(value) for value in row] for row in inputs.tolist()])
        outputs = inputs * layer.weight.transpose()
        if layer.bias is None:
            return outputs
        bias = layer.bias.entries()
        return arb_mat([[value + b for value, b in zip(row, bias, strict=True)] for row in outputs.tolist()])

    def _loss_slope(self, outputs: Matrix, compared: list[float], there: list[bool]) -> Matrix:
        """The derivative of the mean loss by the outputs."""
        from flint import arb, arb_mat

        rows = []
        for row, wanted, kept in zip(outputs.tolist(), compared, there, strict=True):
            if self.recipe.options.loss == "bce":
                found = [1 / (1 + (-row[0]).exp()) - arb(wanted)]
            elif self.recipe.options.loss == "mse":
                found = [2 * (row[0] - arb(wanted))]
            else:
                powers = [value.exp() for value in row]
                total = sum(powers, arb(0))
                found = [power / total - (1 if place == int(wanted) else 0) for place, power in enumerate(powers)]
            rows.append([value / len(there) if kept else arb(0) for value in found])
        return arb_mat(rows)

    def _updated(self, place: int, layer: Layer, gradients: dict[str, Matrix], step: int) -> Layer:
        """``v <- momentum v + (g + decay p)``, ``p <- p - lr v``; the first v is g itself, as in PyTorch."""
        from flint import arb

        options = self.recipe.options
        made: dict[str, Matrix | None] = {}
        lr = arb(options.lr * rate(self.recipe, step))  # the float that PyTorch takes
        for name, gradient in gradients.items():
            value = getattr(layer, name)
            if value is None:
                made[name] = None
                continue
            if options.weight_decay:
                gradient = gradient + value * arb(options.weight_decay)
            before = self.momenta.get((place, name))
            moved = gradient if before is None or not options.momentum else before * arb(options.momentum) + gradient
            self.momenta[place, name] = moved
            made[name] = value - moved * lr
        return Layer(made["weight"], made["bias"], True)


def _elementwise(slope: Callable[[Ball, Ball], Ball], inputs: Matrix, outputs: Matrix, times: Matrix) -> Matrix:
    from flint import arb_mat

    rows = zip(inputs.tolist(), outputs.tolist(), times.tolist(), strict=True)
    return arb_mat([[slope(z, y) * t for z, y, t in zip(*row, strict=True)] for row in rows])


def _column_sums(values: Matrix) -> Matrix:
    from flint import arb, arb_mat

    return arb_mat([[sum(column, arb(0)) for column in zip(*values.tolist(), strict=True)]])


def outside(balls: list[Ball], lower: Tensor, upper: Tensor) -> tuple[int, int]:
    """How many balls lie outside their bounds for certain, and of how many it is not known."""
    from flint import arb

    wrong = unknown = 0
    ends = zip(balls, lower.double().flatten().tolist(), upper.double().flatten().tolist(), strict=True)
    for ball, low, high in ends:
        if ball < arb(low) or ball > arb(high):
            wrong += 1
        elif not (ball >= arb(low) and ball <= arb(high)):
            unknown += 1
    return wrong, unknown
