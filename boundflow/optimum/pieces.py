"""Long lists in pieces, with a line on standard error where someone is looking and it takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from ..training.progress import QUIET, REDRAWN, shown


def pieces(count: int, size: int, what: str = "") -> Iterator[slice]:
    """So many things, at most ``size`` at a time; told of are the ``what``, if there are any."""
    began = time.monotonic()
    drawn = began + QUIET if what and shown(None) else float("inf")
    line = ""
    for begin in range(0, count, max(1, size)):
        yield slice(begin, min(count, begin + max(1, size)))
        now = time.monotonic()
        if now >= drawn:
            done = min(1.0, (begin + size) / count)
            line = f"{what}: {done:.0%}, {(now - began) * (1 - done) / done:.0f} s left"
            sys.stderr.write("\r" + line.ljust(60))
            sys.stderr.flush()
            drawn = now + REDRAWN
    if line:
        sys.stderr.write("\r" + " " * 60 + "\r")
        sys.stderr.flush()
