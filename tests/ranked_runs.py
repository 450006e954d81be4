"""For tests of several processes: small certified trainings by name, and starting them on so many ranks.

As a program, `python tests/ranked_runs.py CASE FOLDER [name=value ...]` is one rank: it trains what the case says with
``distributed=True``, and leaves what it found in FOLDER.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

import boundflow as bf
from boundflow.fast.processes import ranks
from boundflow.sets import factors
from boundflow.symbols import support
from boundflow.threats import L2, AtMost, Labels, Linf, Removal, Replacement

ROOT = Path(__file__).parents[1]


def data(samples: int = 24, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).long()


class Centered(nn.Module):
    """Takes the mean of the batch away: samples meet."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


def network(outputs: int = 1, centered: bool = False) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first, last = nn.Linear(2, 4), nn.Linear(4, outputs)
        return nn.Sequential(first, *([Centered()] if centered else []), nn.Tanh(), last).double()


SGD: dict[str, Any] = {"loss": "bce", "optimizer_options": {"lr": 0.3}, "epochs": 3}
MOMENTUM = {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.01}
CASES: dict[str, dict[str, Any]] = {
    "box": {"threat": Linf(1e-2), **SGD},
    "budget": {"threat": AtMost(5, Linf(0.05)), **SGD},
    "batches": {"threat": AtMost(3, Linf(0.05)), **SGD, "batch_size": 7, "epochs": 2},
    "single samples": {"threat": AtMost(2, Labels()), **SGD, "batch_size": 1, "epochs": 1, "steps": 8},
    "two clauses": {"threat": AtMost(2, L2(0.1)) & AtMost(3, Labels()), **SGD, "optimizer_options": MOMENTUM},
    "removal": {"threat": AtMost(2, Removal()), **SGD, "order": 3},
    "classes": {"threat": AtMost(3, Labels()), **SGD, "loss": "ce", "outputs": 2},
    "pieces": {"threat": AtMost(4, Linf(0.05)), **SGD, "memory": 12_000.0},
    "adam": {
        "threat": AtMost(2, Linf(1e-3)),
        **SGD,
        "optimizer": torch.optim.Adam,
        "optimizer_options": {"lr": 0.01, "eps": 0.1},
        "epochs": 3,
    },
    "clipped": {"threat": AtMost(2, Linf(0.05)), **SGD, "clip_gradients": 0.5, "batch_size": 5, "steps": 2},
    "replaced": {"threat": AtMost(1, Replacement()), **SGD, "clip_gradients": 0.2, "batch_size": 5, "steps": 2},
    "samples meet": {"threat": AtMost(2, Linf(0.01)), **SGD, "steps": 3, "centered": True},
    "intervals": {"threat": Linf(1e-3), **SGD, "domain": "interval"},
    "intervals, budget": {"threat": AtMost(5, Linf(1e-2)), **SGD, "domain": "interval", "batch_size": 9},
    "intervals, labels": {"threat": AtMost(2, Labels()), **SGD, "domain": "interval", "loss": "ce", "outputs": 3},
}


def trained(case: str, **more: Any) -> bf.Certificate:
    said = {**CASES[case], **more}
    return bf.certify(network(said.pop("outputs", 1), said.pop("centered", False)), data(), **said)


def found(certificate: bf.Certificate) -> dict[str, torch.Tensor]:
    """What a certificate says: bounds and centers of the parameters, the plain model, and answers."""
    said = {}
    for name, value in certificate.nominal.named_parameters():
        said[f"plain {name}"] = value.detach()
    for name, value in certificate.model.named_parameters():
        said[f"lower {name}"], said[f"upper {name}"] = value.lower.detach(), value.upper.detach()
        said[f"center {name}"] = value.center.detach()
    answers = certificate.predict(data(10, seed=5)[0], 1e-3)
    said["lower answers"], said["upper answers"] = answers.lower, answers.upper
    return said


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    said = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    here = Path(bf.__file__).parents[1]  # or a copy of the package, with a planted bug
    path = os.pathsep.join(map(str, (here, ROOT, ROOT / "tests")))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **{name: str(x) for name, x in said.items()}}


def started(command: list[str], count: int) -> list[subprocess.Popen[str]]:
    """So many ranks of one command."""
    port = free_port()
    return [
        subprocess.Popen(
            command,
            env=environment(rank, count, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def ended(processes: list[subprocess.Popen[str]], seconds: float = 500) -> list[tuple[int, str, str]]:
    """Exit codes and what was printed."""
    said = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=seconds)
            said.append((process.returncode, out, err))
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    return said


def on_ranks(cases: list[str], folder: Path, count: int = 2, *words: str) -> list[dict[str, dict[str, torch.Tensor]]]:
    """What each rank found, by case."""
    command = [sys.executable, str(Path(__file__)), ";".join(cases), str(folder), *words]
    said = ended(started(command, count))
    assert all(code == 0 for code, _, _ in said), "\n".join(err for _, _, err in said)
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


def main(names: str, folder: str, *words: str) -> None:
    more: dict[str, Any] = dict(word.split("=") for word in words)
    rank = int(os.environ["RANK"])
    if "checkpoint" in more:
        more |= {"checkpoint_every": 0.0, "resume": True}
    stop = int(more.pop("stop", -1))  # this rank is killed in the middle of the run
    if "patience" in more:  # seconds that others are waited for; the last rank is then silent for longer
        ranks.PATIENCE = timedelta(seconds=int(more.pop("patience")))
        silent = int(os.environ["WORLD_SIZE"]) - 1
    else:
        silent = -1
    asks = more.pop("ask", None)  # the first rank asks for bounds while it trains
    if more.pop("stream", None):
        support.STREAM_FROM = factors.STREAM_FROM = 1
    if more.pop("other", None) and rank:  # this rank has other data
        globals()["data"] = lambda *given, before=data: (before(*given)[0] + 1, before(*given)[1])

    def watch(step: bf.Step) -> None:
        if rank == stop and step.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == silent:
            time.sleep(60)
        if asks and rank == 0:
            step.predict(data()[0])

    said = {}
    for name in names.split(";"):
        certificate = trained(name, distributed=True, callbacks=[watch], **more)
        said[name] = {each: value.cpu() for each, value in found(certificate).items()}
    torch.save(said, Path(folder) / f"{rank}.pt")


def leave(code: int) -> NoReturn:
    """As the command does (`fullcert/system/processes.py`): a thread of the transport that still runs may abort it."""
    ranks.end()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception:
        traceback.print_exc()
        leave(1)
    leave(0)
