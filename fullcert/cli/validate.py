"""`fullcert validate`: which operators of a network have rules, layer by layer, and whether it can be certified."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from fullcert.experiment.validation import Layer, Validation


def validate(
    model: Annotated[
        str, typer.Argument(help="A file, which is run, and its function (net.py:make_model), or a name.")
    ],
    *,
    shape: Annotated[str | None, typer.Option(help="Shape of one input, such as 1,28,28.")] = None,
    features: Annotated[int | None, typer.Option(help="Instead of a shape: how many numbers one input has.")] = None,
    outputs: Annotated[int | None, typer.Option(help="Outputs of the model.", show_default="1 or 2, by loss")] = None,
    loss: Annotated[
        str | None, typer.Option(help="bce, ce, hinge or mse.", show_default="ce; bce for 1 output")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, adam, adamw or rmsprop.")] = "sgd",
    domain: Annotated[str, typer.Option(help="interval or zonotope.")] = "zonotope",
    seed: Annotated[int, typer.Option(help="Fixes the initial weights and the inputs that are tried.")] = 0,
    json: Annotated[str | None, typer.Option(help="File for what was found; - is standard output.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no table.")] = False,
) -> None:
    """Say which operators of a network have rules and which do not; exit with 0 if it can be certified."""
    from rich.console import Console

    sizes = parse_shape(shape, features)
    place = model.rpartition(":")[0]
    if place and not Path(place).exists():  # before torch is imported, which takes seconds
        raise Mistake(f"cannot read the model file {place}: No such file or directory")

    from fullcert.experiment.validation import Trial
    from fullcert.experiment.validation import validate as examine

    outputs = outputs if outputs is not None else 1 if loss in ("bce", "hinge") else 2
    if outputs < 1:
        raise Mistake(f"--outputs must be at least 1, not {outputs}")
    trial = Trial(sizes, outputs, loss or ("ce" if outputs > 1 else "bce"), optimizer, seed)
    if json and json != "-":
        runs.check_writable(Path(json))
    found = examine(make(model, sizes, outputs, seed), trial, domain)

    content = runs.as_json({"model": model, "shape": list(sizes), "outputs": outputs, **summary(found)})
    if json == "-":
        print(content, end="")
    elif json:
        runs.write(Path(json), content.encode())
    if not quiet:
        show(model, found, Console(stderr=json == "-"))
    if not found.certifiable:
        raise Mistake(found.verdict)


def parse_shape(shape: str | None, features: int | None) -> tuple[int, ...]:
    """The shape of one input, from either flag."""
    if (shape is None) == (features is None):
        raise Mistake("give the shape of one input, either with --shape 1,28,28 or with --features 4")
    sizes = str(features if shape is None else shape).split(",")
    if not all(size.strip().isdecimal() and int(size) > 0 for size in sizes):
        raise Mistake(f"--shape and --features must be positive numbers such as 1,28,28, not {','.join(sizes)!r}")
    return tuple(map(int, sizes))


def make(model: str, shape: tuple[int, ...], outputs: int, seed: int) -> "nn.Module":
    """The user's network, or one by name."""
    from fullcert.experiment.options import Options
    from fullcert.networks import model_files, models

    if model_files.is_file(model):
        return model_files.build_model(model, shape, outputs, seed)
    return models.build(Options(model=model, seed=seed), shape, outputs)


def summary(found: "Validation") -> dict[str, Any]:
    """What was found, as JSON data."""
    return {
        "domain": found.domain,
        "can_be_certified": found.certifiable,
        "verdict": found.verdict,
        "unsupported": list(found.unsupported),
        "notes": list(found.notes),
        "steps_on_sets": {domain: failure and str(failure) for domain, failure in found.whole.items()},
        "layers": [
            {
                "layer": layer.name,
                "kind": layer.kind,
                "problem": layer.problem(found.domain),
                "advice": layer.advice,
                "alone": {domain: failure and str(failure) for domain, failure in layer.alone.items()},
                "operators": [
                    {"operator": one.operator, "verdict": one.verdict, "function": one.function, "reason": one.reason}
                    for one in layer.operators
                ],
            }
            for layer in found.layers
        ],
    }


def show(model: str, found: "Validation", console: "Console") -> None:
    """The table of layers, what else is to be said, and the verdict if it is a good one."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{escape(model)}, {found.domain}", title_justify="left")
    for column in ("layer", "kind", "operators", "verdict"):
        table.add_column(column, overflow="fold")
    for layer in found.layers:
        problem = layer.problem(found.domain)
        verdict = "yes" if problem is None else f"no: {problem}" + (f". Try: {layer.advice}" if layer.advice else "")
        table.add_row(escape(layer.name), layer.kind, operators(layer), escape(verdict))
    console.print(table)
    for note in found.notes:
        console.print(f"Note: {note}", highlight=False, markup=False)
    if found.certifiable:
        console.print(found.verdict, highlight=False)


def operators(layer: "Layer") -> str:
    """The operators of a layer, each once; of a function that is handled whole, its name."""
    from fullcert.experiment.validation import short

    names: dict[str, bool] = {}
    for one in layer.operators:
        name = one.function or short(one.operator)
        names[name] = names.get(name, False) or one.unsupported
    return ", ".join(f"[bold red]{name}[/]" if bad else name for name, bad in names.items())
