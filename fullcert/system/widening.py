"""Warnings of the library about sets that widen, told by whoever trains: in a line of its own, or not at all."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import boundflow as bf


@contextmanager
def told_by(tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """While this lasts, what would be a `bf.WideBounds` is given to ``tell``, and nobody hears of it without."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if tell is None else "always", bf.WideBounds)
        other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
            if tell is not None and issubclass(category, bf.WideBounds):
                tell(str(message))
            else:
                other(message, category, *where, **more)  # type: ignore[arg-type]

        warnings.showwarning = show
        yield
