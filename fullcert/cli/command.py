"""The command `fullcert`: what it prints when something is missing or wrong; `application.py` has the subcommands."""

import errno
import os
import sys
from contextlib import suppress

from fullcert.system.mistakes import LESS_MEMORY

DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})  # what a write can fail with
PATHS = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP})  # what any use of a path can
INTERRUPTED = 130
# how torch says it, on a processor and on devices, and the system, also where it cannot load a library
NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "alloc_failed",
    "bad_alloc",
    "unable to mmap",
    "failed to map segment",
)
EXTRA = frozenset({"typer", "rich", "matplotlib", "safetensors", "jinja2"})


def main() -> None:
    """Run the command. A user's mistake is one sentence on standard error and exit code 2."""
    from fullcert.system import processes
    from fullcert.system.mistakes import Mistake
    from fullcert.system.startup import before_torch
    from fullcert.system.stopping import Stopped

    before_torch()
    code, told_here = 2, processes.first()
    try:
        from fullcert.cli.application import run

        processes.leave(run(sys.argv[1:]))
    except Mistake as mistake:
        sentence, code, told_here = str(mistake), mistake.code, told_here or mistake.own
    except KeyboardInterrupt:
        sentence, code = f"interrupted; {how_to_go_on()}", INTERRUPTED
    except Stopped as stopped:
        sentence, code = f"{stopped}; {how_to_go_on()}", stopped.code
    except BrokenPipeError:  # whoever reads the output has enough of it
        silence()
        sys.exit(1)
    except (OSError, MemoryError, RuntimeError) as error:
        stop = error.__context__
        if isinstance(stop, Stopped) and getattr(error, "errno", None) == errno.EIO:  # the terminal was closed
            sys.exit(stop.code)
        told = in_words(error)
        if told is None:
            raise
        if isinstance(error, OSError):
            silence()
        sentence, told_here = told, True
    except ImportError as missing:
        package, told = (missing.name or "").partition(".")[0], in_words(missing)
        if told is None and not (isinstance(missing, ModuleNotFoundError) and package in EXTRA):
            raise
        sentence = told or f"the command needs {package}, which is not here: pip install {' '.join(sorted(EXTRA))}"
    with suppress(OSError):  # of a terminal that was closed
        if told_here:
            print(f"fullcert: {sentence}", file=sys.stderr, flush=True)
    processes.leave(code)


def how_to_go_on() -> str:
    """What to type after an interrupt."""
    if sys.argv[1:2] in (["reproduce"], ["sweep"]):
        return "the same command goes on with what is not finished"
    if sys.argv[1:2] == ["attack"]:
        return "nothing was written; --targets and --steps make attacks shorter"
    return "with --out, fullcert train --resume goes on from the last step"


def in_words(error: Exception) -> str | None:
    """What the disk, a path or the memory has refused, if it was one of these."""
    if isinstance(getattr(error, "needed", None), float):  # a plan that was refused says itself what would fit
        return str(error)
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
        needs_less = LESS_MEMORY if sys.argv[1:2] == ["train"] else "fewer or smaller rows need less"
        return f"there is not enough memory: {needs_less}"
    if not isinstance(error, OSError) or error.errno not in DISK | PATHS:
        return None
    where = f" {error.filename}" if error.filename else ""
    return f"cannot {'write' if error.errno in DISK else 'use'}{where}: {error.strerror}"


def silence() -> None:
    """What could not be written to standard output is not tried again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # there is no file behind it
        pass
