"""Small runs of every kind give the numbers that they gave before, to the last bit: certificates, files and answers.

Floats are the same where the same libraries compute them with the same instructions (`MACHINE`), so `golden_bits.json`
has one digest a case for each such machine. What holds anywhere is compared everywhere: labels, what is certain, counts
and the mean of every float to three digits. After a change that is meant to compute something else:

    python tests/boundflow/test_golden_bits.py          writes what this machine computes, and names what has changed
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import (
    L1,
    L2,
    AtMost,
    Categories,
    Labels,
    Linf,
    Missing,
    MissingCategory,
    Quantised,
    Removal,
    Replacement,
    Threat,
    Tolerance,
    Trigger,
)

FILE = Path(__file__).with_name("golden_bits.json")
LIBRARIES = f"torch {torch.__version__}, numpy {np.__version__}"


def processor() -> str:
    """Who made it and of which family it is: libraries of linear algebra choose their code by that."""
    said = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = dict(re.findall(r"^(vendor_id|cpu family)\s*: (.*)$", said, re.MULTILINE))
    kind = " ".join(named.values()) or f"{platform.system()} {platform.machine()}"
    return f"{kind} {torch.backends.cpu.get_cpu_capability()}"


MACHINE = f"{LIBRARIES}, {processor()}, one thread"
PROGRAMS = f"boundflow {bf.__version__}, {LIBRARIES}, python {sys.version_info.major}.{sys.version_info.minor}"
OF_VERSIONS = ("boundflow", "torch", "identity", "kind", "exactly", "seconds")  # of records and answers
HOT = [2, 3, 4]


# --- problems ---------------------------------------------------------------------------------------------------------


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).uniform(-1, 1, shape)).float()


X, TEST = drawn(12, 3), drawn(8, 3, seed=1)
CLASS = (X.sum(1) > 0).long()
THIRD = torch.arange(12) % 3
IMAGES, PAGES = drawn(6, 1, 6, 6), drawn(4, 1, 6, 6, seed=1)
ONE_HOT = torch.cat((drawn(12, 2), torch.eye(3)[torch.arange(12) % 3]), 1)
HOLES = torch.where(torch.arange(36).reshape(12, 3) % 11 == 4, torch.nan, X)
UNKNOWN = ONE_HOT.clone()
UNKNOWN[[1, 5], 2:] = torch.nan


def filled(network: nn.Module) -> nn.Module:
    """A network with weights that no initialisation of a library has drawn."""
    for number, parameter in enumerate(network.parameters()):
        parameter.data = drawn(*parameter.shape, seed=10 + number)
    return network


def mlp(outputs: int, features: int = 3, hidden: nn.Module | None = None) -> nn.Module:
    return filled(nn.Sequential(nn.Linear(features, 4), hidden or nn.Tanh(), nn.Linear(4, outputs)))


class Gated(nn.Module):
    """Operators that no layer has: quotients, norms, choices, and a product of two sets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        z = torch.where(x[:, :1] > 0, z, z.clamp(-0.5, 0.8)) * torch.sigmoid(z)
        z = z / (1 + z.square().sum(1, keepdim=True)).sqrt() + z.exp().log1p().mean(1, keepdim=True)
        return self.second(torch.cat((z[:, :2], torch.maximum(z[:, 2:], z[:, :2])), 1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = x[:, :2].unsqueeze(2) * x[:, None, :2]
        weights = torch.softmax(self.key(parts) @ parts.transpose(1, 2), -1)
        return (weights @ self.value(parts)).sum(1)


# --- cases ------------------------------------------------------------------------------------------------------------

Case = Callable[[], object]
FEW = AtMost(2, Labels())
NEAR = Linf(0.01)


def certificate(
    threat: Threat = NEAR,
    network: nn.Module | None = None,
    data: tuple[Tensor, Tensor] = (X, CLASS),
    **recipe: Any,
) -> bf.Certificate:
    said = {"loss": "bce", "steps": 2, "epochs": 2, "order": 4, "optimizer_options": {"lr": 0.5}, "progress": False}
    dtype = recipe.pop("dtype", torch.float32)
    model = (network or mlp(1, data[0].shape[1])).to(dtype)
    x, y = data[0].to(dtype), data[1].to(dtype) if data[1].is_floating_point() else data[1]
    return bf.certify(model, (x, y), threat=threat, **{**said, **recipe})


def run(*given: Any, test: Tensor = TEST, asked: dict[str, Any] | None = None, **recipe: Any) -> Case:
    """A training, and its answers for some inputs."""

    def case() -> object:
        found = certificate(*given, **recipe)
        return found, found.predict(test, **(asked or {}))

    return case


def intervals(*given: Any, **recipe: Any) -> Case:
    return run(*given, domain="interval", **recipe)


def convolutional() -> nn.Module:
    layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)
    return filled(nn.Sequential(*layers))


def normalised(layer: nn.Module) -> nn.Module:
    return filled(nn.Sequential(nn.Linear(3, 4), layer, nn.ReLU(), nn.Linear(4, 1)))


def halved(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def own_loop(domain: str) -> object:
    model, threat = mlp(1).double(), Linf(0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    symbols = bf.Symbols(threat, order=4) if domain == "zonotope" else None
    bf.lift(model, symbols)
    if symbols is not None:
        symbols.attach(optimizer)
    for index in (torch.arange(12), torch.arange(6)):
        x, y = X[index].double(), CLASS[index].double()
        if symbols is None:
            x = bf.interval(x - 0.01, x + 0.01)
        else:
            x, y = symbols.lift(x, y, index)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
    return [(value.lower, value.upper) for value in model.parameters()]


def votes() -> object:
    ensemble = bf.Ensemble.certify(mlp(1), (X, CLASS), members=3, threat=FEW, loss="bce", steps=2, order=4)
    return ensemble.predict(TEST), ensemble.curve(TEST, (TEST.sum(1) > 0).long())


def saved_and_read() -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "certificate.safetensors")
        certificate(FEW, dtype=torch.float64).save(path)
        read = bf.load(path)
    return read, read.predict(TEST, 0.01), read.withstands(TEST)


def of_earlier_versions() -> object:
    read = bf.load(Path(__file__).with_name("files") / "version-0.1.safetensors")
    return [(name, value.lower, value.upper) for name, value in read.model.named_parameters()]


def continued() -> object:
    """A run that is taken up from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        said = {"checkpoint": Path(folder, "checkpoint.safetensors"), "checkpoint_every": 0.0}
        with suppress(KeyboardInterrupt):
            certificate(FEW, callbacks=[interrupted], **said)
        return certificate(FEW, resume=True, **said)


@bf.only_looks
def interrupted(step: bf.Step) -> None:
    if step.number == 1:
        raise KeyboardInterrupt


def attacked() -> object:
    data, recipe = (X, CLASS), bf.Recipe(loss="bce", steps=2, epochs=2, optimizer_options={"lr": 0.5}, order=4)
    held = bf.certify(mlp(1), data, recipe, threat=FEW, progress=False)
    test = TEST, (TEST.sum(1) > 0).long()
    return bf.attack(mlp(1), data, recipe, threat=FEW, test=test, certificate=held, budget=40, progress=False)


def many() -> object:
    threats = [Linf(0.01), Linf(0.02)]
    found = bf.certify_many([mlp(1), mlp(1)], (X, CLASS), threats=threats, loss="bce", steps=2, epochs=2)
    return found, [one.predict(TEST) for one in found]


def optimum(loss: str, y: Tensor, outputs: int = 1, threat: Threat = FEW, **fields: Any) -> Case:
    def case() -> object:
        head = nn.Linear(3, outputs)
        found = bf.certify_optimum(head, (X, y), threat=threat, loss=loss, **{"l2": 0.1, **fields})
        answers = [found.predict(TEST), found.coefficients()]
        return answers if found.regression else [*answers, found.withstands(TEST), found.audit(TEST, budget=2)]

    return case


def branched() -> object:
    found = bf.certify_optimum(nn.Linear(3, 1), (X, CLASS), threat=FEW, loss="logistic", l2=0.1)
    return found.predict(TEST, seconds=60.0), found.verified([0, 1, 2]).predict(TEST)


def verified_cells() -> object:
    found = certificate(Missing((-1.0, 1.0)), data=(HOLES, CLASS))
    rows = HOLES.isnan().any(1).nonzero()[:, 0]
    return found.verified(rows, torch.where(HOLES.isnan(), 0.25, HOLES)[rows]).predict(TEST)


def asked(ask: Callable[[bf.Certificate], object], *given: Any, **recipe: Any) -> Case:
    return lambda: ask(certificate(*given, **recipe))


CASES: dict[str, Case] = {
    # losses, in both domains
    "bce": run(),
    "bce, intervals": intervals(),
    "ce": run(network=mlp(3), data=(X, THIRD), loss="ce"),
    "ce, intervals": intervals(network=mlp(3), data=(X, THIRD), loss="ce"),
    "ce of many classes": run(FEW, mlp(5), (X, THIRD), loss="ce", dtype=torch.float64),
    "mse": run(data=(X, X[:, 1]), loss="mse"),
    "mse, intervals": intervals(data=(X, X[:, 1]), loss="mse"),
    "hinge": run(loss="hinge"),
    "hinge, intervals": intervals(loss="hinge"),
    # threats
    "box within a range": run(Linf(0.05, clip=(-1.0, 1.0))),
    "ball": run(L2(0.05)),
    "cross": run(L1(0.05)),
    "labels": run(FEW),
    "labels, intervals": intervals(FEW),
    "labels of some": run(AtMost(3, Labels().on(samples=[0, 2, 5]))),
    "every label": run(Labels(), steps=1),
    "targets": run(AtMost(2, Labels(0.5)), data=(X, X[:, 1]), loss="mse"),
    "removal": run(AtMost(1, Removal())),
    "replacement": run(AtMost(1, Replacement()), clip_gradients=0.3),
    "replacement, intervals": intervals(AtMost(1, Replacement()), clip_gradients=0.3),
    "moves of a few": run(AtMost(3, Linf(0.1))),
    "ball of a few": run(AtMost(2, L2(0.1))),
    "cross of a few": run(AtMost(2, L1(0.1))),
    "features of some": run(AtMost(2, Linf(0.1).on(samples=[1, 3, 4], features=[0]))),
    "moves and labels of a few": run(AtMost(2, Linf(0.05) & Labels())),
    "moves, and labels of a few": run(Linf(0.01) & AtMost(1, Labels())),
    "removal or a label": run(AtMost(1, Removal() & Labels())),
    "two budgets": run(AtMost(2, Labels()) & AtMost(1, Removal())),
    "tolerances": run(Tolerance({0: 0.02, 2: "1%"})),
    "quantised": run(Quantised(0.05, 0.02)),
    "missing": run(Missing((-1.0, 1.0)), data=(HOLES, CLASS)),
    "missing categories": run(MissingCategory(HOT), data=(UNKNOWN, CLASS), test=ONE_HOT[:4]),
    "categories": run(AtMost(1, Categories([HOT])), data=(ONE_HOT, CLASS), test=ONE_HOT[:4]),
    # optimizers and schedules
    "momentum": run(FEW, optimizer_options={"lr": 0.5, "momentum": 0.9, "nesterov": True}),
    "weight decay": run(FEW, optimizer_options={"lr": 0.5, "momentum": 0.5, "weight_decay": 0.1}),
    "Adam": run(FEW, optimizer=torch.optim.Adam, optimizer_options={"lr": 0.05}),
    "Adam, intervals": intervals(optimizer=torch.optim.Adam, optimizer_options={"lr": 0.05}),
    "AdamW": run(FEW, optimizer=torch.optim.AdamW, optimizer_options={"lr": 0.05}),
    "RMSprop": run(NEAR, optimizer=torch.optim.RMSprop, optimizer_options={"lr": 0.01}),
    "schedule": run(FEW, schedule=halved),
    # other choices of a recipe
    "batches": run(FEW, batch_size=7, steps=None, epochs=2, seed=3),
    "batches, intervals": intervals(batch_size=7, steps=None, epochs=2, seed=3),
    "float64": run(FEW, dtype=torch.float64),
    "float64, intervals": intervals(dtype=torch.float64),
    "longest rows": run(FEW, reduction="longest", order=2),
    "order 1": run(order=1),
    "weights of samples": run(FEW, sample_weights=torch.linspace(0.5, 1.5, 12)),
    "clipped gradients": run(FEW, clip_gradients=0.5),
    "little memory": run(AtMost(2, L2(0.1)), memory=2**17),
    "void": run(Linf(10.0), optimizer_options={"lr": 1e20}),
    # layers
    "ReLU": run(FEW, mlp(1, hidden=nn.ReLU())),
    "GELU": run(NEAR, mlp(1, hidden=nn.GELU())),
    "convolution": run(NEAR, convolutional(), (IMAGES, CLASS[:6]), loss="ce", test=PAGES),
    "layer norm": run(NEAR, normalised(nn.LayerNorm(4))),
    "batch norm": run(NEAR, normalised(nn.BatchNorm1d(4, track_running_stats=True).eval())),
    "dropout": run(FEW, normalised(nn.Dropout(0.4))),
    "operators without a layer": run(NEAR, filled(Gated()), loss="ce"),
    "attention": run(NEAR, filled(Attention()), loss="ce"),
    # questions
    "answers about boxes": run(FEW, asked={"epsilon": 0.05, "clip": (-1.0, 1.0)}),
    "answers in parts": run(NEAR, asked={"epsilon": 0.2, "cuts": 3}),
    "answers about triggers": run(FEW, asked={"threat": Trigger([0], -1.0, 1.0)}),
    "answers about balls": run(FEW, asked={"threat": L2(0.05)}),
    "withstood samples": asked(lambda c: c.withstands(TEST, 0.01), AtMost(5, Labels())),
    "withstood moves": asked(lambda c: c.withstands(TEST, over="epsilon"), AtMost(2, Linf(0.2))),
    "withstood in several norms": asked(lambda c: c.withstands(TEST), AtMost(3, L2(0.1) & Labels())),
    "curve": asked(lambda c: c.curve(TEST, (TEST.sum(1) > 0).long()), AtMost(4, Labels())),
    "audit": asked(lambda c: c.audit(TEST, 0.02, budget=2, every=True), AtMost(4, Labels())),
    "audit of moves": asked(lambda c: c.audit(TEST, budget=2), Linf(0.1)),
    "audit of numbers": asked(lambda c: c.audit(TEST), AtMost(2, Labels(0.5)), data=(X, X[:, 1]), loss="mse"),
    "verified rows": asked(lambda c: c.verified([0, 3]).predict(TEST), AtMost(4, Labels())),
    "verified cells": verified_cells,
    "accuracy": asked(lambda c: c.accuracy(TEST, (TEST.sum(1) > 0).long(), 0.01), FEW),
    "votes": votes,
    "file": saved_and_read,
    "file of version 0.1": of_earlier_versions,
    "checkpoint": continued,
    "own loop": lambda: own_loop("zonotope"),
    "own loop, intervals": lambda: own_loop("interval"),
    "many at once": many,
    "attack": attacked,
    # at the optimum
    "optimum, squared": optimum("squared", THIRD, 3),
    "optimum, numbers": optimum("squared", X[:, 1], threat=AtMost(2, Labels(0.5))),
    "optimum, logistic": optimum("logistic", CLASS),
    "optimum, squared hinge": optimum("squared_hinge", CLASS, penalise_bias=True),
    "optimum, Huber": optimum("huber", X[:, 1], threat=AtMost(2, Labels(0.5)), penalise_bias=True),
    "optimum, several ridges": optimum("squared", CLASS, 2, l2=[0.1, 0.3]),
    "optimum, branched": branched,
}


# --- what a case came to ----------------------------------------------------------------------------------------------


def parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors, numbers and texts of a result by name, save what versions and clocks put there."""
    if isinstance(value, bf.Certificate):
        yield from of_file(value, name)
    elif dataclasses.is_dataclass(value):
        yield from parts({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, name)
    elif isinstance(value, dict):
        for key in sorted(value):
            if key not in OF_VERSIONS:
                yield from parts(value[key], f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from parts(part, f"{name}.{number}")
    else:
        yield name, torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def of_file(value: bf.Certificate, name: str) -> Iterator[tuple[str, Any]]:
    """A certificate as its file holds it: both models, the symbols, and the record."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "certificate.safetensors")
        value.save(path)
        with safe_open(path, "pt") as file:
            for key in sorted(file.keys()):
                yield f"{name}.{key}", file.get_tensor(key)
    yield from parts(value.record, f"{name}.record")


def digest(value: object) -> str:
    """Of every bit of a result."""
    found = hashlib.sha256()
    for name, part in parts(value):
        if isinstance(part, Tensor):
            found.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
            found.update(part.detach().contiguous().numpy().tobytes())
        else:
            found.update(f"{name} {part!r}".encode())
    return found.hexdigest()[:16]


def outline(value: object) -> list[Any]:
    """What any machine gives: whole numbers and texts, and the mean size of each float to three digits."""
    found: list[Any] = []
    for _, part in parts(value):
        floats = torch.as_tensor(part) if isinstance(part, Tensor | float) else torch.zeros(0, dtype=torch.long)
        if not isinstance(part, Tensor | float):
            found.append(str(part))
        elif not floats.is_floating_point():
            found.append(" ".join(str(int(number)) for number in floats.flatten()))
        else:
            known = floats.detach().double()[floats.isfinite()]
            found.append(float(f"{known.abs().mean():.4g}") if len(known) else f"{floats.numel()} unknown")
    return found


def told(outlined: list[Any]) -> tuple[str, list[float]]:
    """An outline as a digest of its texts, and its numbers: what the file keeps of it."""
    text = "\n".join(part for part in outlined if isinstance(part, str))
    return hashlib.sha256(text.encode()).hexdigest()[:16], [part for part in outlined if isinstance(part, float)]


def known() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"answers": {}, "bits": {}, "programs": {}}


def programs() -> dict[str, str]:
    """Digests of what runs rest on: the code of the library is named in them, and where it lies must not matter."""
    recipe = {"schedule": None, "optimizer": torch.optim.Adam, "optimizer_options": {"lr": 0.1}}
    cases = {
        "labels": certificate(FEW, **recipe),
        "categories": certificate(Categories([HOT]), data=(ONE_HOT, CLASS), loss="hinge", steps=1),
        "numbers": certificate(Tolerance({0: 0.1}) & AtMost(1, Labels(0.1)), data=(X, X[:, 1]), loss="mse", steps=1),
        "missing": certificate(Missing((-1.0, 1.0)), filled(Gated()), (HOLES, CLASS), loss="ce", steps=1),
    }
    return {name: digest([sorted(found.record["identity"].items()), _kinds(found)]) for name, found in cases.items()}


def _kinds(found: bf.Certificate) -> list[Any]:
    """The digests of the changes of a threat."""
    changes = [change for clause in found.record["clauses"] for change in clause["changes"]]
    return [str(change.get(part)) for change in changes for part in ("kind", "exactly")]


# --- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_before(name: str) -> None:
    result, before = CASES[name](), known()
    text, numbers = told(outline(result))
    assert text == before["answers"][name][0]
    assert numbers == pytest.approx(before["answers"][name][1], rel=2e-3, abs=1e-6)
    if MACHINE in before["bits"]:
        assert digest(result) == before["bits"][MACHINE][name], ADVICE


def test_bits_of_this_machine_are_known() -> None:
    if MACHINE not in known()["bits"]:
        pytest.skip(f"only what holds anywhere was compared: no bits are known for {MACHINE}")
    assert set(known()["bits"][MACHINE]) == set(CASES) == set(known()["answers"])


def test_what_a_run_rests_on_is_named_as_before() -> None:
    if PROGRAMS not in known()["programs"]:
        pytest.skip(f"digests of programs are not known for {PROGRAMS}")
    assert programs() == known()["programs"][PROGRAMS], ADVICE


def test_one_bit_is_noticed() -> None:
    result = [{"lower": torch.tensor([0.1, 1.0]), "seconds": 1.0}]
    changed = [{"lower": torch.nextafter(torch.tensor([0.1, 1.0]), torch.tensor([0.1, 2.0])), "seconds": 2.0}]
    assert digest(result) != digest(changed) and outline(result) == outline(changed)
    assert digest(result) == digest([{"lower": torch.tensor([0.1, 1.0]), "seconds": 2.0}])


ADVICE = (
    "something computes other bits: if that is meant, write them anew by `python tests/boundflow/test_golden_bits.py`"
)


def write() -> None:
    """The digests of this machine, beside those of others; answers that hold anywhere are written anew."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", bf.WideBounds)
    before = known()
    results = {name: case() for name, case in CASES.items()}
    bits = {name: digest(result) for name, result in results.items()}
    answers = {name: told(outline(result)) for name, result in results.items()}
    for name in CASES:
        then = before["bits"].get(MACHINE, {}).get(name)
        if then != bits[name]:
            print(f"{name}: {'new' if then is None else 'other bits'}")
    found = {
        "answers": answers,
        "bits": {**before["bits"], MACHINE: bits},
        "programs": {**before["programs"], PROGRAMS: programs()},
    }
    sections = (f' "{key}": {{\n{_lines(found[key])}\n }}' for key in ("answers", "programs"))
    machines = (f'  "{key}": {{\n{_lines(bits)}\n  }}' for key, bits in found["bits"].items())
    FILE.write_text("{\n" + ",\n".join([*sections, ' "bits": {\n' + ",\n".join(machines) + "\n }"]) + "\n}\n")


def _lines(entries: dict[str, Any]) -> str:
    """One entry a line, so that a change shows which case it is about."""
    return ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())


if __name__ == "__main__":
    write()
