"""The processes that torchrun started for one run: which of them this one is, and what the first of them does alone.

    torchrun --nproc-per-node 2 -m fullcert train ...

Every process reads the data and trains its share (`boundflow/fast/processes/row_placement.py`). The first one writes
the folder of the run, tests, prints and reports; the others say nothing, unless something is wrong with themselves.
"""

import os
import sys
from typing import NoReturn


def count() -> int:
    """How many processes make the run together."""
    started = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return int(os.environ["WORLD_SIZE"]) if started else 1


def several() -> bool:
    return count() > 1


def first() -> bool:
    """Whether this is the process that writes and prints."""
    return not several() or int(os.environ["RANK"]) == 0


def device(name: str) -> str:
    """The device of this process: of several GPUs of one machine, each process has its own."""
    return f"cuda:{os.environ.get('LOCAL_RANK', os.environ['RANK'])}" if several() and name == "cuda" else name


def leave(code: int) -> NoReturn:
    """End this process. One of several ends at once: a thread of the transport that still runs would abort it."""
    if several() and "torch" in sys.modules:
        from boundflow.fast.processes.ranks import end

        if end():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(code)
