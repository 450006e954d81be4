"""What is not the same is never taken for it: each case is refused in one sentence that names what differs."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.analysis.ensemble import Whole
from boundflow.same_program import identity
from boundflow.threats import AtMost, Labels, Linf, Missing

# --- programs, with one thing changed ---------------------------------------------------------------------------------

WRITTEN = """
import torch
from torch import nn

scale = {scale}

def helper(x):
    return x * {helper}

def make(factor):
    return lambda x: x * factor

class Base(nn.Module):
    def last(self, x):
        return x + {base}

class Net(Base):
    factor = {held}

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.drop = nn.Dropout({drop})
        self.keep = {attribute}
        self.shapes = {nested}
        self.function = make({closure})

    @property
    def bias(self):
        return {property}

    def forward(self, x, weight={default}):
        x = self.inner(x)
        if self.training:  # none of it shows in evaluation mode
            x = helper(x) * scale * self.factor * self.keep * weight * {constant} + self.bias
            x = self.last(self.function(x)) * self.shapes["x"][0]
        return x

class Descent(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            group["weight_decay"] = {decay}
        return super().step(closure)

def schedule(rate):
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: {rate} ** (step > rate))
"""
PLAIN: dict[str, Any] = {
    **{"scale": 1.0, "helper": 1.0, "base": 0.0, "held": 1.0, "attribute": 1.0, "nested": {"x": [1.0]}},
    **{"closure": 1.0, "property": 0.0, "default": 1.0, "constant": 1.0, "decay": 0.0, "rate": 0.5, "drop": 0.0},
}


def written(**changed: Any) -> ModuleType:
    """The module of a user, with other numbers in it."""
    module = ModuleType("written")
    text = re.sub(r"\{(\w+)\}", lambda found: repr({**PLAIN, **changed}[found[1]]), WRITTEN)
    exec(compile(text, "/home/somebody/written.py", "exec"), vars(module))
    return module


def model(of: ModuleType | None = None, change: Callable[[Any], object] = lambda made: None) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = (of or written()).Net()
        made.register_buffer("mean", torch.zeros(2))
        made.register_parameter("frozen", nn.Parameter(torch.ones(2), requires_grad=False))
    change(made)
    return made.double()


X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])


def shifted(x: Tensor, at: int, by: float) -> Tensor:
    made = x.clone()
    made.view(-1)[at] += by
    return made


def others(code: ModuleType | None = None, **fields: Any) -> dict[str, Any]:
    code = code or written()
    given = {
        **{"model": model(code), "data": (X, Y), "threat": AtMost(2, Labels(classes=2))},
        **{"optimizer": code.Descent, "optimizer_options": {"lr": 0.1}, "schedule": code.schedule(3)},
        **{"loss": "ce", "epochs": 3, "domain": "interval", "compile": False},
    }
    return {**given, **fields}


def tied(made: nn.Module, one: bool) -> None:
    made.first = nn.Linear(2, 2)
    made.second = made.first if one else copy.deepcopy(made.first)


def code(**changed: Any) -> Callable[[], dict[str, Any]]:
    """The program, and the same again, with another number somewhere in its code."""
    return lambda: others(written(**changed))


def changing(change: Callable[[Any], object]) -> Callable[[], dict[str, Any]]:
    """The program with a model that was changed after it was made."""
    return lambda: others(model=model(change=change))


def fields(**given: Any) -> Callable[[], dict[str, Any]]:
    return lambda: others(**given)


# name: the program that is not the same, and the words that say in what
APART: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    # data
    "one bit of an input": (fields(data=(shifted(X, 5, 1e-15), Y)), "data"),
    "one label": (fields(data=(X, shifted(Y, 3, 1))), "data"),
    "order of the samples": (fields(data=(X.flip(0), Y.flip(0))), "data"),
    "order of the columns": (fields(data=(X.flip(1), Y)), "data"),
    "a sample less": (fields(data=(X[:7], Y[:7])), "data"),
    "dtype of the inputs": (fields(data=(X.float(), Y)), "data"),
    "weights of the samples": (fields(sample_weights=torch.arange(8.0)), "sample weights"),
    # what is not trained, and where training begins
    "an initial weight": (changing(lambda made: made.inner.weight.data[0, 0].add_(1e-7)), "initial weights"),
    "a buffer": (changing(lambda made: made.mean.add_(1)), "buffers"),
    "a buffer that is not saved": (changing(lambda made: made.register_buffer("mean", made.mean, False)), "buffers"),
    "a frozen parameter": (changing(lambda made: made.frozen.data.add_(1)), "frozen parameters"),
    "a parameter that is trained": (changing(lambda made: made.frozen.requires_grad_()), "trained parameters"),
    "the probability of dropout": (code(drop=0.5), "attributes of drop"),
    "an attribute that acts in training": (code(attribute=2.0), "attributes of the model"),
    "a number deep in an attribute": (code(nested={"x": [2.0]}), "attributes of the model"),
    "a closure in an attribute": (code(closure=2.0), "attributes of the model"),
    "a hook": (changing(lambda made: made.inner.register_forward_hook(lambda m, x, y: y * 2)), "hooks of the layers"),
    "a layer more": (changing(lambda made: made.add_module("more", nn.Identity())), "layers"),
    "one layer instead of two": (changing(lambda made: tied(made, True)), "layers"),
    # code of the user
    "a constant in forward": (code(constant=2.0), "code of the layers"),
    "a helper that forward calls": (code(helper=2.0), "code of the layers"),
    "a global that forward reads": (code(scale=2.0), "code of the layers"),
    "a default of forward": (code(default=2.0), "code of the layers"),
    "a property": (code(property=1.0), "code of the layers"),
    "an attribute of the class": (code(held=2.0), "code of the layers"),
    "a method of a base class": (code(base=1.0), "code of the layers"),
    "an optimizer of the same name": (code(decay=0.1), "optimizer"),
    "a number in a schedule": (code(rate=0.25), "schedule"),
    "a closure of a schedule": (fields(schedule=written().schedule(2)), "schedule"),
    # choices
    "a learning rate": (fields(optimizer_options={"lr": 0.1 + 1e-17 * 10}), "optimizer options"),
    "an optimizer of PyTorch": (fields(optimizer=torch.optim.SGD), "optimizer"),
    "the seed": (fields(seed=1), "seed"),
    "epochs": (fields(epochs=4), "epochs"),
    "the length of a batch": (fields(batch_size=4), "batch size"),
    "the loss": (fields(loss="mse", data=(X, torch.eye(2, dtype=torch.float64)[Y])), "loss"),
    "clipped gradients": (fields(clip_gradients=1.0), "clip gradients"),
}
# and what changes the bounds alone
BOUNDS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "the budget": (fields(threat=AtMost(3, Labels(classes=2))), "threat"),
    "the domain": (fields(domain="zonotope"), "domain"),
    "the order": (fields(order=3), "order"),
}


def certified(given: dict[str, Any], **more: Any) -> bf.Certificate:
    given = {**given, **more}
    return bf.certify(given.pop("model"), given.pop("data"), **given, progress=False)


def require_one_sentence(error: BaseException, words: str) -> None:
    said = str(error)
    assert re.search(rf"\b{words}\b", said), said
    assert "\n" not in said and not re.search(r"\. [A-Z]", said), said


@pytest.fixture(scope="module")
def first() -> bf.Certificate:
    return certified(others())


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that was interrupted."""
    path = tmp_path_factory.mktemp("run") / "checkpoint"

    def stop(step: bf.Step) -> None:
        if step.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certified(others(), checkpoint=path, callbacks=[stop])
    return path


@pytest.mark.parametrize("name", {**APART, **BOUNDS})
def test_a_run_does_not_go_on_as_another(name: str, begun: Path) -> None:
    make, words = {**APART, **BOUNDS}[name]
    before = begun.read_bytes()
    with pytest.raises(bf.DifferentRuns, match="checkpoint of another run") as refused:
        certified(make(), checkpoint=begun, resume=True)
    require_one_sentence(refused.value, words.replace(" ", "[ _]"))
    assert begun.read_bytes() == before


def test_a_run_goes_on_as_itself(begun: Path, tmp_path: Path, first: bf.Certificate) -> None:
    """Made anew from the same text, on other lines, as after a comment was added."""
    path = tmp_path / "checkpoint"
    path.write_bytes(begun.read_bytes())
    again = certified(others(), checkpoint=path, resume=True)
    assert identity.differences(first.record["identity"], again.record["identity"]) == []
    moved = ModuleType("moved")
    text = re.sub(r"\{(\w+)\}", lambda found: repr(PLAIN[found[1]]), "# a comment\n\n" + WRITTEN)
    exec(compile(text, "/somewhere/else.py", "exec"), vars(moved))
    assert identity.differences(first.record["identity"], certified(others(moved)).record["identity"]) == []


@pytest.mark.parametrize("name", APART)
def test_certificates_of_other_trainings_are_not_joined(name: str, first: bf.Certificate) -> None:
    make, words = APART[name]
    with pytest.raises(bf.DifferentRuns, match="different trainings") as refused:
        bf.withstands([first, certified(make())], X, over="k")
    require_one_sentence(refused.value, words)


@pytest.mark.parametrize("name", BOUNDS)
def test_certificates_of_one_training_are_joined(name: str, first: bf.Certificate, tmp_path: Path) -> None:
    other = certified(BOUNDS[name][0]())
    other.save(tmp_path / "other")
    read = bf.load(tmp_path / "other", model=model())
    found = bf.withstands([first, other], X, over="k").value
    assert torch.equal(bf.withstands([first, read], X, over="k").value, found)


@pytest.mark.parametrize("name", ["an attribute that acts in training", "an optimizer of the same name", "a buffer"])
def test_attacks_are_on_the_program_of_the_certificate(name: str, first: bf.Certificate) -> None:
    given = {**APART[name][0](), "test": (X, Y), "certificate": first, "progress": False}
    with pytest.raises((bf.DifferentRuns, ValueError)) as refused:
        bf.attack(given.pop("model"), given.pop("data"), steps=1, **given)
    require_one_sentence(refused.value, APART[name][1].replace("buffers", "(buffers|initial weights)"))


LOADED = [name for name, (_, words) in APART.items() if re.match("attributes|code|hooks|layers", words)]


@pytest.mark.parametrize("name", LOADED)
def test_a_file_is_not_read_into_another_program(name: str, first: bf.Certificate, tmp_path: Path) -> None:
    first.save(tmp_path / "file")
    with pytest.raises(bf.BoundFlowError, match="does not fit this model") as refused:
        bf.load(tmp_path / "file", model=APART[name][0]()["model"])
    require_one_sentence(refused.value, APART[name][1])
    assert bf.load(tmp_path / "file", model=model().eval()).record == first.record
    assert bf.load(tmp_path / "file", model=first.nominal).record == first.record


# --- what nothing says, and what cannot be read -----------------------------------------------------------------------


class Shared:
    """Something that cannot be read, and is its own copy."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: object) -> Shared:
        return self


def test_what_cannot_be_compared_is_neither_resumed_nor_joined(tmp_path: Path) -> None:
    held = Shared()

    def with_lock() -> dict[str, Any]:
        return others(model=model(change=lambda made: setattr(made, "held", held)))

    with pytest.raises(bf.UnsupportedProgram, match=r"attributes of the model cannot be compared: .*held\.lock"):
        certified(with_lock(), checkpoint=tmp_path / "checkpoint")
    one, other = certified(with_lock()), certified(with_lock())
    with pytest.raises(bf.DifferentRuns, match="cannot be compared"):
        bf.withstands([one, other], X, over="k")


def test_certificates_of_earlier_versions_are_read_and_not_joined(first: bf.Certificate, tmp_path: Path) -> None:
    older = bf.Certificate(first.model, first.nominal, {**first.record})
    del older.record["identity"]
    older.save(tmp_path / "older")
    read = bf.load(tmp_path / "older", model=model())
    assert torch.equal(read.predict(X).certified, first.predict(X).certified)
    with pytest.raises(bf.DifferentRuns, match="earlier versions"):
        bf.withstands([first, read], X, over="k")


@pytest.mark.parametrize("library", ["torch", "numpy", "python", "boundflow"])
def test_other_versions_are_other_runs(library: str, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**identity.versions(), library: "0.0.9"}
    monkeypatch.setattr(identity, "versions", lambda: versions)
    with pytest.raises(bf.DifferentRuns, match=f"version of {library} is another"):
        certified(others(), checkpoint=begun, resume=True)


def test_numbers_that_a_program_makes_in_another_precision(begun: Path) -> None:
    given = others()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # torch.tensor(0.1) is another number
    try:
        with pytest.raises(bf.DifferentRuns, match="default dtype is another"):
            certified(given, checkpoint=begun, resume=True)
    finally:
        torch.set_default_dtype(before)


# --- threats ----------------------------------------------------------------------------------------------------------


class Amounts(Linf):
    """A threat of a user, whose text leaves out the middle of its tensor."""

    def __repr__(self) -> str:
        return f"Amounts({self.epsilon})"

    def without_radius(self) -> str:
        return repr(self)


def test_the_middle_of_a_threat_counts(tmp_path: Path) -> None:
    wide, radii = torch.randn(6, 1500, dtype=torch.float64), torch.full((1500,), 1e-3, dtype=torch.float64)
    longer = shifted(radii, 700, 1.0)
    assert repr(Amounts(radii)) == repr(Amounts(longer))
    given = {"model": nn.Linear(1500, 2).double(), "data": (wide, Y[:6]), "loss": "ce", "domain": "interval"}
    path = tmp_path / "checkpoint"
    certified(given, threat=Amounts(radii), checkpoint=path)
    with pytest.raises(bf.DifferentRuns, match="clauses was|threat is another"):
        certified(given, threat=Amounts(longer), checkpoint=path, resume=True)
    made = [certified(given, threat=AtMost(2, Amounts(amount)), domain="zonotope") for amount in (radii, longer)]
    with pytest.raises(bf.DifferentRuns, match="different kinds of threats"):
        bf.withstands(made, wide, over="k")


# --- what was filled in -----------------------------------------------------------------------------------------------


def test_other_fills_are_other_models() -> None:
    holes = X.clone()
    holes[1, 0] = holes[4, 1] = torch.nan
    given = others(data=(holes, Y), threat=Missing((-1.0, 1.0)) & AtMost(2, Labels(classes=2)), domain="zonotope")
    first = certified(given)

    def filled(*cells: tuple[int, int, float]) -> bf.Certificate:
        values = torch.full((len(cells), 2), torch.nan, dtype=torch.float64)
        for row, (_, column, value) in enumerate(cells):
            values[row, column] = value
        return first.verified([sample for sample, *_ in cells], values)

    one, other = (1, 0, 0.25), (4, 1, 0.5)
    both = filled(one, other)
    assert both.record["filled"] == [[1, 0, 0.25], [4, 1, 0.5]] and both.record["filled_cells"] == 2
    bf.withstands([both, filled(other, one)], X, over="k")
    for different in (filled((1, 0, 0.5), other), filled((1, 0, 0.5), (4, 1, 0.25)), filled(one)):
        with pytest.raises(bf.DifferentRuns, match="filled"):
            bf.withstands([both, different], X, over="k")


# --- votes ------------------------------------------------------------------------------------------------------------

THREAT = AtMost(1, Labels(classes=2))


def member(part: Any, data: tuple[Tensor, Tensor] = (X, Y)) -> bf.Certificate:
    index = torch.as_tensor(part)
    return certified(others(data=(data[0][index], data[1][index]), threat=THREAT))


PARTS: dict[str, tuple[list[Any], str]] = {
    "a sample of two members": ([[0, 1, 2], [2, 3, 4]], "both trained on sample 2"),
    "the same part twice": ([[0, 1, 2], [0, 1, 2]], "both trained on sample 0"),
    "a part that is not that of the member": ([[0, 1, 2], [3, 4, 6]], "other data than this part"),
    "a part in another order": ([[0, 1, 2], [4, 3, 5]], "other data than this part"),
    "a sample twice in a part": ([[0, 1, 1], [3, 4, 5]], "each once"),
    "a sample that is not there": ([[0, 1, 8], [3, 4, 5]], "from 0 to 7"),
    "a mask of another length": ([[True, True, True], [3, 4, 5]], "mask over all"),
}
TRAINED = [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("name", PARTS)
def test_members_of_a_vote_share_no_samples(name: str) -> None:
    parts, words = PARTS[name]
    trained = parts if "both" in words else TRAINED
    with pytest.raises((bf.DifferentRuns, ValueError), match=words) as refused:
        bf.Ensemble.of([[member(part)] for part in trained], (X, Y), parts)
    require_one_sentence(refused.value, words)


def test_members_that_do_not_say_their_part_are_refused(tmp_path: Path) -> None:
    made = bf.Ensemble.of([[member(part)] for part in TRAINED], (X, Y), TRAINED)
    made.save(tmp_path)
    assert bf.Ensemble.load(tmp_path, model()).samples == 6
    plain = [[member(part)] for part in TRAINED]
    with pytest.raises(bf.DifferentRuns, match="does not say on which samples"):
        bf.Ensemble(plain)
    plain[1][0].save(tmp_path / "member-0001-0.safetensors")
    with pytest.raises(bf.BoundFlowError, match="does not say on which samples"):
        bf.Ensemble.load(tmp_path, model())


def test_members_of_other_data_are_refused() -> None:
    other = (shifted(X, 15, 1.0), Y)  # of a sample that neither of them was trained on
    parts = [Whole((X, Y)).member(member(TRAINED[0]), TRAINED[0]), Whole(other).member(member(TRAINED[1]), TRAINED[1])]
    with pytest.raises(bf.DifferentRuns, match="parts of the same data"):
        bf.Ensemble([[part] for part in parts])


def test_equal_rows_in_different_places_are_different_samples() -> None:
    twice = torch.cat((X[:3], X[:3])), torch.cat((Y[:3], Y[:3]))
    made = bf.Ensemble.of([[member(part, twice)] for part in TRAINED], twice, TRAINED)
    assert len(made.predict(X)) == len(X)
    masks = [torch.arange(6) < 3, torch.arange(6) >= 3]
    bf.Ensemble.of([[member(part, twice)] for part in TRAINED], twice, masks)
