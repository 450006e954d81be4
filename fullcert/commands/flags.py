"""Each field of Options becomes a flag, so that every command that trains takes the same ones."""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any

import typer

from fullcert.options import Options


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is Options takes a flag for each of its fields instead."""

    def run(**flags: Any) -> None:
        options = Options(**{field.name: flags.pop(field.name) for field in fields(Options)})
        command(options, **flags)

    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [*map(flag, fields(Options)), *own]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def flag(field: Field[Any]) -> inspect.Parameter:
    """The flag that sets a field."""
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[field.type, typer.Option(**field.metadata)],
    )
