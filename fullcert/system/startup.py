"""What the command sets before torch is imported, and how many threads it uses.

Threads of OpenMP that have nothing to do spin at barriers, and take the cores from whoever has work: beside another
busy process, two threads were four times slower than one. So they sleep instead, which must be said before torch is
loaded. And small tensors do not profit from several threads at all: how many are used goes by the work in a step.

Large tensors are given back to the system when they are dropped, and the pages of the next ones are cleared again,
which takes longer than most of what is computed in them. So the allocator keeps what it has had. Pages stay small: a
tensor of 60 MB that was not held before takes 12 ms of a core in large pages instead of 32, but what is kept is seldom
fresh, and the system works to find large pages. Half-moons cut to 900 samples 13.7 s instead of 14.9, digits with 3
flipped labels 4.6 instead of 5.1, Two-Moons 5.1 instead of 5.4, a table of 20,000 rows 4.2 instead of 4.1.
"""

import ctypes
import os
import sys
from typing import Any

PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
NO_MMAP, NO_TRIM = (-4, 0), (-1, -1)  # of malloc.h: nothing is mapped by itself, and nothing given back
# Products in a step from which two threads are faster than one on an idle machine; on a busy one they hardly ever are.
WORTH_THREADS = 2**30
OF_INTERVALS = 6  # products that a layer has for each of the plain one


def before_torch() -> None:
    """Threads sleep, memory is kept, unless the user has said otherwise; nothing where torch is loaded already."""
    if "torch" in sys.modules:
        return
    _keep_memory()
    for name, value in PASSIVE.items():
        os.environ.setdefault(name, value)


def _keep_memory() -> None:
    """Tell the allocator of this process to keep memory; other systems than Linux have others."""
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        for setting in (NO_MMAP, NO_TRIM):
            tell(*setting)


def threads_for(parameters: int, samples: int, rows: int | None) -> int:
    """How many threads a step is worth: of so many trained parameters and samples.

    Zonotopes have so many error ``rows``, and some for each sample.
    """
    work = parameters * samples * (OF_INTERVALS if rows is None else rows + samples)
    return 1 if work < WORTH_THREADS else cores()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(wanted: int | None, recipe: Any) -> int:
    """Set the number of threads of a training: as wanted, as the environment says, or by the work in a step."""
    options = recipe.options
    trained = sum(part.numel() for part in recipe.initial.parameters() if part.requires_grad)
    rows = options.order * trained if options.domain == "zonotope" else None
    return use_threads_for(trained, options.batch_size or len(recipe.data.train.labels), rows, wanted)


def use_threads_for(parameters: int, samples: int, rows: int | None, wanted: int | None = None) -> int:
    """Set the number of threads of steps on so many parameters and samples."""
    import torch

    if wanted is None and "OMP_NUM_THREADS" not in os.environ:
        wanted = threads_for(parameters, samples, rows)
    if wanted is not None:
        torch.set_num_threads(wanted)
    return torch.get_num_threads()
