"""The commands, one file each. Torch and matplotlib are imported when a command runs, so that help is instant."""

from importlib.metadata import version
from typing import Annotated

import typer

from fullcert.cli.attack import attack
from fullcert.cli.audit import audit
from fullcert.cli.bench import bench
from fullcert.cli.certify import certify
from fullcert.cli.datasets import datasets
from fullcert.cli.inspect import inspect
from fullcert.cli.report import report
from fullcert.cli.reproduce import reproduce
from fullcert.cli.sign import sign
from fullcert.cli.sweep import sweep
from fullcert.cli.train import train
from fullcert.cli.tune import tune
from fullcert.cli.validate import validate
from fullcert.cli.verify import verify
from fullcert.system.mistakes import Mistake

INTERRUPTED = 130
application = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
application.command(epilog="Example: fullcert train --dataset two-moons --epsilon 0.001 --out runs/moons")(train)
application.command(epilog="Example: fullcert inspect people.csv --target income")(inspect)
application.command(
    epilog="Example: fullcert tune --data people.csv --target income --trusted clean.csv --out tuned.toml"
)(tune)
application.command(epilog="Example: fullcert certify runs/people new-people.csv --out answers.csv")(certify)
application.command(epilog="Example: fullcert attack runs/moons --steps 5")(attack)
application.command(epilog="Example: fullcert audit runs/people --budget 50 --out check.csv")(audit)
application.command(epilog="Example: fullcert report runs/moons")(report)
application.command(epilog="Example: fullcert reproduce epsilon --quick --figure epsilon.svg")(reproduce)
application.command(epilog="Example: fullcert sweep --dataset iris --flips 1,2,4 --out runs/stands")(sweep)
application.command(epilog="Example: fullcert bench --case interval-2-20-1-cpu")(bench)
application.command(epilog="Example: fullcert sign runs/moons --key my.key")(sign)
application.command(epilog="Example: fullcert verify runs/moons --key my.key.pub")(verify)
application.add_typer(datasets, name="datasets")
application.command(epilog="Example: fullcert validate net.py:make_model --shape 1,28,28 --outputs 10")(validate)


@application.callback(invoke_without_command=True, epilog="Example: fullcert train --help")
def fullcert(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train on every dataset an attacker could have left behind, and certify what none of them can change."""
    if show_version:
        typer.echo(version("fullcert"))
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: list[str]) -> int:
    """Run one command; wrong usage is a mistake like any other."""
    try:
        code = application(arguments, prog_name="fullcert", standalone_mode=False) or 0
    except typer.TyperException as usage:
        raise Mistake(usage.format_message()) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == INTERRUPTED:  # which is what typer makes of an interrupt
        raise KeyboardInterrupt
    return code
