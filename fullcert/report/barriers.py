"""The decision barriers of a two-dimensional task as one SVG file that follows the reader's light or dark mode.

It is drawn at the test radius of the run, however thin the undecided band is there: a picture at another radius would
stand beside a claim that it does not show.
"""

from html import escape
from importlib.resources import files
from typing import Any

from fullcert.report import regions
from fullcert.system.numbers_as_text import number


def drawn(evaluation: dict[str, Any]) -> str | None:
    """The picture of a run, if its inputs are points of a plane."""
    if evaluation["plane"] is None:
        return None
    picture = regions.picture(evaluation["plane"], evaluation["classes"], {})
    shown, height = picture.radii[picture.start], picture.top + picture.height
    width = picture.left + picture.width + 14
    style = (files("fullcert.report") / "templates" / "barriers.css").read_text("utf-8")
    box = f'x="{picture.left}" y="{picture.top}" width="{picture.width}" height="{picture.height}"'
    title = f"{evaluation['title']}: {shown.words}"
    words = f"{evaluation['title']}, test radius {number(shown.epsilon)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height + 92}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<rect class="paper" width="{width}" height="{height + 92}"/>'
        f'<defs><clipPath id="inside"><rect {box}/></clipPath><pattern id="undecided" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatching" d="M0 0V6"/></pattern>'
        "</defs>"
        f'<g clip-path="url(#inside)"><rect class="open" {box}/><rect fill="url(#undecided)" {box}/>'
        f'{shown.regions}{picture.overlay}<g class="names">{shown.names}</g></g>{picture.frame}'
        f'<text class="label" x="{picture.left}" y="{height + 64}">{escape(words)}: coloured where every model agrees,'
        f'</text><text class="label" x="{picture.left}" y="{height + 81}">hatched where they may not; dashed: '
        "the plain model</text></svg>\n"
    )
