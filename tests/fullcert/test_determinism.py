"""The same recipe gives the same bytes: in another process, at another time, from other folders, and after a reading.

A certificate can only be compared, or named by its digest, if nothing is in it but what was certified.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import people, write_csv
from moons import moons
from torch import nn

import boundflow as bf
from boundflow.threats import AtMost, Labels, Linf

ROOT = Path(__file__).parents[2]
NETWORK = """
from torch import nn


def make_model(features, outputs):
    return nn.Sequential(nn.Linear(features, outputs))
"""
TABLE = ("--data", "people.csv", "--target", "income", "--steps", "3")
RECIPES = {
    "zonotope": ("--dataset", "iris", "--epsilon", "1e-4", "--steps", "3", "--batch-size", "20", "--optimizer", "adam"),
    "table": (*TABLE, "--tolerance", "age=1", "--flip-labels", "1"),
    "network, intervals": (*TABLE, "--epsilon", "0.001", "--model", "net.py:make_model", "--domain", "interval"),
    "void": (*TABLE, "--epsilon", "10", "--hidden", "8", "--lr", "1e20", "--dtype", "float32"),
}


def certified(folder: Path, recipe: str) -> bytes:
    """The certificate of the command, run in a process of its own in this folder."""
    folder.mkdir(parents=True)
    write_csv(folder / "people.csv", people())
    (folder / "net.py").write_text(NETWORK)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC", "PYTHONHASHSEED": str(len(folder.parts))}
    command = [sys.executable, "-m", "fullcert", "train", *RECIPES[recipe], "--quiet", "--out", "run"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=300)
    return (folder / "run" / "certificate.safetensors").read_bytes()


@pytest.mark.parametrize("recipe", RECIPES)
def test_two_runs_give_the_same_bytes(tmp_path: Path, recipe: str) -> None:
    began = time.time()
    first = certified(tmp_path / "here", recipe)
    second = certified(tmp_path / "somewhere" / "else", recipe)
    assert first == second and (b"void_at_step" in first) == (recipe == "void")
    named = (str(tmp_path), str(ROOT), "people.csv", "net.py", "seconds", time.strftime("%Y-%m-%d", time.gmtime(began)))
    assert not [words for words in named if words.encode() in first]


class Averaging(nn.Module):
    """A network that keeps state: a buffer that training moves."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 1, dtype=torch.float64)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen = 0.5 * self.seen + 0.5 * x.mean(0)
        return self.inner(x - 0.01 * self.seen)


THREATS = {"linf": Linf(1e-3), "budget": AtMost(2, Linf(0.1)), "labels": AtMost(1, Labels()), "void": Linf(1e3)}


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@pytest.mark.parametrize("threat", THREATS)
@pytest.mark.parametrize("state", [False, True])
def test_what_was_read_is_written_as_it_was(tmp_path: Path, domain: str, threat: str, state: bool) -> None:
    """Twice, so that nothing grows from file to file."""

    def model() -> nn.Module:
        torch.manual_seed(0)
        return Averaging() if state else nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    x, y = moons(20, 0)
    options = {"lr": 1e308} if threat == "void" else {"lr": 0.3, "momentum": 0.9}
    made = bf.certify(
        model(), (x, y), threat=THREATS[threat], loss="bce", epochs=4, domain=domain, order=3, optimizer_options=options
    )
    assert (made.void_at_step is not None) == (threat == "void")
    made.save(tmp_path / "first")
    for before, after in (("first", "second"), ("second", "third")):
        bf.load(tmp_path / before, model()).save(tmp_path / after)
        assert (tmp_path / before).read_bytes() == (tmp_path / after).read_bytes()
