"""Checkpoints: a run that was interrupted and resumed gives the certificate of one that never was, bit for bit."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from moons import moons, network

import boundflow as bf
from boundflow.files import sealed_files
from boundflow.files.checkpoint import KEY

DATA = moons(12, 0)
LINF = bf.threats.Linf(1e-3)


class Counting(torch.optim.SGD):
    """An optimizer that keeps a number of its own among its options."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        self.param_groups[0]["steps_made"] = self.param_groups[0].get("steps_made", 0) + 1


CASES: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer_options": {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.01}},
    "interval": {"optimizer_options": {"lr": 0.2, "momentum": 0.9}, "domain": "interval", "batch_size": 4},
    "adam": {"optimizer": torch.optim.Adam, "optimizer_options": {"lr": 0.02, "amsgrad": True}, "batch_size": 4},
    "adam on intervals": {"optimizer": torch.optim.Adam, "domain": "interval", "threat": bf.threats.Linf(1e-5)},
    "rmsprop": {"optimizer": torch.optim.RMSprop, "optimizer_options": {"lr": 0.01, "momentum": 0.5}},
    "schedule": {
        "optimizer_options": {"lr": torch.tensor(0.3, dtype=torch.float64), "momentum": 0.9},
        "schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
    },
    "cycle": {
        "optimizer_options": {"lr": 0.1, "momentum": 0.9},
        "schedule": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=12),
        "domain": "interval",
    },
    "at most": {"threat": bf.threats.AtMost(2, LINF & bf.threats.Labels()), "batch_size": 4},
    "at most on intervals": {"threat": bf.threats.AtMost(1, LINF), "domain": "interval", "batch_size": 4},
    "in pieces": {"memory": 70000.0, "threat": bf.threats.AtMost(2, bf.threats.Removal())},
    "clipped": {"clip_gradients": 0.5, "threat": bf.threats.AtMost(1, bf.threats.Replacement()), "batch_size": 4},
    "counting": {"optimizer": Counting, "optimizer_options": {"lr": 0.3}},
    "untracked": {"memory": 10.0, "batch_size": 4},
    "float32": {"dtype": torch.float32},
}


class Dropped(nn.Sequential):
    """A frozen layer, a mask that follows from seed and step, and a buffer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(2, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))
        self[0].requires_grad_(False)
        self.register_buffer("scale", torch.tensor([1.0, 2.0]))


def stop_at(number: int):
    def stop(step: bf.Step) -> None:
        if step.number == number:
            raise KeyboardInterrupt

    return stop


def run(model: nn.Module | None = None, data: Any = DATA, **changes: Any) -> bf.Certificate:
    recipe = {"threat": LINF, "loss": "bce", "epochs": 1, "order": 4, **changes}
    recipe["epochs"] = 2 if recipe.get("batch_size") else 5
    return bf.certify(network() if model is None else model, data, **recipe)


def saved(certificate: bf.Certificate, path: Path) -> bytes:
    certificate.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_gives_the_same_file(name: str, tmp_path: Path) -> None:
    """Interrupted twice, the second time in a resumed run; the last checkpoints agree as well."""
    case, path = CASES[name], tmp_path / "checkpoint"
    whole = saved(run(**case, checkpoint=tmp_path / "other"), tmp_path / "whole")
    for number in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            run(**case, checkpoint=path, resume=True, callbacks=[stop_at(number)])
        assert saying(path)["state"]["made"]["steps"] == number - 1, "a step counts once every callback has seen it"
    seen: list[int] = []
    resumed = run(**case, checkpoint=path, resume=True, callbacks=[lambda step: seen.append(step.number)])
    assert saved(resumed, tmp_path / "resumed") == whole
    assert seen[0] == 4 and seen[-1] == resumed.record["steps"]
    assert state(path) == state(tmp_path / "other")
    finished = run(**case, checkpoint=path, resume=True, callbacks=[stop_at(seen[-1])])
    assert saved(finished, tmp_path / "finished") == whole and not list(tmp_path.glob(".*"))


def saying(path: Path) -> dict[str, Any]:
    return json.loads(sealed_files.read(path, KEY, "checkpoint")[1])


def state(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """All that a checkpoint says but the time it took and the numbers of own rows, which last for a batch only."""
    tensors, text = sealed_files.read(path, KEY, "checkpoint")
    state = json.loads(text)["state"]
    del state["made"]["seconds"], state["own"]
    return state, {name: value.numpy().tobytes() for name, value in tensors.items()}


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_frozen_layers_masks_and_buffers(domain: str, tmp_path: Path) -> None:
    path, recipe = tmp_path / "checkpoint", {"domain": domain, "optimizer_options": {"lr": 0.3, "momentum": 0.9}}
    whole = saved(run(Dropped().double(), **recipe), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(Dropped().double(), **recipe, checkpoint=path, callbacks=[stop_at(3)])
    resumed = run(Dropped().double(), **recipe, checkpoint=path, resume=True)
    assert saved(resumed, tmp_path / "resumed") == whole


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C in the middle of a step of SGD, after parameters and momentum were changed."""
    module, steps = sys.modules[torch.optim.SGD.__module__], itertools.count(1)
    made = module.sgd

    def sgd(*given: Any, **options: Any) -> None:
        made(*given, **options)
        if next(steps) == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "sgd", sgd)


@pytest.mark.parametrize("at", [6, 7])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_the_middle_of_a_step_is_never_written(
    at: int, domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nominal model makes the optimizer steps 1, 4, 6, a rehearsal 2, and the sets 3, 5, 7: two are finished."""
    recipe = {"optimizer_options": {"lr": 0.3, "momentum": 0.9}, "domain": domain}
    whole = saved(run(**recipe), tmp_path / "whole")
    interrupt(monkeypatch, at)
    with pytest.raises(KeyboardInterrupt):
        run(**recipe, checkpoint=tmp_path / "checkpoint")
    assert saying(tmp_path / "checkpoint")["state"]["made"]["steps"] == 2
    resumed = run(**recipe, checkpoint=tmp_path / "checkpoint", resume=True)
    assert saved(resumed, tmp_path / "resumed") == whole


def test_flags_survive(tmp_path: Path) -> None:
    """Squares stay nonnegative, frozen parameters stay points, and only the diagonal of a reduced set is written."""
    path = tmp_path / "checkpoint"
    run(**CASES["adam"], checkpoint=path)
    tensors, text = sealed_files.read(path, KEY, "checkpoint")
    state = dict(json.loads(text)["state"]["certified"]["optimizer"][0])
    assert state["exp_avg_sq"]["set"]["nonnegative"] and not state["exp_avg"]["set"]["nonnegative"]
    assert tensors["generators.certified/optimizer/0/exp_avg_sq"].dim() == 1
    run(Dropped().double(), checkpoint=path)
    frozen = json.loads(sealed_files.read(path, KEY, "checkpoint")[1])["state"]["certified"]["model"]["0.weight"]
    assert frozen["set"]["exact"] and "diagonal" not in frozen["set"]


def test_void_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted before the bounds become void, and long after: then only the nominal model goes on."""
    path, model = tmp_path / "checkpoint", nn.Sequential(network(4), nn.ReLU(), nn.Linear(4, 1).double())
    recipe = {"threat": bf.threats.Linf(1.0), "loss": "mse", "optimizer_options": {"lr": 0.05}, "domain": "interval"}
    whole = bf.certify(model, DATA, epochs=60, **recipe)
    assert whole.void_at_step is not None and 2 < whole.void_at_step < 50
    with pytest.raises(KeyboardInterrupt):
        bf.certify(model, DATA, epochs=60, **recipe, checkpoint=path, callbacks=[stop_at(2)])
    for _ in range(2):  # the second one has nothing left to do
        resumed = bf.certify(model, DATA, epochs=60, **recipe, checkpoint=path, resume=True)
        assert saved(resumed, tmp_path / "resumed") == saved(whole, tmp_path / "whole")
    interrupt(monkeypatch, 70)
    with pytest.raises(KeyboardInterrupt):
        bf.certify(model, DATA, epochs=60, **recipe, checkpoint=path)
    assert saying(path)["state"]["made"]["void_at_step"] == whole.void_at_step
    resumed = bf.certify(model, DATA, epochs=60, **recipe, checkpoint=path, resume=True)
    assert torch.equal(resumed.nominal[0][0].weight, whole.nominal[0][0].weight) and resumed.model is None


def other_data() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = DATA[0].clone(), DATA[1]
    x[3, 1] += 1e-9
    return x, y


OTHERS: dict[str, dict[str, Any]] = {
    "data": {"data": other_data()},
    "threat": {"threat": bf.threats.Linf(2e-3)},
    "dtype": {"dtype": torch.float32},
    "domain": {"domain": "interval"},
    "order": {"order": 5},
    "seed": {"seed": 1},
    "loss": {"loss": "hinge"},
    "batch_size": {"batch_size": 9},
    "steps": {"steps": 4},
    "optimizer": {"optimizer": torch.optim.Adam},
    "optimizer_options": {"optimizer_options": {"lr": 0.11}},
    "schedule": {"schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)},
    "initial_weights": {"model": network(seed=1)},
    "layers": {"model": nn.Sequential(network()[0], nn.Sigmoid(), network()[2])},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run(optimizer_options={"lr": 0.1}, checkpoint=path, callbacks=[stop_at(2)])
    return path


@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_refused(name: str, checkpoint: Path) -> None:
    before = checkpoint.read_bytes()
    with pytest.raises(bf.BoundFlowError, match=f"of another run: .*{name} (was|is another)"):
        run(**{"optimizer_options": {"lr": 0.1}, **OTHERS[name]}, checkpoint=checkpoint, resume=True)
    assert checkpoint.read_bytes() == before


def test_other_versions_are_refused(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"optimizer_options": {"lr": 0.1}, "resume": True}
    with bf.rounding.nearest(), pytest.raises(bf.BoundFlowError, match="rounding was 'outward' and is 'nearest'"):
        run(**same, checkpoint=checkpoint)
    monkeypatch.setattr("boundflow.answers.certificate.__version__", "0.0.9")
    with pytest.raises(bf.BoundFlowError, match=re.escape(f"boundflow was '{bf.__version__}' and is '0.0.9'")):
        run(**same, checkpoint=checkpoint)
    sealed_files.write(tmp_path / "new", {}, KEY, json.dumps({"format": 99}))
    with pytest.raises(bf.BoundFlowError, match="another version"):
        run(**same, checkpoint=tmp_path / "new")


def test_other_code_for_the_same_parameters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that was edited meanwhile: half of the steps would be those of another function."""

    class Edited(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    model = Edited(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    with pytest.raises(KeyboardInterrupt):
        run(model=model, checkpoint=tmp_path / "checkpoint", callbacks=[stop_at(2)])
    monkeypatch.setattr(Edited, "forward", lambda self, x: self[2](torch.relu(self[0](x))))
    with pytest.raises(bf.BoundFlowError, match="code of the layers is another"):
        run(model=model, checkpoint=tmp_path / "checkpoint", resume=True)


def test_the_schedule_counts_before_it_acts(tmp_path: Path) -> None:
    """Two schedules that have done the same so far are still two recipes."""
    path, steps = tmp_path / "checkpoint", torch.optim.lr_scheduler.StepLR
    with pytest.raises(KeyboardInterrupt):
        run(schedule=lambda optimizer: steps(optimizer, 3), checkpoint=path, callbacks=[stop_at(2)])
    with pytest.raises(bf.BoundFlowError, match="schedule was"):
        run(schedule=lambda optimizer: steps(optimizer, 4), checkpoint=path, resume=True)


def test_damaged_files_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Cut anywhere, or with any byte changed: one named exception, and never a run from a wrong state."""
    content, path, pick = checkpoint.read_bytes(), tmp_path / "damaged", random.Random(0)

    def refused(damaged: bytes) -> None:
        path.write_bytes(damaged)
        with pytest.raises(bf.BoundFlowError):
            run(optimizer_options={"lr": 0.1}, checkpoint=path, resume=True)

    for length in (0, 7, 100, len(content) // 2, len(content) - 1):
        refused(content[:length])
    for position in [*range(0, 8), *(pick.randrange(len(content)) for _ in range(60))]:
        changed = bytearray(content)
        changed[position] ^= 1 << pick.randrange(8)
        refused(bytes(changed))
    run(optimizer_options={"lr": 0.1}).save(path)
    with pytest.raises(bf.BoundFlowError, match="not a checkpoint"):
        run(optimizer_options={"lr": 0.1}, checkpoint=path, resume=True)


def test_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so many seconds and at the end; a crash while writing leaves the last file."""
    path, written = tmp_path / "checkpoint", []
    write = sealed_files.write
    monkeypatch.setattr(sealed_files, "write", lambda *arguments: (written.append(time.monotonic()), write(*arguments)))
    for every, count in ((0.0, 5), (60.0, 1)):
        written.clear()
        run(checkpoint=path, checkpoint_every=every)
        assert len(written) == count
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError, match="full"):
        run(checkpoint=path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("again", [False, True])
def test_another_folder_of_the_same_name_is_left_alone(tmp_path: Path, again: bool) -> None:
    """A folder that was moved away, or moved and made again, perhaps by another run."""
    folder = tmp_path / "run"
    folder.mkdir()

    def move(step: bf.Step) -> None:
        if step.number == 3:
            folder.rename(tmp_path / "moved")
            if again:
                folder.mkdir()

    with pytest.raises(bf.BoundFlowError, match="removed or moved"):
        run(checkpoint=folder / "checkpoint", checkpoint_every=0.0, callbacks=[move])
    assert saying(tmp_path / "moved" / "checkpoint")["state"]["made"]["steps"] == 2
    assert not again or list(folder.iterdir()) == []


def test_a_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError) as told:
        run(checkpoint=tmp_path / "checkpoint")
    assert told.value.filename == str(tmp_path / "checkpoint") and not list(tmp_path.iterdir())


def test_wrong_arguments(tmp_path: Path) -> None:
    for message, options in {
        "needs the path": {"resume": True},
        "no folder": {"checkpoint": tmp_path / "missing" / "checkpoint"},
        "negative": {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": -1},
    }.items():
        with pytest.raises(ValueError, match=message):
            run(**options)

    class Odd(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            self.state[self.param_groups[0]["params"][0]]["history"] = [1, 2]

    with pytest.raises(bf.BoundFlowError, match="history is a list"):
        run(optimizer=Odd, checkpoint=tmp_path / "checkpoint")


def test_a_learning_rate_that_is_a_tensor_belongs_to_one_run() -> None:
    """The schedule of one training must not move the learning rate of the other, nor the caller's."""
    schedule, rates = CASES["schedule"]["schedule"], torch.tensor(0.3, dtype=torch.float64)
    tensor = run(optimizer_options={"lr": rates}, schedule=schedule)
    number = run(optimizer_options={"lr": 0.3}, schedule=schedule)
    assert torch.equal(tensor.nominal[0].weight, number.nominal[0].weight) and rates == 0.3
    assert torch.equal(tensor.model[0].weight.center, number.model[0].weight.center)
    assert tensor.record["optimizer_options"]["lr"] == 0.3
