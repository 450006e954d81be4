"""The command `fullcert`: what it prints when something is missing or wrong. The commands are in `commands`."""

import errno
import sys

DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG})
INTERRUPTED = 130
EXTRA = frozenset({"typer", "rich", "matplotlib", "safetensors", "jinja2"})


def main() -> None:
    """Run the command. A user's mistake is one sentence on standard error and exit code 2."""
    from fullcert.mistakes import Mistake

    try:
        from fullcert.commands import run

        code = run(sys.argv[1:])
        if code == INTERRUPTED:  # typer makes Ctrl-C an exit without a word
            raise KeyboardInterrupt
        sys.exit(code)
    except Mistake as mistake:
        sentence = str(mistake)
    except KeyboardInterrupt:
        print("fullcert: interrupted; with --out, fullcert train --resume goes on from the last step", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno not in DISK:
            raise
        where = f" {error.filename}" if error.filename else ""
        sentence = f"cannot write{where}: {error.strerror}"
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        sentence = f"the command needs {package}, which is not here: pip install 'boundflow[command]'"
    print(f"fullcert: {sentence}", file=sys.stderr)
    sys.exit(2)
