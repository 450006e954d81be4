"""docs/programs.md: a table of all programs, what is odd about each, and what happens to it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import torch

from .entries import FAMILIES, PROGRAMS
from .table import Program
from .verdict import Verdict

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "programs.md"
COMMAND = "python tests/boundflow/programs/write_table.py"
LONGEST = 120  # characters of a sentence

HEAD = f"""# Odd programs

{{count}} odd but legal programs, each run on sets and, on {{datasets}} poisoned datasets, in plain PyTorch. The two
sides share the program and nothing else, and nothing is tolerated: every parameter, buffer and output of every plain
run lies within its bounds (*contained*), or the program is refused by an error that says why.

The tests in `tests/boundflow/programs/` run all of them. This page is what they found, written by

```sh
{COMMAND}
```

"""


def page(verdicts: dict[str, dict[str, Verdict]]) -> str:
    count, datasets = len(PROGRAMS), max(program.recipe.datasets for program in PROGRAMS.values())
    return HEAD.format(count=count, datasets=datasets) + "\n".join(_section(family, verdicts) for family in FAMILIES)


def listed(text: str) -> list[str]:
    """The names of the programs on a page."""
    return [row.split(" | ")[0].removeprefix("| ") for row in text.splitlines() if row.startswith("| ")]


def happens(text: str) -> dict[str, str]:
    """What a page says that happens to each program."""
    rows = [row.removeprefix("| ").removesuffix(" |").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    return {row[0]: " | ".join(row[2:]) for row in rows}


def of_this_torch() -> bool:
    """Whether the page was written with this version of torch: others may take a program apart in another way."""
    return f"torch=={torch.__version__.partition('+')[0]}\n" in (ROOT / "constraints.txt").read_text()


def _section(family: ModuleType, verdicts: dict[str, dict[str, Verdict]]) -> str:
    name = family.__name__.rpartition(".")[2].replace("_", " ")
    rows = [_row(program, verdicts[program.name]) for program in PROGRAMS.values() if program.family == name]
    told = (family.__doc__ or "").split("\n\n")[0]
    return "\n".join(
        [f"## {name.capitalize()}\n\n{told}\n", "|program|what is odd|what happens|", "|---|---|---|", *rows, ""]
    )


def _row(program: Program, verdicts: dict[str, Verdict]) -> str:
    said = {domain: _said(verdict) for domain, verdict in verdicts.items()}
    if len(set(said.values())) == 1:
        happens = next(iter(said.values()))
    else:
        happens = "; ".join(f"{domain}: {text}" for domain, text in said.items())
    return f"| {program.name} | {program.odd} | {happens} |"


def _said(verdict: Verdict) -> str:
    if verdict.outcome == "contained":
        return "contained"
    if verdict.outcome == "raised":
        return f"`{verdict.error}`: {gist(verdict.sentence)}"
    return f"**{verdict.outcome}**: {gist(verdict.sentence)}"


def gist(sentence: str) -> str:
    """The first sentence of a message, without the paths and numbers that differ from run to run."""
    sentence = re.sub(r"(/[\w.-]+)+/", "", sentence)
    sentence = re.sub(r"\(Bounded\(.*?\)\)", "", sentence).replace(" .", ".")
    first = re.split(r"(?<=[a-z)])[.:;] ", sentence)[0].rstrip(".")
    if len(first) > LONGEST:
        first = first[:LONGEST].rsplit(" ", 1)[0] + " ..."
    return first.replace("|", "/")
