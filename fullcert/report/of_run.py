"""The report of a run, made from its files: its evaluation, what was found out about it afterwards, its signature.

A page cannot vouch for itself. It says of every section whether the file that it is drawn from is as it was signed when
the page was made; whether the page is, `fullcert verify RUN --key FILE` says, since it is a file of the run, too.
"""

from pathlib import Path
from typing import Any, NamedTuple

from fullcert.evidence import signing
from fullcert.experiment import runs
from fullcert.report.page import RESULT, UNSIGNED, Vouched, render
from fullcert.results.beside import Beside
from fullcert.results.manifest import listed
from fullcert.system.mistakes import Mistake
from fullcert.system.unpacking import DAMAGE

SECTIONS = {RESULT: runs.EVALUATION, **runs.BESIDE}


class Page(NamedTuple):
    """The page of a run, the figures of its headline, and who vouches for what is on it."""

    text: str
    headline: dict[str, Any]
    vouched: Vouched


def page_of(run: Path) -> str:
    """The page of a run as text."""
    return made(run).text


def made(run: Path, key: Path | None = None) -> Page:
    """The page of a run; with a key, whose holder must have signed it."""
    from jinja2 import TemplateError

    broken: tuple[type[Exception], ...] = (*DAMAGE, TemplateError)
    vouched = vouched_for(run, key)
    beside = Beside(run)
    evaluation = beside.evaluation
    found = beside.found()
    try:
        return Page(render(evaluation, found, vouched), dict(evaluation["headline"]), vouched)
    except broken as error:
        why = " ".join(str(error).split())
        files = " or ".join(SECTIONS[name] for name in (RESULT, *found))
        raise Mistake(f"{files} in {run} is damaged or of another version: {why}") from None


def vouched_for(run: Path, key: Path | None) -> Vouched:
    """Whose signature covers which section of the page of a run."""
    if key is None and not (run / runs.SIGNATURE).is_file():
        return UNSIGNED
    files = {name: file for name, file in SECTIONS.items() if (run / file).is_file()}
    try:
        signature = signing.opened(run, key)
        differences = signature.differences()
    except (signing.NotSigned, Mistake) as why:
        if key is not None:
            raise Mistake(f"{run} is not signed as asked: {why}") from None
        return Vouched(f"one that does not hold: {why}", files, dict.fromkeys(files, "which nobody has signed"))
    unknown = ", which it names itself: fullcert report --key FILE compares it with yours"
    whose = unknown if key is None else f" of {key}"
    said = {
        **dict.fromkeys(differences.added, "which was added after it was made"),
        **dict.fromkeys(differences.changed, "which was changed after it was made"),
    }
    apart = {name: said[file] for name, file in files.items() if file in said}
    others = differences.names - {*SECTIONS.values(), runs.REPORT}
    also = f"; not as it was signed, beside what is drawn here: {listed(others)}" if others else ""
    return Vouched(f"made with the key {signature.public_key[:16]}{whose}{also}", files, apart)
