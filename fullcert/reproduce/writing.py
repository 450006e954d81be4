"""Rows as JSON, CSV, LaTeX, Markdown and plain text. Numbers are in percent unless the experiment says otherwise."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from fullcert.reproduce.experiments import EXPERIMENTS
from fullcert.system.mistakes import Mistake
from fullcert.system.unpacking import JSON, content, parsed_json

Row = dict[str, Any]
HEADS = ("setting", "domain", "recipe", "paper", "mean", "std", "seeds", "nominal", "seconds")


def as_json(rows: list[Row]) -> str:
    """A list of rows, all they hold."""
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"


def read(path: Path) -> list[Row]:
    """Rows that were written as JSON before."""
    try:
        found = parsed_json(content(path, JSON))
    except OSError as error:
        raise Mistake(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(row, dict) and row.keys() >= {"id", *HEADS} for row in found):
        raise Mistake(f"{path} does not hold the rows that --json writes")
    return found


def told(setting: dict[str, Any]) -> str:
    """A setting in words."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in setting.items()
    )


def cells(row: Row) -> list[str]:
    """A row as text, in the order of the heads."""
    form = ".1f" if EXPERIMENTS[row["id"]].value.endswith("(%)") else ".3g"
    rounded = {
        name: None if row[name] is None else f"{row[name]:{form}}" for name in ("paper", "mean", "std", "nominal")
    }
    rounded["seconds"] = f"{row['seconds']:.1f}"
    texts: list[Any] = [told(row["setting"]), *(rounded.get(name, row[name]) for name in HEADS[1:])]
    return ["-" if text is None else str(text) for text in texts]


def as_csv(rows: list[Row]) -> str:
    """One line a row; every name in a setting is a column."""
    names = list(dict.fromkeys(name for row in rows for name in row["setting"]))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["id", *names, *HEADS[1:]])
    for row in rows:
        values = [row["setting"].get(name) for name in names] + [row[head] for head in HEADS[1:]]
        table.writerow([row["id"], *("" if value is None else value for value in values)])
    return text.getvalue()


def as_latex(rows: list[Row]) -> str:
    """One tabular an experiment."""
    parts = []
    for id, group in by_experiment(rows).items():
        lines = [
            "\\begin{tabular}{lllrrr}",
            "\\toprule",
            "setting & domain & recipe & paper & ours & seeds \\\\",
            "\\midrule",
        ]
        for row in group:
            setting, domain, recipe, paper, mean, std, seeds, *_ = (cell.replace("_", "\\_") for cell in cells(row))
            ours = f"${mean} \\pm {std}$" if row["seeds"] > 1 else f"${mean}$"
            lines.append(f"{setting} & {domain} & {recipe} & {paper} & {ours} & {seeds} \\\\")
        lines += ["\\bottomrule", "\\end{tabular}"]
        parts.append(f"% {id}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def as_markdown(rows: list[Row]) -> str:
    """One table."""
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * 3 + "---:|" * (len(HEADS) - 3)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_text(rows: list[Row]) -> str:
    """Columns for a terminal."""
    table = [list(HEADS), *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADS))]
    aligned = [
        "  ".join(
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in table
    ]
    return "\n".join(line.rstrip() for line in aligned) + "\n"


def by_experiment(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each experiment, in the order in which they come."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row)
    return found


QUICK = "Quick: two seeds and few epochs. These rows show that it works here; they are not comparable with the source."


def shown(rows: list[Row], quick: bool) -> str:
    """Every experiment for a terminal: what it is, in what it differs, and its rows, of which no line is cut."""
    return "\n".join(f"{heading(id, quick)}\n\n{as_text(group)}" for id, group in by_experiment(rows).items())


def heading(id: str, quick: bool) -> str:
    """What an experiment is, in a line or two, and whether its rows can be compared."""
    one = EXPERIMENTS[id]
    told = f"{one.title} ({one.source}); {one.value}\nDiffers from the source: {one.differs}"
    return f"{told}\n{QUICK}" if quick else told
