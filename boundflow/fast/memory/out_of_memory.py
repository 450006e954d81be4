"""What PyTorch, numpy and the system say where there is no more memory, as one error with a name and with advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import TooLittleMemory

PHRASES = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "alloc_failed",
    "bad_alloc",
    "unable to mmap",
)


def ran_out(error: BaseException) -> bool:
    """Whether this is about memory that is not there."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in PHRASES)


@contextmanager
def needs_less(advice: str) -> Iterator[None]:
    """Where memory runs out inside, `TooLittleMemory` says what needs less."""
    try:
        yield
    except TooLittleMemory:
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        if not ran_out(error):
            raise
        raise TooLittleMemory(f"there is not enough memory: {advice}") from error
