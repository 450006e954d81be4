"""The page of all experiments, written from rows on disk: PAGE.md from PAGE/ID.json, with the figures PAGE/ID.svg."""

from pathlib import Path

from fullcert.experiment import runs
from fullcert.reproduce import writing
from fullcert.reproduce.experiments import Experiment, load
from fullcert.system.mistakes import Mistake

OPENING = """# Published results, run again

Every table and figure of the FullCert paper, and of others in the field, beside ours. This page is written from the
rows in the folder beside it:

```sh
fullcert reproduce                    # the list of experiments
fullcert reproduce epsilon --quick    # two seeds, few epochs: whether it works here
fullcert reproduce epsilon --json {folder}/epsilon.json --figure {folder}/epsilon.svg
fullcert reproduce --page {page}
```

*paper* is what was printed, *mean* and *std* are ours over the seeds, *nominal* is the plain model, *seconds* those of
one seed on the machine that ran it. The recipe *paper* is the published one with the quirks of its code, early stopping
on validation data included (one rule for intervals and zonotopes), so it is no certificate of the whole procedure;
*best* is ours, with its number of steps fixed beforehand. Finished values are kept (`--out`) and taken over by the same
code, versions and kind of device, so an interrupted run goes on where it was. `--jobs 16` uses 16 processes, and
`python -m fullcert.reproduce` needs torch and numpy alone.
"""


def write(page: Path) -> None:
    """Write the page, if its folder has rows."""
    folder = page.with_suffix("")
    found = {path.stem: writing.read(path) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise Mistake(f"{folder} has no rows: write some with fullcert reproduce ID --json {folder}/ID.json")
    for name, rows in found.items():
        others = sorted({row["id"] for row in rows} - {name})
        if others:
            raise Mistake(f"{folder / name}.json has rows of {others[0]}: a file is named by the experiment it holds")
    runs.check_writable(page)
    opening = OPENING.format(folder=_shown(folder), page=_shown(page))
    sections = [section(one, found[one.id], folder) for one in load().values() if one.id in found]
    runs.write(page, "\n".join([opening, *sections]).encode())


def _shown(path: Path) -> str:
    """A path as the page names it: a page that is written elsewhere must not say where."""
    return f"docs/{path.name}"


def section(one: Experiment, rows: list[writing.Row], folder: Path) -> str:
    """One experiment: what it is, what differs, its table and its figure."""
    lines = [f"## {one.id}", "", f"{one.title} ({one.source}). Values: {one.value}.", "", one.differs, ""]
    lines.append(writing.as_markdown(rows))
    if (folder / f"{one.id}.svg").exists():
        lines += [f"![{one.title}]({folder.name}/{one.id}.svg)", ""]
    return "\n".join(lines)
