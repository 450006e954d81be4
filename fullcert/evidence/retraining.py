"""Evidence for a saved certificate that does not rest on the file: its training again, and trainings of other datasets.

    rerun       the same training once more gives the same bytes, and the same numbers for its report; from another
                machine, the same bounds up to rounding
    trainings   plain PyTorch trainings on datasets that the threat allows end inside the bounds, and their answers too
    balls       the same in ball arithmetic: results in real numbers, enclosed to 50 digits, lie inside the bounds

Options and data come from the folder of the run. A network from a file of the user is code, which is run on request
alone. Nothing is believed that the certificate says of its data: they are loaded anew and their digest is compared.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import boundflow as bf
from boundflow.same_program.identity import of_tensors
from fullcert.evidence import ball_training, figures, plain_training
from fullcert.evidence.plain_training import NotTrained
from fullcert.evidence.poisoning import Data, NotDrawn, member
from fullcert.experiment import identity, runs
from fullcert.experiment.training import Recipe, of_run
from fullcert.networks.model_files import is_file
from fullcert.results import voting
from fullcert.system.mistakes import Mistake
from fullcert.system.startup import use_threads

APART = 0.01  # how far bounds of two machines may be apart, as a share of their width
VERSIONS = ("torch", "boundflow", identity.VERSION)
DIGESTS = ("identity", identity.KEY)  # in a record, those of the library and those of the command
SETTINGS = ("data", "initial_weights", "dtype", "rounding", "boundflow", "torch")


class Skip(Exception):
    """A check that cannot be made of this run; the message says why."""


class Refuted(Exception):
    """What was found is not what the certificate says."""


Progress = Callable[[str], None]


def recipe_of(run: Path, run_code: bool = False, device: str | None = None) -> Recipe:
    """The recipe of a run, from its folder; on another device where one is named."""
    kept = identity.opened(run)
    if is_file(kept.options.model) and not run_code:
        raise Skip(f"its network is code in {kept.options.model.partition(':')[0]}, which --run-code runs")
    with refuted():
        return of_run(kept, device)


@contextmanager
def refuted() -> Iterator[None]:
    """Data, columns and code that are not those of the certificate refute that it is about them."""
    try:
        yield
    except identity.Changed as mistake:
        raise Refuted(str(mistake)) from None


def certificate_of(run: Path, recipe: Recipe) -> bf.Certificate:
    """The certificate of a run, about the data that are here."""
    if voting.votes(run):
        raise Skip("the vote of --members is not trained on poisoned data here: --rerun trains its members again")
    model = recipe.initial if is_file(recipe.options.model) else None
    found = bf.load(run / runs.CERTIFICATE, model)
    if not isinstance(found, bf.Certificate):
        raise Skip("it was fitted to the optimum, which is not trained step by step: --rerun fits it again")
    if found.model is None:
        raise Skip(f"its bounds became void at step {found.void_at_step}: every training is inside")
    if "sample_weights" in found.record:
        raise Skip("its samples had weights of their own, which its options do not name: they are not trained here")
    x, y = observed(recipe)
    compared = plain_training.targets(recipe, y)
    labels = compared.long() if recipe.options.loss == "ce" else compared.to(x.dtype).reshape(-1, 1)
    if found.record.get("data") != of_tensors(x, labels):
        raise Refuted("the data that its options name are not those it was trained on: their digest is another")
    return found


def observed(recipe: Recipe) -> tuple[Tensor, Tensor]:
    x, y = recipe.tensors(recipe.data.train)
    return x, y.to(x.device)


# --- the same training again ----------------------------------------------------------------------------------------


def rerun(run: Path, recipe: Recipe, elsewhere: bool, progress: Progress) -> str:
    """Train once more, and compare."""

    if voting.votes(run):
        return rerun_members(run, recipe, progress)

    def told(step: bf.Step) -> None:
        progress(f"training again, step {step.number} of {step.total}")

    use_threads(None, recipe)  # as training takes them
    again = recipe.certify([told])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / runs.CERTIFICATE
        again.save(path)
        if path.read_bytes() == (run / runs.CERTIFICATE).read_bytes():
            return "the same training gave the same bytes" + numbers(run, recipe, again, True, progress)
        made = bf.load(path, recipe.initial if is_file(recipe.options.model) else None)
    kept = bf.load(run / runs.CERTIFICATE, recipe.initial if is_file(recipe.options.model) else None)
    different = differences(kept.record, made.record)
    made_here = (*VERSIONS, "features") if elsewhere else VERSIONS  # features are numbers that were computed
    other = [name for name in different if not name.rpartition(": ")[2].startswith(made_here)]
    if other:
        raise Refuted(f"the same training is about something else: {'; '.join(different[name] for name in other)}")
    if not elsewhere and not different:
        raise Refuted(
            "the same training gave other bytes, and no setting that is recorded differs: if it was made on another "
            "machine, device or number of threads, --elsewhere compares the bounds"
        )
    why = "; ".join(different.values()) or "made elsewhere"
    agree = compared(kept, made)
    return f"not the same bytes ({why}), but {agree}{numbers(run, recipe, again, False, progress)}"


def numbers(run: Path, recipe: Recipe, again: bf.Certificate | bf.Ensemble, exactly: bool, progress: Progress) -> str:
    """That the numbers of the report are those of the training made again; where there are none, nothing is said."""
    if not (run / runs.EVALUATION).is_file():
        return ""
    with refuted():
        other = figures.differ(run, recipe, again, exactly, progress)
    if other is not None:
        raise Refuted(f"the same training says something else of the test samples: {other}")
    return ", and the same numbers for its report" if exactly else ", and so do the headlines of their reports"


def rerun_members(run: Path, recipe: Recipe, progress: Progress) -> str:
    """Train all members once more, and compare their bytes."""
    kept = runs.certificates(run)
    with tempfile.TemporaryDirectory() as folder:
        again = voting.trained(recipe, Path(folder), progress, lambda: None)
        if {path.name for path in kept} != {path.name for path in Path(folder).glob("member-*")}:
            raise Refuted("the same training gave other members")
        for path in kept:
            if path.read_bytes() != (Path(folder) / path.name).read_bytes():
                raise Refuted(f"the same training gave other bytes for {path.name}; bounds of members are not compared")
    told = f"the same trainings gave the same bytes for all {len(kept)} certificates"
    return told + numbers(run, recipe, again, True, progress)


def differences(kept: dict[str, Any], made: dict[str, Any]) -> dict[str, str]:
    """In what two records differ, in words; what only one of them says is a difference, too."""
    then, now = flat(kept), flat(made)
    names = [*SETTINGS, *sorted({*then, *now} - {*SETTINGS, "compiled"})]
    words = {}
    for name in names:
        if then.get(name) != now.get(name):
            there, here = (str(record.get(name))[:40] for record in (then, now))
            words[name] = f"{name.replace('_', ' ')} is {there} there and {here} here"
    return words


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record, and the digests of what its training rests on by names of their own."""
    digests = {f"{part}: {name}": value for part in DIGESTS for name, value in (record.get(part) or {}).items()}
    return {name: value for name, value in record.items() if name not in DIGESTS} | digests


def compared(kept: bf.Certificate | bf.OptimumCertificate, made: bf.Certificate | bf.OptimumCertificate) -> str:
    """How far the bounds of two runs are apart; each plain model must lie inside the bounds of the other."""
    if isinstance(kept, bf.OptimumCertificate) or isinstance(made, bf.OptimumCertificate):
        return compared_optima(kept, made)
    if (kept.model is None) != (made.model is None):
        raise Refuted("the bounds of one of the two runs became void and those of the other did not")
    if kept.model is None or made.model is None:
        return "both became void"
    worst = 0.0
    for name, _ in made.model.named_parameters():
        mine: Any = made.model.get_parameter(name)
        theirs: Any = kept.model.get_parameter(name)
        for model, bounds in ((kept.nominal, mine), (made.nominal, theirs)):
            plain = model.get_parameter(name).to(bounds.device)
            if not bool(((bounds.lower <= plain) & (plain <= bounds.upper)).all()):
                raise Refuted(f"the plain {name} of one run is outside the bounds of the other")
        ends = torch.stack((mine.lower, mine.upper)), torch.stack((theirs.lower, theirs.upper)).to(mine.device)
        width = (ends[0][1] - ends[0][0]).clamp_min(torch.finfo(mine.dtype).tiny)
        worst = max(worst, float(((ends[0] - ends[1]).abs() / width).max()))
    if worst > APART:
        raise Refuted(f"the bounds of the same training are apart by {worst:.2g} of their width")
    return f"the bounds agree up to {worst:.1e} of their width, and each plain model is inside those of the other"


def compared_optima(kept: Any, made: Any) -> str:
    """How far the weights of two fits to the optimum are apart, which bounds go by."""
    if not (isinstance(kept, bf.OptimumCertificate) and isinstance(made, bf.OptimumCertificate)):
        raise Refuted("one of the two was fitted to the optimum, and the other was trained step by step")
    pairs = [(a.weights, b.weights) for a, b in zip(kept.optima, made.optima, strict=True)]
    worst = max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-300)) for a, b in pairs)
    if not worst <= APART:
        raise Refuted(f"the weights of the same fit are apart by {worst:.2g} of their size")
    return f"the weights agree up to {worst:.1e} of their size"


# --- trainings of other datasets ------------------------------------------------------------------------------------


def trainings(run: Path, recipe: Recipe, count: int, seed: int, progress: Progress) -> str:
    """Plain trainings on random members of the threat: parameters and answers inside the bounds."""
    kept = certificate_of(run, recipe)
    plain_training.check(recipe)
    x, _ = recipe.tensors(recipe.data.test)
    answers = kept.predict(x, threat=recipe.threats.test)
    farthest = 0.0
    for number, data in enumerate(poisoned(recipe, count, seed), start=1):
        progress(f"poisoned training {number} of {count}")
        model = plain_training.trained(recipe, data)
        farthest = max(farthest, inside(kept, model, number, seed))
        random = np.random.default_rng([seed, number, 1])
        moved = member(recipe.threats.test, x, torch.zeros(len(x), device=x.device), 0, random).inputs
        with torch.no_grad():
            outputs = model(moved)
        _check_answers(recipe, answers, outputs, number, seed)
    return (
        f"{count} poisoned trainings, {len(x)} answers of each: all inside; the farthest parameter is "
        f"{100 * farthest:.0f} % of the way from the middle to a bound"
    )


def poisoned(recipe: Recipe, count: int, seed: int) -> Any:
    """Datasets that the threat allows, one at a time."""
    x, y = observed(recipe)
    for number in range(1, count + 1):
        random = np.random.default_rng([seed, number])
        try:
            yield member(recipe.threats.training, x, y, recipe.data.classes, random)
        except NotDrawn as why:
            raise Skip(str(why)) from None


def inside(kept: bf.Certificate, model: torch.nn.Module, number: int, seed: int) -> float:
    """How far out the parameters of a model are: 0 in the middle, 1 at a bound, which none may pass."""
    farthest = 0.0
    assert kept.model is not None
    for name, plain in model.named_parameters():
        bounds: Any = kept.model.get_parameter(name)
        value = plain.detach().to(bounds.device)
        lower, upper = bounds.lower, bounds.upper
        if not bool(((lower <= value) & (value <= upper)).all()):
            count = int(((value < lower) | (value > upper)).sum())
            raise Refuted(f"poisoned training {number} (--seed {seed}): {count} numbers of {name} are out of bounds")
        half = (0.5 * (upper - lower)).clamp_min(torch.finfo(value.dtype).tiny)
        farthest = max(farthest, float(((value - 0.5 * (upper + lower)).abs() / half).max().clamp_max(1.0)))
    return farthest


def _check_answers(recipe: Recipe, answers: bf.Prediction, outputs: Tensor, number: int, seed: int) -> None:
    lower, upper = answers.lower.to(outputs.device), answers.upper.to(outputs.device)
    if not bool(((lower <= outputs) & (outputs <= upper)).all()):
        raise Refuted(f"poisoned training {number} (--seed {seed}): an answer to a test input is out of its bounds")
    if recipe.data.classes:
        label = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)
        changed = answers.certified.to(label.device) & (label != answers.label.to(label.device))
        if bool(changed.any()):
            raise Refuted(f"poisoned training {number} (--seed {seed}): a certified answer is another one")


def balls(run: Path, recipe: Recipe, count: int, seed: int, progress: Progress) -> str:
    """Trainings of members of the threat in ball arithmetic: every parameter in real numbers inside its bounds."""
    try:
        import flint  # noqa: F401
    except ModuleNotFoundError:
        raise Mistake("ball arithmetic needs python-flint: pip install python-flint") from None
    kept = certificate_of(run, recipe)
    ball_training.check(recipe)
    numbers = 0
    assert kept.model is not None
    for number, data in enumerate(poisoned(recipe, count, seed), start=1):
        progress(f"training {number} of {count} in ball arithmetic")
        for name, found in ball_training.trained(recipe, _on_cpu(data)).items():
            bounds: Any = kept.model.get_parameter(name)
            wrong, unknown = ball_training.outside(found, bounds.lower, bounds.upper)
            if wrong:
                raise Refuted(f"exact training {number} (--seed {seed}): {wrong} numbers of {name} are out of bounds")
            if unknown:
                raise Skip(f"the balls of {name} became too wide in training {number}: nothing follows from them")
            numbers += len(found)
    return f"{count} trainings in ball arithmetic: {numbers} parameters in real numbers, all inside"


def _on_cpu(data: Data) -> Data:
    return Data(*(part.cpu() for part in data))


__all__ = ["NotTrained", "Refuted", "Skip", "balls", "recipe_of", "rerun", "trainings"]
