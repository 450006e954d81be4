"""The page of all measurements, written from rows on disk: PAGE.md from PAGE/*.json."""

import json
from pathlib import Path
from typing import Any

from fullcert.bench.cases import load
from fullcert.bench.running import HEADS, Row, cells
from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake

OPENING = """# How fast it is

What bounds cost, beside plain PyTorch on the same machine. This page is written from the rows in the folder beside it:

```sh
fullcert bench --list                                 # the cases
fullcert bench --case interval-2-20-1-cpu --json -    # one of them, as JSON
fullcert bench --page docs/bench.md
```

*ratio* is the best time with bounds over the best time of an eager step of `torch.optim.SGD` on the same network and
batch, both taking turns in one run; it includes the tripwire, and roundings are charged. *ms* are those of a step, or
of a whole training with its test set. *peak* is the memory above the start. *training* is without the test set, beside
what was forecast before its first step: both in processor time, added up over all threads, where it ran on a processor
(other work does not change that), and in elapsed time on a GPU. `python -m fullcert.bench` needs torch and numpy only.
"""


def write(page: Path) -> None:
    """Write the page, if its folder has rows."""
    folder = page.with_suffix("")
    files = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    if not files:
        raise Mistake(f"{folder} has no rows: write some with fullcert bench --json {folder}/NAME.json")
    for name, rows in files.items():
        machines = {json.dumps({**row["machine"], "threads": None}, sort_keys=True) for row in rows}
        if len(machines) > 1:
            raise Mistake(f"{folder / name}.json has rows of several machines or versions: write a file for each")
    runs.check_writable(page)
    sections = [section(name, rows) for name, rows in files.items()]
    runs.write(page, "\n".join([OPENING, *sections]).encode())


def section(name: str, rows: list[Row]) -> str:
    """The rows of one file: where they were measured, a table, and how cost grows."""
    titles, on = {one.name: one.title for one in load().values()}, rows[0]["machine"]
    threads = " or ".join(map(str, sorted({row["machine"]["threads"] for row in rows})))
    where = f"{on['processor']}, {on['cores']} cores, {threads} threads, torch {on['torch']}"
    where += f", {on['gpu']}" if "gpu" in on else ""
    lines = [f"## {name}", "", f"Measured on {where}.", "", *_table([*HEADS, "what"], [])]
    lines += ["| " + " | ".join([*cells(row), titles.get(row["case"], "")]) + " |" for row in rows]
    for row in rows:
        lines += [*_growth(row["details"])] if row["case"] == "growth" else []
        lines += [*_forecasts(row["details"])] if row["case"].startswith("forecasts") else []
        refused = row.get("details", {}).get("refused")
        lines += ["", f"`{row['case']}` was refused: {refused}"] if refused else []
    return "\n".join([*lines, ""])


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows]]


def _forecasts(found: dict[str, Any]) -> list[str]:
    """Trainings beside what was said of them."""
    rows = [
        [name, *("" if value is None else f"{value:.0f}" for value in row.values())]
        for name, row in found["trainings"].items()
    ]
    opening = f"Trainings beside their forecasts, which are off by a factor of {found['factor']:.2f} at most:"
    return ["", opening, "", *_table(["training", "ms", "forecast ms"], rows)]


def _growth(found: dict[str, dict[str, object]]) -> list[str]:
    """Each thing that grows, the times at its sizes, and the fitted power."""
    rows = []
    for name, one in found.items():
        times = one["milliseconds"]
        assert isinstance(times, dict)
        rows.append(
            [name, ", ".join(f"{size}: {value:.3g} ms" for size, value in times.items()), f"{one['slope']:.2f}"]
        )
    return [
        "",
        "Cost of a step on zonotopes, of steps that of all together, as one thing grows; the power is fitted:",
        "",
        *_table(["what grows", "size: time", "power"], rows),
    ]
