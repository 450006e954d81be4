"""Run the cases that were asked for, and write what they found. Both commands share it."""

import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import boundflow as bf
from fullcert.bench.cases import Case, wanted
from fullcert.experiment import runs

Row = dict[str, Any]
HEADS = ("case", "ratio", "ms", "plain ms", "peak MB", "certified %", "training ms", "forecast ms")


def machine(device: str) -> dict[str, Any]:
    """What the times were measured on."""
    found = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "boundflow": bf.__version__,
    }
    return found | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {})


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    cases: list[str] = field(default_factory=list)  # none: those that take seconds
    json: str | None = None

    def checked(self) -> list[Case]:
        found = wanted(self.cases)
        if self.json and self.json != "-":
            runs.check_writable(Path(self.json))
        return found

    def perform(self, tell: Callable[[str], None]) -> list[Row]:
        """Measure one case after the other; what is finished is written at once."""
        rows: list[Row] = []
        threads = torch.get_num_threads()
        for one in self.checked():
            tell(f"{one.name}: {one.title}")
            measured = one.run(torch.device(one.device))
            rows.append({**measured.as_data(one.name), "machine": machine(one.device)})
            torch.set_num_threads(threads)  # a case may have chosen others
            if self.json and self.json != "-":
                runs.write(Path(self.json), as_json(rows).encode())
        if self.json == "-":
            print(as_json(rows), end="", flush=True)
        return rows


def as_json(rows: list[Row]) -> str:
    return json.dumps(rows, indent=2) + "\n"


def cells(row: Row) -> list[str]:
    """A row as people read it."""
    peak = row["peak_bytes"]
    megabytes = None if peak is None else peak / 1e6
    told = (row.get(name) for name in ("certified", "training_milliseconds", "forecast_milliseconds"))
    shown = (row["ratio"], row["milliseconds"], row["plain_milliseconds"], megabytes, *told)
    return [
        row["case"],
        *("" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in shown),
    ]
