"""The command `fullcert`: what it prints when something is missing or wrong. The commands are in `commands`."""

import errno
import os
import sys

DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})  # what a write can fail with
PATHS = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP})  # what any use of a path can
INTERRUPTED = 130
EXTRA = frozenset({"typer", "rich", "matplotlib", "safetensors", "jinja2"})


def main() -> None:
    """Run the command. A user's mistake is one sentence on standard error and exit code 2."""
    from fullcert.mistakes import Mistake

    try:
        from fullcert.commands import run

        sys.exit(run(sys.argv[1:]))
    except Mistake as mistake:
        sentence = str(mistake)
    except KeyboardInterrupt:
        again = "the same command goes on with what is not finished"
        if sys.argv[1:2] != ["reproduce"]:
            again = "with --out, fullcert train --resume goes on from the last step"
        print(f"fullcert: interrupted; {again}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever reads the output has enough of it
        silence()
        sys.exit(1)
    except OSError as error:
        if error.errno not in DISK | PATHS:
            raise
        silence()
        where = f" {error.filename}" if error.filename else ""
        sentence = f"cannot {'write' if error.errno in DISK else 'use'}{where}: {error.strerror}"
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        sentence = f"the command needs {package}, which is not here: pip install 'boundflow[command]'"
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        sentence = "this needs more memory than there is: fewer columns, narrower layers or --domain interval need less"
    print(f"fullcert: {sentence}", file=sys.stderr)
    sys.exit(2)


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, in the words of Python or of torch."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)


def silence() -> None:
    """What could not be written to standard output is not tried again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # there is no file behind it
        pass
