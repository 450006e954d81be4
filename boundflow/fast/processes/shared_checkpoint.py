"""The checkpoint of a training on several processes: one file, written by the first rank, with the rows of all.

    every rank sends its rows to the first one  ->  the file that one process would have written

The file does not say how many processes there were, so any number of them may go on from it: each reads all of it and
keeps the rows that have their home there (`row_placement.py`). Gathering takes time, so the state is not held after
every step: it is gathered when the file is due, at the last step, and never when something went wrong, since a process
that is lost cannot send its rows any more. What is in the file then is the state that was written last.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ...files.checkpoint import Checkpoint, Made
from ...files.training_state import Trainer, space_of
from .ranks import Ranks


class SharedCheckpoint(Checkpoint):
    """The file of one run on several processes. All ranks call the same methods at the same steps."""

    def __init__(
        self, path: Any, every: float, recipe: dict[str, Any], nominal: Trainer, certified: Trainer, ranks: Ranks
    ):
        self.ranks, self.wanted = ranks, path is not None
        if ranks.rank > 0 and path is not None and not Path(path).parent.is_dir():
            path = None  # another machine, which does not write
        super().__init__(path, every, recipe, nominal, certified)

    def __enter__(self) -> SharedCheckpoint:
        if self.ranks.rank == 0:
            super().__enter__()
        return self

    def resume(self) -> Made:
        """Bring this rank to the state in the file, and leave it the rows that have their home here."""
        made = super().resume() if self.path is not None or self.ranks.rank == 0 else Made()
        why = "every process must see the file, so put it where all machines can read it"
        self.ranks.require_same("the checkpoint", [f"{made.steps} {made.void_at_step}"], why)
        space = space_of(self.certified.model)
        shares = space.arithmetic.shares
        if shares is not None and space.expansion is not None:
            space.expands(self.certified.optimizer, shares.part_of(space.expansion))
        return made

    def hold(self, made: Made) -> None:
        """Write the state after a step, if the first rank finds that it is time, with what all ranks send to it."""
        if not self.wanted:
            return
        due = time.monotonic() - self.written >= self.every or made.steps == self.recipe["steps"]
        if not self.ranks.of_first("whether to write", float(due)):
            return
        space = space_of(self.certified.model)
        shares = space.arithmetic.shares
        if shares is not None and space.expansion is not None and made.void_at_step is None:
            self.whole = shares.whole_on_first(space.expansion)
        if self.ranks.rank == 0:
            self.written = -float("inf")
            super().hold(made)
        self.whole = None
