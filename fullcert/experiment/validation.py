"""Whether a network can be certified: which of its operators have rules, layer by layer, and which do not.

Three things are asked. A walk through plain training with probes finds every operator that a set would meet, and tries
each on sets (`probing.py`). Every layer is run alone on sets, forward and backward, with intervals and with zonotopes.
And two whole training steps are made on sets: the verdict is theirs, the walk says why.

Parameters are sets from the start here, as they are after the first step of a training: an operator may have a rule for
a constant and none for a set.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map

import boundflow as bf
from boundflow.arithmetic.tuned_numbers import MEMORY
from boundflow.operators.losses import LOSSES
from boundflow.training.checked_inputs import in_training
from boundflow.training.recipe import DOMAINS
from fullcert.experiment.training import OPTIMIZERS
from fullcert.networks.probing import NO_RULE, QUESTION, RADIUS, Found, Place, Probe, Walk, probe, sentence
from fullcert.system.mistakes import Mistake, check_known, choose

SAMPLES = 4
MOVED = 8  # features get symbols: enough to meet every rule, few enough for images
STEPS = 2  # the second step has momentum
LOSS, OPTIMIZER = "(loss)", "(optimizer)"

# where the rules themselves have no better word, as they have for BatchNorm
ADVICE: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.modules.instancenorm._InstanceNorm, "use nn.LayerNorm"),
    (nn.GroupNorm, "use nn.LayerNorm"),
    (nn.RNNBase, "write the recurrence with nn.Linear and nn.Tanh, step by step"),
    (nn.MultiheadAttention, "ask for need_weights=True without dropout, or write it with torch.matmul and softmax"),
    (nn.modules.pooling._AdaptiveMaxPoolNd, "use nn.MaxPool2d or nn.AdaptiveAvgPool2d"),
    (nn.AlphaDropout, "use nn.Dropout"),
)


@dataclass(frozen=True)
class Failure:
    """Why a training on sets, or a layer alone, cannot be made."""

    reason: str
    where: str | None = None
    operator: bool = False  # an operator is the reason, which the walk names together with all others

    def __str__(self) -> str:
        return self.reason if self.where is None else f"{self.reason} (in {self.where})"


@dataclass(frozen=True)
class Layer:
    """A part of the model: what it asks for, and how it fares alone."""

    name: str
    kind: str
    operators: tuple[Found, ...]
    alone: dict[str, Failure | None] = field(default_factory=dict)  # by domain; empty: not run alone
    advice: str | None = None

    def problem(self, domain: str) -> str | None:
        """Why it cannot be trained on sets, or None."""
        return "; ".join(_complaints(self.operators, self.alone.get(domain))) or None


@dataclass(frozen=True)
class Validation:
    """What was found about a model."""

    domain: str
    layers: tuple[Layer, ...]
    whole: dict[str, Failure | None]  # of two training steps, by domain
    notes: tuple[str, ...]

    @property
    def certifiable(self) -> bool:
        return self.whole[self.domain] is None

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The operators without a rule, and those that are refused as they are called; each once."""
        every = [short(found.operator) for layer in self.layers for found in layer.operators if found.unsupported]
        return tuple(dict.fromkeys(every))

    @property
    def verdict(self) -> str:
        """One sentence."""
        failure = self.whole[self.domain]
        if failure is None:
            return f"This model can be certified with domain {self.domain}."
        operators = [found for layer in self.layers for found in layer.operators]
        told = "; ".join(_complaints(operators, failure))
        missing = any(found.unsupported and found.verdict == NO_RULE for found in operators)
        more = ". See docs/extending.md" if missing else "."
        return f"This model cannot be certified with domain {self.domain}: {told}{more}"


def _complaints(operators: Iterable[Found], failure: Failure | None) -> list[str]:
    """What failed, unless the operators say it; those without a rule by name, and why others are refused."""
    unsupported = [found for found in operators if found.unsupported]
    missing = dict.fromkeys(short(found.operator) for found in unsupported if found.verdict == NO_RULE)
    have = "1 operator has no rule" if len(missing) == 1 else f"{len(missing)} operators have no rule"
    told = [f"{have}: {', '.join(missing)}"] if missing else []
    told += dict.fromkeys(found.reason.rstrip(".") for found in unsupported if found.verdict != NO_RULE)
    if failure is None or (told and failure.operator) or failure.reason.rstrip(".") in told:
        return told
    return [str(failure).rstrip("."), *told]


@dataclass(frozen=True)
class Trial:
    """One training recipe, on data that stand for any."""

    shape: tuple[int, ...]
    outputs: int
    loss: str
    optimizer: str
    seed: int = 0

    def __post_init__(self) -> None:
        check_known("loss", self.loss, LOSSES)
        check_known("optimizer", self.optimizer, OPTIMIZERS)
        if LOSSES[self.loss].outputs == "one" and self.outputs != 1:
            raise Mistake(f"the loss {self.loss!r} needs one output, and {self.outputs} were asked for: use ce")

    def data(self) -> tuple[Tensor, Tensor]:
        """A few random inputs, and targets of the kind that the loss takes."""
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(SAMPLES, *self.shape, generator=generator, dtype=torch.float64)
        if self.loss == "mse":
            return x, torch.randn(SAMPLES, self.outputs, generator=generator, dtype=torch.float64)
        labels = torch.arange(SAMPLES) % max(self.outputs, 2)
        return x, labels if LOSSES[self.loss].outputs == "classes" else labels.double().unsqueeze(1)

    def train(self, model: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], at: Callable[..., Any]) -> None:
        """A few steps, as anyone would write them; `at` says in which part of a step we are."""
        kind, taken = choose("optimizer", self.optimizer, OPTIMIZERS)
        options: dict[str, Any] = {"lr": 0.01} | ({"momentum": 0.9} if "momentum" in taken else {})
        optimizer = kind([p for p in model.parameters() if p.requires_grad], **options)
        for _ in range(STEPS):
            optimizer.zero_grad()
            x, y = batch()
            outputs = model(x)
            with at(LOSS, outputs) as results:
                results.append(LOSSES[self.loss](outputs, y))
            with at(LOSS, results):
                results[0].backward()
            with at(OPTIMIZER, ()):
                optimizer.step()


def validate(model: nn.Module, trial: Trial, domain: str) -> Validation:
    """Try a model on sets, whole and in parts. The model is left as it is."""
    check_known("domain", domain, DOMAINS)
    model = in_training(copy.deepcopy(model).double())
    with torch.random.fork_rng(devices=[]):
        walk = _walked(copy.deepcopy(model), trial)
        whole = {name: _stepped(copy.deepcopy(model), trial, name) for name in DOMAINS}
        layers = tuple(_layers(model, walk))
    if whole[domain] is None:  # what the walk met, a training did not trip over: it is no obstacle
        layers = tuple(_cleared(layer, domain) for layer in layers)
    return Validation(domain, layers, whole, tuple(_notes(model, walk)))


def _walked(model: nn.Module, trial: Trial) -> Walk:
    x, y = trial.data()

    def step(model: nn.Module, walk: Walk) -> None:
        trial.train(model, lambda: (Probe(x.clone()), y), lambda name, results: walk.at(Place(name), results))

    torch.manual_seed(trial.seed)
    return probe(model, step)


def _stepped(model: nn.Module, trial: Trial, domain: str) -> Failure | None:
    """Where and why a training on sets fails, or None."""
    x, y = trial.data()
    symbols = _symbols(x) if domain == "zonotope" else None
    index, stack = torch.arange(SAMPLES), _stack(model)

    def batch() -> tuple[Tensor, Tensor]:
        return (bf.ball(x, RADIUS), y) if symbols is None else symbols.lift(x, y, index)

    @contextmanager
    def at(name: str, results: Any) -> Iterator[list[Any]]:
        stack.append(name)
        yield []
        stack.pop()

    torch.manual_seed(trial.seed)
    try:
        trial.train(_widened(model, symbols), batch, at)
    except Exception as error:
        return _failure(error, stack[-1] if stack else None)
    held = [name for name, buffer in model.named_buffers() if isinstance(buffer, bf.Bounded)]
    if held:  # it would come back from a file as the one value of the plain model
        return Failure(
            f"training makes a set of the buffer {held[0]}, and certificate files hold sets of parameters only"
        )
    return None


def _layers(model: nn.Module, walk: Walk) -> Iterator[Layer]:
    """Every part of the model that asked for an operator or can be run alone, in the order of the calls."""
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    names = dict.fromkeys([*walk.calls, *(found.layer for found in walk.found), LOSS, OPTIMIZER])
    for name in sorted(names, key=[*kinds, LOSS, OPTIMIZER].index):
        module = model.get_submodule(name) if name in kinds else None
        operators = tuple(found for found in walk.found if found.layer == name)
        alone = {}
        if module is not None and name in walk.calls and name not in walk.inner:
            alone = {domain: _alone(module, walk.calls[name], domain) for domain in DOMAINS}
        if operators or alone:
            layer = Layer(name or "(model)", kinds.get(name, ""), operators, alone)
            failed = any(layer.problem(domain) for domain in DOMAINS)
            advice = next((text for kind, text in ADVICE if isinstance(module, kind)), None) if failed else None
            yield Layer(layer.name, layer.kind, operators, alone, advice)


def _alone(module: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any]], domain: str) -> Failure | None:
    """What a layer raises when it is run on sets around what it was given, forward and backward."""
    tensors = [x for x in tree_iter(call) if isinstance(x, Tensor) and x.is_floating_point()]
    symbols = _symbols(tensors[0]) if domain == "zonotope" and tensors and tensors[0].dim() else None
    first = 0

    def lifted(x: Any) -> Any:
        nonlocal first
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        x = x.detach().clone()
        if symbols is None or not x.dim():
            return bf.ball(x, RADIUS)
        index, first = torch.arange(first, first + len(x)), first + len(x)
        return symbols.lift(x, torch.zeros(len(x)), index)[0]

    try:
        layer = _widened(copy.deepcopy(module), symbols)
        args, kwargs = tree_map(lifted, call)
        for result in tree_iter(layer(*args, **kwargs)):
            if isinstance(result, bf.Bounded) and result.requires_grad:
                result.sum().backward(retain_graph=True)
    except Exception as error:
        return _failure(error, None)
    return None


def _symbols(x: Tensor) -> bf.Symbols:
    """A space in which a few features of every sample have symbols."""
    return bf.Symbols(bf.threats.Linf(RADIUS).on(features=list(range(min(MOVED, x[0].numel())))))


def _widened(model: nn.Module, symbols: bf.Symbols | None) -> nn.Module:
    """The model on sets that are more than points, as they are after a step."""
    bf.lift(model, symbols)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(bf.ball(parameter.center, RADIUS))  # type: ignore[attr-defined]
    return model


def _stack(model: nn.Module) -> list[str]:
    """The layers that are being run, the innermost last; what raises leaves its name there."""
    stack: list[str] = []

    def watch(name: str, module: nn.Module) -> None:
        module.register_forward_pre_hook(lambda module, args: stack.append(name or "(model)"))
        module.register_forward_hook(lambda module, args, result: stack.remove(stack[-1]))

    for name, module in model.named_modules():
        watch(name, module)
    return stack


def _failure(error: Exception, where: str | None) -> Failure:
    """What was raised, in words for the owner of the model."""
    if isinstance(error, bf.Undecided):
        return Failure("it asks a question of a set (if, bool(), item()) that the bounds do not decide", where)
    if "weakref" in str(error):  # of torch.utils.swap_tensors
        return Failure("PyTorch keeps weak references to the parameters of recurrent layers, so they cannot be lifted")
    return Failure(sentence(error), where, isinstance(error, bf.UnsupportedOperator | bf.PlainTarget))


def _cleared(layer: Layer, domain: str) -> Layer:
    """A layer of a model whose training worked."""
    operators = tuple(found for found in layer.operators if not found.unsupported)
    return Layer(layer.name, layer.kind, operators, {**layer.alone, domain: None} if layer.alone else {})


def _notes(model: nn.Module, walk: Walk) -> Iterator[str]:
    """What is true of the model and not a matter of rules."""
    for layer in dict.fromkeys(found.layer or "(model)" for found in walk.found if found.verdict == QUESTION):
        yield (
            f"{layer} asks a question of a set (if, bool() or item()): training on sets raises as soon as the bounds "
            "do not decide it. Use torch.where, which takes both answers."
        )
    scalars = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    size = 8 * scalars**2
    if size > MEMORY:
        yield (
            f"a zonotope keeps a row for every trained parameter: {scalars:,} of them take at least {size / 2**30:.0f} "
            "GB. Use intervals, freeze layers, or train a smaller network."
        )


def short(operator: str) -> str:
    """The name of an operator as people say it: aten.mm.default is mm."""
    return operator.removeprefix("aten.").removesuffix(".default")
