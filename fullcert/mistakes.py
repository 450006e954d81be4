"""A mistake of the user, told in one plain sentence.

The command prints the sentence and exits with 2. Every other exception is a bug of ours and keeps its traceback.
"""

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


class Mistake(Exception):
    """Something the user asked for that cannot be done; the message is one sentence."""


def choose(kind: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """The entry called `name`, or a sentence that lists the names there are."""
    if name not in table:
        raise Mistake(f"there is no {kind} called {name!r}: choose one of {', '.join(table)}")
    return table[name]
