"""Each field of Options becomes a flag, so that every command that trains takes the same ones."""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.experiment.options import Options, read_options, resolve

Config = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with options; flags override it.", rich_help_panel="Run")
]


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is Options takes a flag for each of its fields, and a file of them, instead."""

    def run(context: typer.Context, config: Path | None, **flags: Any) -> None:
        names = [field.name for field in fields(Options)]
        given = {name: flags.pop(name) for name in names}
        given = {name: _frozen(value) for name, value in given.items() if _was_given(context, name)}
        command(lambda further: resolve(given, {**further, **(read_options(config) if config else {})}), **flags)

    own = list(inspect.signature(command).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("context", keyword, annotation=typer.Context)
    config = inspect.Parameter("config", keyword, default=None, annotation=Config)
    parameters = [context, *map(flag, fields(Options)), config, *own]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def flag(field: Field[Any]) -> inspect.Parameter:
    """The flag that sets a field."""
    repeated = field.type == tuple[str, ...]
    names = ("--" + field.name.replace("_", "-"),) if field.type is bool else ()  # no --no- beside it: help is narrow
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if repeated else field.default,
        annotation=Annotated[list[str] | None if repeated else field.type, typer.Option(*names, **field.metadata)],
    )


def check_files(options: Options) -> None:
    """Refuse files that are not there, before torch is imported, which takes seconds.

    Without a table, its flags are a mistake whatever they name.
    """
    from fullcert.data import tables
    from fullcert.system.mistakes import Mistake

    tabled = options.data is not None or options.dataset == "adult"
    for path in (options.data, options.test_data, options.trusted) if tabled else ():
        if path is not None:
            tables.check(Path(path))
    place = options.model.rpartition(":")[0]
    if place and not Path(place).exists():
        raise Mistake(f"cannot read the model file {place}: No such file or directory")
