"""A mistake of the user, told in one plain sentence.

The command prints the sentence and exits with 2. Every other exception is a bug of ours and keeps its traceback.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

Entry = TypeVar("Entry")

LESS_MEMORY = "a smaller --batch-size, --order or --memory, fewer samples, or --domain interval needs less"


class Mistake(Exception):
    """Something the user asked for that cannot be done; the message is one sentence, and ``code`` is the exit code.

    Of several processes that make one run, all find the same mistake, and the first one tells it. What is ``own`` to a
    process is told by that one.
    """

    def __init__(self, sentence: str, code: int = 2, own: bool = False) -> None:
        super().__init__(sentence)
        self.code, self.own = code, own


def check_known(kind: str, name: str, names: Collection[str]) -> None:
    """Refuse a name that does not exist, with a sentence that lists the names there are."""
    if name not in names:
        raise Mistake(f"there is no {kind} called {name!r}: choose one of {', '.join(names)}")


def choose(kind: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """The entry called `name`."""
    check_known(kind, name, table)
    return table[name]
