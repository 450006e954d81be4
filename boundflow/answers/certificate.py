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
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..analysis import withstanding
from ..analysis.audit import Audit, Auditor
from ..analysis.smaller_threats import levels, require_tracked
from ..analysis.verified_rows import fixed, numbers_of, tracked, with_fixed
from ..arithmetic import rounding
from ..arithmetic.tuned_numbers import INPUT_ROWS
from ..errors import BoundFlowError, VoidBounds
from ..fast.memory.out_of_memory import needs_less
from ..files import certificate_files
from ..rules.operand_properties import has_own_rows
from ..same_program import tripwire
from ..same_program.batch_independence import needs_no_trial, samples_meet
from ..same_program.digests import of_tensors
from ..same_program.forward_effects import require_settled
from ..symbols.space import Symbols
from ..tensor.bounded import Bounded
from ..tensor.lift import Given
from ..threats import Threat
from ..version import __version__
from .cuts import Answer, Boxes, in_parts, middles
from .derived_sets import asked_through_derived_symbols
from .prediction import Accuracy, Prediction, classes, leads, plain_leads, share, threat_to_inputs

MOST_CUTS = 16  # an input in up to 65536 parts
ONCE = threading.Lock()


@dataclass
class Certificate:
    """The set of all models a threat allows, the plain model, and the record of how they were trained."""

    model: nn.Module | None  # None: the bounds became void
    nominal: nn.Module
    record: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # of certified training; not part of the record, so that equal runs give equal files
    _rehearsed: bool = field(default=False, init=False, repr=False, compare=False)
    _tried: frozenset[int] = field(default=frozenset(), init=False, repr=False, compare=False)  # numbers of inputs
    _met: tuple[str, bool] | None = field(default=None, init=False, repr=False, compare=False)  # of the last inputs
    _derived: tuple[nn.Module, nn.Module] | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_derived": None}  # made again where it is asked for: it is in a space of its own

    # --- answers --------------------------------------------------------------------------------------------------

    @property
    def void_at_step(self) -> int | None:
        """The step at which the bounds became void, if they did; then nothing is certified."""
        return self.record.get("void_at_step")

    @needs_less("a smaller chunk=, or fewer cuts=, needs less")
    def predict(
        self,
        x: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        cuts: int = 0,
        chunk: int = 256,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> Prediction:
        """Answers for inputs of which every feature may have moved by at most ``epsilon``.

        ``threat`` is any other threat to inputs instead: a ball in another norm, a trigger, tolerances, missing values.
        The box of an input that stays undecided is cut in halves up to ``cuts`` times over (`cuts.py`): tighter and
        slower, and worth it for inputs of few features. ``chunk`` inputs are asked about at a time; after each chunk
        ``tell`` is called with how many have an answer, and with how many there are.
        """
        threat = threat_to_inputs(epsilon, clip, threat)
        x = self._checked(x, threat)
        if isinstance(cuts, bool) or cuts not in range(MOST_CUTS + 1):
            raise ValueError(f"cuts must be a whole number from 0 to {MOST_CUTS}, got {cuts!r}")
        if chunk < 1:
            raise ValueError(f"chunk is how many inputs are answered for at a time, at least 1, and not {chunk}")
        asked = self._in_evaluation_mode()
        in_parts = asked._require_one_by_one(x, threat, cuts, chunk)
        asked._rehearse(threat.observed(x), chunk)
        self._rehearsed, self._tried, self._met = True, asked._tried, asked._met
        order = _order(x) if in_parts else None
        given = x if order is None else x[order]
        parts: list[Prediction] = []
        for part in torch.split(given, chunk):
            parts.append(asked._predict(part, threat, int(cuts), chunk))
            tell(min(chunk * len(parts), len(given)), len(given))
        found = Prediction.joined(parts)
        return found if order is None else found.at(torch.argsort(order))

    def accuracy(
        self,
        x: Given,
        y: Given,
        epsilon: Given = 0.0,
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
        threat, asked = threat_to_inputs(epsilon, clip, threat), self._in_evaluation_mode()
        with torch.no_grad():
            right = classes(asked._plain(asked._checked(x, threat), threat)) == y
        certified = prediction.certified & (prediction.label == y)
        return Accuracy(share(right), share(certified), share(prediction.certified))

    # --- samples behind the answers ---------------------------------------------------------------------------------

    def verified(self, samples: Given, cells: Given | None = None) -> Certificate:
        """The certificate where these training samples are known to be as recorded: nothing is trained again.

        ``cells`` are their inputs (samples, *shape), read where they were missing (NaN leaves a cell open): that all
        else stands there as recorded is what is said by verifying a sample, and is not compared.
        """
        return self._with_fixed(numbers_of(samples, self.record.get("samples", np.inf)), cells, stand_in=False)

    @needs_less("a smaller chunk= or budget= needs less")
    def audit(
        self,
        x: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        budget: int = 0,
        every: bool = False,
        chunk: int = 256,
    ) -> Audit:
        """What abstained predictions (or, with ``every``, all) lean on, and up to ``budget`` samples to check first."""
        if isinstance(budget, bool) or budget != int(budget) or budget < 0:
            raise ValueError(f"budget is how many samples can be checked, a whole number, and not {budget!r}")
        threat = threat_to_inputs(epsilon, clip, threat)
        asked = self._in_evaluation_mode()
        auditor = Auditor(asked, threat, int(budget), chunk)
        answers, x = self.predict(x, threat=threat, chunk=chunk), self._checked(x, threat)
        which = torch.arange(len(answers))
        if not every and not self._regression:
            which = which[~answers.certified.cpu()]
        return auditor.audit(x, which.numpy(), answers)

    def _with_fixed(self, samples: np.ndarray, cells: Given | None, stand_in: bool) -> Certificate:
        known = tracked(self.model)
        assert self.model is not None
        values = None
        if cells is not None and len(samples):
            values = torch.as_tensor(cells).detach().cpu().double().reshape(len(samples), -1).numpy()
            self._require_not_contradicted(samples, values)
        fixed_symbols = fixed(known, samples, values, stand_in)
        record = {**self.record, "verified": sorted({*self.record.get("verified", ()), *samples.tolist()})}
        if fixed_symbols.filled and not stand_in:  # plain training saw other values in these cells
            record["filled"] = sorted(map(list, {*map(tuple, record.get("filled", ())), *fixed_symbols.filled}))
            record["filled_cells"] = len(record["filled"])
        made = Certificate(with_fixed(self.model, known.space, fixed_symbols), self.nominal, record, self.seconds)
        made._rehearsed, made._tried, made._met = self._rehearsed, self._tried, self._met
        return made

    def _require_not_contradicted(self, samples: np.ndarray, values: np.ndarray) -> None:
        """Refuse cells of another shape than the inputs, and other values than were filled in before."""
        features = int(np.prod(self.record.get("input_shape", values.shape[1:])))
        if values.shape[1] != features:
            raise ValueError(f"cells of {values.shape[1]} features for samples of {features}: NaN leaves one as it is")
        row_of = {sample: row for row, sample in enumerate(samples.tolist())}
        for sample, column, before in self.record.get("filled", ()):
            given = values[row_of[sample], column] if sample in row_of else np.nan
            if not np.isnan(given) and given != before:
                raise ValueError(f"sample {sample}: {given:g} in column {column}, which was verified to be {before:g}")

    # --- what answers withstand -----------------------------------------------------------------------------------

    @needs_less("a smaller chunk= needs less")
    def withstands(
        self,
        x: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        over: str | None = None,
        chunk: int = 256,
    ) -> withstanding.Withstood:
        """For each prediction the largest k, or epsilon, at which it is certain (`withstanding.py`).

        ``epsilon``, ``clip`` and ``threat`` are those of the test inputs and stay as they are; ``over`` says what is
        varied: "k", how many training samples were touched, or "epsilon", how far they were moved.
        """
        threat = threat_to_inputs(epsilon, clip, threat)
        return withstanding.of_one(self, x, threat=threat, over=over, chunk=chunk)

    def curve(
        self, x: Given, y: Given, *others: Certificate, values: Sequence[float] | None = None, **asked: Any
    ) -> withstanding.Curve:
        """Certified accuracy against k or epsilon, together with other certificates of the same training."""
        if not others:
            require_tracked(levels(self, asked.get("over")))
        return withstanding.curve([self, *others], x, y, values=values, **asked)

    # --- before the first answer ------------------------------------------------------------------------------------

    def _in_evaluation_mode(self) -> Certificate:
        """This certificate, or a copy of it where a model is still being trained: masks are for training.

        A copy, since putting a model that trains in another mode, even for a moment, is seen by other threads.
        """
        models = [model for model in (self.model, self.nominal) if model is not None]
        if not any(module.training for model in models for module in model.modules()):
            return self
        model = None if self.model is None else copy.deepcopy(self.model).eval()
        made = Certificate(model, copy.deepcopy(self.nominal).eval(), self.record)
        made._rehearsed, made._tried, made._met = self._rehearsed, self._tried, self._met
        return made

    def _require_one_by_one(self, x: Tensor, threat: Threat, cuts: int, chunk: int) -> bool:
        """Whether to answer in parts, which is refused for a network that lets these inputs meet."""
        if not cuts and len(x) <= chunk:
            return False
        x = threat.observed(x)
        if needs_no_trial(self.nominal, x):
            return True
        asked = of_tensors(x)  # a network may do something else with others, or with more of them
        if self._met is None or self._met[0] != asked:
            self._met = asked, samples_meet(self.nominal, x, training=False)
        if self._met[1]:
            raise BoundFlowError(
                "this network lets the inputs of a batch meet, so they can only be answered for all at once: "
                f"use cuts=0 and chunk={len(x)}"
            )
        return True

    def _rehearse(self, x: Tensor, chunk: int) -> None:
        """The first answer, and the first for so many inputs, without the threat: as wide as rounding (`tripwire.py`).

        A network that draws, or changes state, for so many at a time is refused: it was tried with a few.
        """
        asked = [] if self._rehearsed else [x[: 2 * chunk]]
        sizes = {min(chunk, len(x)), len(x) % chunk} - {0} - self._tried
        if sizes and not needs_no_trial(self.nominal, x):
            for size in sorted(sizes):
                require_settled(self.nominal, x[:size])
                asked.append(x[:size])
            self._tried |= sizes
        for some in asked if self.model is not None and self._outward else ():
            with torch.no_grad():
                plain = self.nominal(some.clone())
                found = [tripwire.rehearsed_answers(self.nominal, part) for part in torch.split(some, chunk)]
            known = [part for part in found if part is not None]
            if len(known) == len(found):
                lower, upper = (torch.cat(side) for side in zip(*known, strict=True))
                tripwire.check_answers(lower, upper, plain, without_threat=True)

    @property
    def _outward(self) -> bool:
        return bool(self.record.get("rounding", rounding.mode()) == "outward")

    # --- one answer -------------------------------------------------------------------------------------------------

    @property
    def _regression(self) -> bool:
        return bool(self.record.get("task") == "regression")

    def _checked(self, given: Given, threat: Threat) -> Tensor:
        reference = next(self.nominal.parameters())
        x = torch.as_tensor(given).to(reference.device, reference.dtype)
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
        answers: Tensor = self.nominal(threat.observed(x).clone())
        return answers

    def _predict(self, x: Tensor, threat: Threat, cuts: int, chunk: int) -> Prediction:
        with torch.no_grad():
            plain = self._plain(x, threat)
            found = self._answer(x, threat, plain)
            boxes = self._boxes(x, threat) if cuts and self.model is not None else None
            if boxes is not None:
                found = self._in_parts(found, boxes, plain, cuts, chunk)
        lower, upper, lead = found
        if self._outward and not self.record.get("filled_cells"):
            tripwire.check_answers(lower, upper, plain)
        if self._regression:
            return Prediction(plain, torch.isfinite(upper - lower).flatten(1).all(1), lower, upper)
        margin, label = lead.max(1)
        certified = margin > 0
        return Prediction(torch.where(certified, label, classes(plain)), certified, lower, upper, lead)

    def _answer(self, x: Tensor, threat: Threat, plain: Tensor) -> Answer:
        """Outputs and leads of every model in the set; unknown, but shaped as ``plain``, where the bounds are void."""
        if self.model is not None:
            symbols = self._space(threat)
            try:
                logits = self._logits(x, threat, symbols)
                return logits.lower, logits.upper, logits.lower - logits.upper if self._regression else leads(logits)
            except VoidBounds:
                pass
        unknown = plain.new_full((len(x), *plain.shape[1:]), torch.inf)
        return -unknown, unknown, -unknown if self._regression else -unknown.expand(-1, max(2, unknown.shape[1]))

    def _certain(self, x: Tensor, threat: Threat, label: Tensor) -> Tensor:
        """Whether every model answers these labels: one lead each, where `predict` bounds that of every class."""
        ahead = self._ahead(x, threat, label)
        if ahead is None:
            return torch.zeros(len(x), dtype=torch.bool, device=x.device)
        lower = ahead.lower
        if lower.shape[1] > 1:
            lower = lower.masked_fill(torch.nn.functional.one_hot(label, lower.shape[1]).bool(), torch.inf)
        return lower.amin(1) > 0

    def _ahead(self, x: Tensor, threat: Threat, label: Tensor) -> Bounded | None:
        """How far each label is ahead of every class, itself included, or of the other one; None if that is void."""
        if self.model is None:
            return None
        with torch.no_grad():
            plain = self._plain(x, threat)
            try:
                logits: Any = self._logits(x, threat, self._space(threat))
                if plain.shape[1] == 1:  # one logit is the lead of class 1
                    ahead = logits * (2 * label - 1).to(plain.dtype).unsqueeze(1)
                else:
                    own = torch.nn.functional.one_hot(label, plain.shape[1]).to(plain.dtype)
                    ahead = (logits * own).sum(1, keepdim=True) - logits
            except VoidBounds:
                return None
        if self._outward:
            tripwire.check_answers(logits.lower, logits.upper, plain)
        assert isinstance(ahead, Bounded)
        return ahead

    @staticmethod
    def _boxes(x: Tensor, threat: Threat) -> Tensor | None:
        """The boxes that hold all allowed inputs, (2, inputs, *shape); None if nothing moves or they are not finite."""
        try:
            boxes = threat.at_test_time(None, x)
        except VoidBounds:
            return None
        return boxes.set.bounds if isinstance(boxes, Bounded) else None

    def _in_parts(self, first: Answer, boxes: Tensor, plain: Tensor, cuts: int, chunk: int) -> Answer:
        label = classes(plain)

        def answer(bounds: Tensor) -> Answer:
            asked = (self._answer(middles(part), Boxes(part), plain) for part in torch.split(bounds, chunk, 1))
            lower, upper, lead = (torch.cat(values) for values in zip(*asked, strict=True))
            return lower, upper, lead

        def slopes(points: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            asked = (slope(*some) for some in zip(torch.split(points, chunk), torch.split(inputs, chunk), strict=True))
            gradients, agrees = zip(*asked, strict=True)
            return torch.cat(gradients), torch.cat(agrees)

        def slope(points: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                points = points.clone().requires_grad_()
                outputs = self.nominal(points.clone())  # a network may write into its inputs
                lead = outputs if self._regression else plain_leads(outputs, label[inputs])
                found = torch.autograd.grad(lead.sum(), points, allow_unused=True) if lead.requires_grad else (None,)
            agrees = classes(outputs.detach()) == label[inputs]
            return torch.zeros_like(points) if found[0] is None else found[0], agrees | self._regression

        return in_parts(first, boxes, cuts, answer, slopes)

    @property
    def _asked(self) -> nn.Module:
        """The set of models as it is asked: over derived symbols, where it was written out over many rows."""
        assert self.model is not None
        with ONCE:  # the symbols of an answer belong to the space of one such model
            if self._derived is None or self._derived[0] is not self.model:
                self._derived = self.model, asked_through_derived_symbols(self.model)
            return self._derived[1]

    def _space(self, threat: Threat) -> Symbols:
        """A space for one answer, beside that of the parameters: its symbols are dropped with it."""
        found = next((p.symbols for p in self._asked.parameters() if isinstance(p, Bounded) and p.symbols), None)
        return found.child(threat) if found is not None else Symbols(threat)

    def _logits(self, x: Tensor, threat: Threat, symbols: Symbols) -> Bounded:
        """The outputs of every model in the set on every allowed input; rows track what inputs share, if they fit."""
        few = x.numel() * x[0].numel() * x.element_size() <= INPUT_ROWS
        lifted = threat.at_test_time(symbols if few else None, x)
        if isinstance(lifted, Bounded) and has_own_rows(lifted.set) and bool((lifted.lower == lifted.upper).all()):
            lifted = lifted.lower.clone()  # points: nothing about these inputs is unknown
        logits: Bounded = self._asked(lifted)
        return logits

    # --- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """One safetensors file without pickled code; saving twice gives the same bytes."""
        certificate_files.write(path, self.model, self.nominal, self.record)


def _order(x: Tensor) -> Tensor | None:
    """Inputs with missing values after all others, which then come as points; None where all are of one kind."""
    holes = torch.isnan(x).flatten(1).any(1)
    return torch.argsort(holes, stable=True) if bool(holes.any()) and not bool(holes.all()) else None


def load(path: str | Path, model: nn.Module | None = None) -> Certificate:
    """Read a certificate. ``model`` is a freshly made module of the same architecture, needed for custom modules."""
    return Certificate(*certificate_files.read(path, model))


def versions() -> dict[str, str]:
    """What computed a certificate."""
    return {"boundflow": __version__, "torch": str(torch.__version__), "rounding": rounding.mode()}
