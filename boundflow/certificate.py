"""Certificate: what certified training proved, and answers to "could anyone have changed this prediction?".

It holds the set of all models that training could have given, and speaks of the training algorithm with all its
choices fixed, the number of steps included. An input has its own perturbation: every feature moved by at most epsilon,
or any other threat to inputs. Its symbols run through the network beside those of the parameters.

The *lead* of class c on x is ``min over c' != c of z_c(x) - z_c'(x)``, bounded on logit differences because the logits
of one model rise and fall together. A prediction is certified if some class has a positive lower bound on its lead:
then every model in the set, on every allowed input, answers that class. Otherwise the certificate abstains.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import files, rounding
from .answers import answers, require_same
from .architecture import describe, rebuild
from .bounded import Bounded, Form
from .cuts import Answer, Boxes, in_parts, middles
from .errors import BoundFlowError, VoidBounds
from .lift import lift
from .mixing import answered_one_by_one
from .rows import Rows
from .symbols import Symbols
from .terms import Kind, Part
from .threats import Linf, Threat
from .tuning import INPUT_ROWS
from .version import __version__

FORMAT = 3
KEY = "boundflow"  # of the record, in a file
REGRESSION = "mse"  # the loss of regression
MOST_CUTS = 16  # an input in up to 65536 parts
SYMBOLS = ("symbols.number", "symbols.owner", "symbols.part")  # of every row in a file


@dataclass(frozen=True)
class Prediction:
    """Answers for a batch of inputs. ``margin`` is the lower bound on the lead of the most certain class.

    For regression ``label`` is the nominal value and ``certified`` says that the bounds are finite.
    """

    label: Tensor
    certified: Tensor
    lower: Tensor
    upper: Tensor
    margin: Tensor

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Accuracy:
    """Fractions of a test set: right for the plain model, and right for every model in the set."""

    nominal: float
    certified: float
    robustness: float


@dataclass
class Certificate:
    """The set of all models a threat allows, the plain model, and the record of how they were trained."""

    model: nn.Module | None  # None: the bounds became void
    nominal: nn.Module
    record: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # of certified training; not part of the record, so that equal runs give equal files

    # --- answers --------------------------------------------------------------------------------------------------

    @property
    def void_at_step(self) -> int | None:
        """The step at which the bounds became void, if they did; then nothing is certified."""
        return self.record.get("void_at_step")

    def predict(
        self,
        x: Any,
        epsilon: Any = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        cuts: int = 0,
        chunk: int = 256,
    ) -> Prediction:
        """Answers for inputs of which every feature may have moved by at most ``epsilon``.

        ``threat`` is any other threat to inputs instead: a ball in another norm, a trigger, tolerances, missing values.
        The box of an input that stays undecided is cut in halves up to ``cuts`` times over (`cuts.py`): tighter and
        slower, and worth it for inputs of few features.
        """
        threat = self._threat(epsilon, clip, threat)
        x = self._checked(x, threat)
        if isinstance(cuts, bool) or cuts not in range(MOST_CUTS + 1):
            raise ValueError(f"cuts must be a whole number from 0 to {MOST_CUTS}, got {cuts!r}")
        if chunk < 1:
            raise ValueError(f"chunk is how many inputs are answered for at a time, at least 1, and not {chunk}")
        for model in (self.model, self.nominal):
            if model is not None:
                model.eval()  # whoever put it in training mode meanwhile: masks are for training
        if (cuts or len(x) > chunk) and not answered_one_by_one(self.nominal, threat.observed(x)):
            raise BoundFlowError(
                "this network lets the inputs of a batch meet, so they can only be answered for all at once: "
                f"use cuts=0 and chunk={len(x)}"
            )
        parts = [self._predict(part, threat, int(cuts), chunk) for part in x.split(chunk)]
        return Prediction(*(torch.cat([getattr(part, name) for part in parts]) for name in Prediction.__annotations__))

    def accuracy(
        self,
        x: Any,
        y: Any,
        epsilon: Any = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        cuts: int = 0,
        chunk: int = 256,
    ) -> Accuracy:
        """Nominal and certified accuracy on labelled inputs; see `predict`."""
        if self._regression:
            raise BoundFlowError("accuracy is for classes: use predict(...).lower and .upper for regression")
        prediction = self.predict(x, epsilon, clip, threat=threat, cuts=cuts, chunk=chunk)
        y = torch.as_tensor(y).to(prediction.label.device).reshape(-1)
        if len(y) != len(prediction):
            raise ValueError(f"{len(prediction)} inputs and {len(y)} labels")
        threat = self._threat(epsilon, clip, threat)
        with torch.no_grad():
            right = classes(self._plain(self._checked(x, threat), threat)) == y
        certified = prediction.certified & (prediction.label == y)
        return Accuracy(share(right), share(certified), share(prediction.certified))

    @property
    def _regression(self) -> bool:
        return self.record.get("task") == "regression"

    @staticmethod
    def _threat(epsilon: Any, clip: tuple[float, float] | None, threat: Threat | None) -> Threat:
        if threat is None:
            return Linf(epsilon, clip)
        if clip is not None or bool((torch.as_tensor(epsilon) != 0).any()):
            raise ValueError("give a radius or a threat for the test inputs, not both")
        return threat

    def _checked(self, x: Any, threat: Threat) -> Tensor:
        reference = next(self.nominal.parameters())
        x = torch.as_tensor(x).to(reference.device, reference.dtype)
        shape = tuple(self.record.get("input_shape", x.shape[1:]))
        if tuple(x.shape) == shape:
            x = x.unsqueeze(0)
        if tuple(x.shape[1:]) != shape:
            raise ValueError(f"inputs of shape {tuple(x.shape[1:])} do not fit a model for inputs of shape {shape}")
        if len(x) == 0:
            raise ValueError("there are no inputs to answer for")
        if not bool(torch.isfinite(threat.observed(x)).all()):
            raise ValueError("a test input is NaN or infinite")
        return x

    def _plain(self, x: Tensor, threat: Threat) -> Tensor:
        """What the plain model answers, given a copy: a network may write into its inputs."""
        return self.nominal(threat.observed(x).clone())

    def _predict(self, x: Tensor, threat: Threat, cuts: int, chunk: int) -> Prediction:
        with torch.no_grad():
            plain = self._plain(x, threat)
            found = self._answer(x, threat, plain)
            boxes = self._boxes(x, threat) if cuts and self.model is not None else None
            if boxes is not None:
                found = self._in_parts(found, boxes, plain, cuts, chunk)
        lower, upper, leads = found
        if self._regression:
            width = upper - lower
            certified = torch.isfinite(width).flatten(1).all(1)
            margin = width.amax(1)
            return Prediction(plain, certified, lower, upper, margin.masked_fill(torch.isinf(margin), -torch.inf))
        margin, label = leads.max(1)
        certified = margin > 0
        return Prediction(torch.where(certified, label, classes(plain)), certified, lower, upper, margin)

    def _answer(self, x: Tensor, threat: Threat, plain: Tensor) -> Answer:
        """Outputs and leads of every model in the set; unknown, but shaped as ``plain``, where the bounds are void."""
        if self.model is not None:
            symbols = self._space(threat)
            try:
                logits = self._logits(x, threat, symbols)
                leads = _leads(logits) if not self._regression else logits.lower - logits.upper
                return logits.lower, logits.upper, leads
            except VoidBounds:
                pass
        unknown = plain.new_full((len(x), *plain.shape[1:]), torch.inf)
        return -unknown, unknown, -unknown if self._regression else -unknown.expand(-1, max(2, unknown.shape[1]))

    @staticmethod
    def _boxes(x: Tensor, threat: Threat) -> Tensor | None:
        """The boxes that hold all allowed inputs, (2, inputs, *shape); None if nothing moves or they are not finite."""
        try:
            boxes = threat.at_test_time(None, x)
        except VoidBounds:
            return None
        return boxes._bounds if isinstance(boxes, Bounded) else None

    def _in_parts(self, first: Answer, boxes: Tensor, plain: Tensor, cuts: int, chunk: int) -> Answer:
        label = classes(plain)

        def answer(bounds: Tensor) -> Answer:
            asked = (self._answer(middles(part), Boxes(part), plain) for part in bounds.split(chunk, 1))
            lower, upper, leads = (torch.cat(values) for values in zip(*asked, strict=True))
            return lower, upper, leads

        def slopes(points: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            asked = (slope(*some) for some in zip(points.split(chunk), inputs.split(chunk), strict=True))
            gradients, agrees = zip(*asked, strict=True)
            return torch.cat(gradients), torch.cat(agrees)

        def slope(points: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                points = points.clone().requires_grad_()
                outputs = self.nominal(points.clone())  # a network may write into its inputs
                lead = outputs if self._regression else _plain_leads(outputs, label[inputs])
                found = torch.autograd.grad(lead.sum(), points, allow_unused=True) if lead.requires_grad else (None,)
            agrees = classes(outputs.detach()) == label[inputs]
            return torch.zeros_like(points) if found[0] is None else found[0], agrees | self._regression

        return in_parts(first, boxes, cuts, answer, slopes)

    def _space(self, threat: Threat) -> Symbols:
        """A space for one answer, beside that of the parameters, if they have rows: its symbols are dropped with it."""
        assert self.model is not None
        found = next((p.symbols for p in self.model.parameters() if isinstance(p, Bounded) and p.affine), None)
        return found.child(threat) if found is not None else Symbols(threat)

    def _logits(self, x: Tensor, threat: Threat, symbols: Symbols) -> Bounded:
        """The outputs of every model in the set on every allowed input; rows track what inputs share, if they fit."""
        assert self.model is not None
        few = x.numel() * x[0].numel() * x.element_size() <= INPUT_ROWS
        return self.model(threat.at_test_time(symbols if few else None, x))

    # --- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """One safetensors file without pickled code; saving twice gives the same bytes."""
        for name, buffer in self.model.named_buffers() if self.model is not None else ():
            if isinstance(buffer, Bounded):  # the plain value alone would claim too much
                raise BoundFlowError(f"the buffer {name} became a set in training: files hold sets of parameters only")
        record = {**self.record, "format": FORMAT, "architecture": describe(self.nominal)}
        tensors: dict[str, Tensor] = {f"nominal.{name}": value for name, value in self.nominal.state_dict().items()}
        used: list[np.ndarray] = []
        symbols: Symbols | None = None
        for name, parameter in self.model.named_parameters() if self.model is not None else ():
            assert isinstance(parameter, Bounded)
            tensors[f"bounds.{name}"] = parameter._checked()._bounds
            if parameter.affine:
                symbols, form = parameter.symbols, parameter.form
                assert symbols is not None
                flat = form.generators.reshape(len(form.rows), -1)
                generators, rows, error = symbols.expand(flat, form.rows)
                used.append(rows.numbers)
                tensors |= {f"center.{name}": form.center, f"rows.{name}": torch.from_numpy(rows.numbers)}
                tensors[f"generators.{name}"] = generators.reshape(len(rows), *parameter.shape)
                tensors[f"radius.{name}"] = rounding.up(form.radius + error.reshape(parameter.shape))
        if symbols is not None:
            numbers = np.unique(np.concatenate(used))
            known = symbols.owners_and_parts(numbers)
            tensors |= dict(zip(SYMBOLS, map(torch.from_numpy, (numbers, *known)), strict=True))
            table = symbols.table[: known[1].max(initial=-1) + 1]  # what test inputs brought later is not part of it
            record["parts"] = [[part.kind.value, part.clause] for part in table]
            record["budgets"] = symbols.budgets[: max((part.clause for part in table), default=-1) + 1]
        tensors |= answers(self.nominal, record.get("input_shape"))
        files.write(path, tensors, KEY, files.sealed(record, tensors))


def load(path: str | Path, model: nn.Module | None = None) -> Certificate:
    """Read a certificate. ``model`` is a freshly made module of the same architecture, needed for custom modules."""
    tensors, text = files.read(path, KEY, "certificate")
    record = files.unsealed(path, text, tensors, FORMAT)
    del record["format"]
    architecture = record.pop("architecture", None)
    if model is None and architecture is None:
        raise BoundFlowError(f"{path} holds a custom module: pass load(path, model=...) one of the same architecture")
    nominal = (copy.deepcopy(model) if model is not None else rebuild(architecture)).eval()
    described = json.loads(json.dumps(describe(nominal)))
    if None not in (architecture, described) and architecture != described:
        raise BoundFlowError(f"{path} does not fit this model: it was trained with other layers than these")
    state = {name.removeprefix("nominal."): value for name, value in tensors.items() if name.startswith("nominal.")}
    try:
        dtype = next(value.dtype for value in state.values() if value.is_floating_point())
        nominal = nominal.to(dtype)
        nominal.load_state_dict(state)
    except (RuntimeError, StopIteration) as error:
        raise BoundFlowError(f"{path} does not fit this model: {error}") from None
    require_same(nominal, record.get("input_shape"), tensors, path)
    table = [Part(Kind(kind), clause) for kind, clause in record.pop("parts", [])]
    budgets = record.pop("budgets", [])
    if record.get("void_at_step") is not None:
        return Certificate(None, nominal, record)
    return Certificate(_bounded_copy(nominal, tensors, table, budgets, str(path)), nominal, record)


def _bounded_copy(
    nominal: nn.Module, tensors: dict[str, Tensor], table: list[Part], budgets: list[int | None], path: str
) -> nn.Module:
    symbols = Symbols()
    module = lift(copy.deepcopy(nominal), symbols)
    if any(name.startswith("rows.") for name in tensors):
        missing = [name for name in SYMBOLS if name not in tensors]
        if missing:
            raise BoundFlowError(f"{path} has no {missing[0]}, without which its rows mean nothing")
        numbers, owners, parts = (tensors[name].numpy() for name in SYMBOLS)
        symbols.restore(numbers, owners, parts, table, budgets)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if f"bounds.{name}" not in tensors:
                raise BoundFlowError(f"{path} has no bounds for parameter {name}")
            form = None
            if f"center.{name}" in tensors:
                center, generators, radius = (tensors[f"{part}.{name}"] for part in ("center", "generators", "radius"))
                form = Form(center, generators, radius, Rows(tensors[f"rows.{name}"].numpy()))
            parameter.copy_(Bounded(tensors[f"bounds.{name}"], form, symbols))
    return module.eval()


def versions() -> dict[str, str]:
    """What computed a certificate."""
    return {"boundflow": __version__, "torch": str(torch.__version__), "rounding": rounding.mode()}


def _leads(logits: Bounded) -> Tensor:
    """Lower bounds on the lead of every class, (N, classes); one logit is the lead of class 1 over class 0."""
    if logits.shape[1] == 1:
        return torch.cat((-logits.upper, logits.lower), 1)
    columns = []
    for label in range(logits.shape[1]):
        difference: Any = logits[:, label : label + 1] - logits
        others = torch.arange(logits.shape[1], device=logits.device) != label
        columns.append(difference.lower[:, others].amin(1))
    return torch.stack(columns, 1)


def _plain_leads(logits: Tensor, label: Tensor) -> Tensor:
    """The lead of a label in plain logits."""
    if logits.shape[1] == 1:
        return torch.where(label > 0, logits[:, 0], -logits[:, 0])
    own = torch.nn.functional.one_hot(label, logits.shape[1]).bool()
    return logits[own] - logits.masked_fill(own, -torch.inf).amax(1)


def classes(logits: Tensor) -> Tensor:
    """The class that logits answer; one logit decides between two by its sign."""
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def share(decisions: Tensor) -> float:
    """The fraction that is true."""
    return decisions.double().mean().item()
