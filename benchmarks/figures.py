"""Write the figures of README and docs from rows that commands wrote, and say which are not what their rows say.

A figure in a text stands between two comments, of which the first names a file of rows below docs, a field with its
format, and what tells the row from others:

    <!-- = reproduce/epsilon mean:.1f epsilon=0.0001 recipe=best-relu -->88.6<!-- / -->

A field inside others is written with dots, ``certified_accuracy*100:.1f`` is multiplied first, and ``mean(field)`` is
the mean over all rows that fit, where else there must be one. What others have published, and rows do not hold, stands
between ``<!-- = published -->`` and the same end.

    python benchmarks/figures.py            writes them
    python benchmarks/figures.py --check    writes nothing; exit code 1 if one is not what its row says
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIGURE = re.compile(r"(<!-- = (?P<where>.*?) -->)(?P<text>.*?)(<!-- / -->)", re.DOTALL)
FIELD = re.compile(r"(?P<mean>mean\()?(?P<path>[\w. -]+?)\)?(?:\*(?P<factor>[\d.e-]+))?:(?P<format>\S*)")
PUBLISHED = "published"


class NoSuchRow(ValueError):
    """A figure names rows that are not there, or several where one was meant."""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@lru_cache
def rows(file: str) -> list[dict[str, Any]]:
    """The rows of a file, each with what its settings say."""
    found = json.loads((DOCS / f"{file}.json").read_text())
    return [{**row, **row.get("setting", {})} for row in found]


def value(where: str) -> str:
    """What stands in a text for the field that a figure names."""
    file, field, *keys = shlex.split(where)
    asked = FIELD.fullmatch(field)
    if asked is None:
        raise NoSuchRow(f"{where}: a field is written name:format, name*factor:format or mean(name):format")
    wanted = [key.partition("=")[::2] for key in keys]
    fitting = [row for row in rows(file) if all(told(row.get(name)) == told(part) for name, part in wanted)]
    if not fitting or (len(fitting) > 1 and not asked["mean"]):
        raise NoSuchRow(f"{where}: {len(fitting)} rows of docs/{file}.json fit")
    numbers = [at(row, asked["path"]) for row in fitting]
    number = sum(numbers) / len(numbers) * float(asked["factor"] or 1)
    return format(number, asked["format"])


def at(row: Any, path: str) -> float:
    """A field, inside others where dots say so."""
    for name in path.split("."):
        row = row[int(name)] if isinstance(row, list) else row[name]
    return float(row)


def told(one: object) -> str:
    """A value as a figure names it: 0.0001 and 1e-4 are one."""
    try:
        return f"{float(one):g}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(one)


def written(text: str) -> str:
    """A text with its figures as their rows have them."""

    def replaced(found: re.Match[str]) -> str:
        kept = found["text"] if found["where"] == PUBLISHED else value(found["where"])
        return f"{found[1]}{kept}{found[4]}"

    return FIGURE.sub(replaced, text)


def wrong() -> Iterator[str]:
    """Figures that are not what their rows say."""
    for page in pages():
        for found in FIGURE.finditer(page.read_text()):
            if found["where"] != PUBLISHED and (now := value(found["where"])) != found["text"]:
                yield f"{page.relative_to(ROOT)}: {found['text']} is {now} by {found['where']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if parser.parse_args().check:
        found = list(wrong())
        print("\n".join(found) or "all figures are those of their rows")
        raise SystemExit(bool(found))
    for page in pages():
        before = page.read_text()
        if (after := written(before)) != before:
            page.write_text(after)
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
