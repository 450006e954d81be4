"""The command `fullcert`: what it prints when something is missing or wrong. The commands are in `commands`."""

import sys

EXTRA = frozenset({"typer", "rich", "matplotlib", "safetensors", "jinja2"})


def main() -> None:
    """Run the command. A user's mistake is one sentence on standard error and exit code 2."""
    from fullcert.mistakes import Mistake

    try:
        from fullcert.commands import run

        sys.exit(run(sys.argv[1:]))
    except Mistake as mistake:
        sentence = str(mistake)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        sentence = f"the command needs {package}, which is not here: pip install 'boundflow[command]'"
    print(f"fullcert: {sentence}", file=sys.stderr)
    sys.exit(2)
