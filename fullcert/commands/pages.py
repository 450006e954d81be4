"""The report of a run, made from its files: of its evaluation, and of what was found out about it afterwards."""

from pathlib import Path

from fullcert import runs
from fullcert.mistakes import Mistake
from fullcert.unpacking import DAMAGE


def page_of(run: Path) -> str:
    """The page of a run, with what was found out about it afterwards (`runs.BESIDE`)."""
    from jinja2 import TemplateError

    from fullcert.report import render

    broken: tuple[type[Exception], ...] = (*DAMAGE, TemplateError)
    evaluation = runs.read_json(runs.existing(run, runs.EVALUATION))
    beside = runs.beside(run)
    try:
        page = render(evaluation, beside)
        dict(evaluation["headline"])
        return page
    except broken as error:
        why = " ".join(str(error).split())
        files = " or ".join([runs.EVALUATION, *(runs.BESIDE[name] for name in beside)])
        raise Mistake(f"{files} in {run} is damaged or of another version: {why}") from None
