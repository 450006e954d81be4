"""`fullcert train`: train a network on all datasets of a threat and certify its predictions on the test set."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fullcert import runs
from fullcert.commands.flags import takes_options
from fullcert.options import Options


@takes_options
def train(
    options: Options,
    *,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics, options, picture and certificate.")] = None,
    json: Annotated[str | None, typer.Option(help="File for the metrics; - is standard output.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show neither progress nor table.")] = False,
) -> None:
    """Train on all datasets of a threat at once, and certify the test set."""
    import safetensors  # noqa: F401  (the certificate needs it: if it is missing, say so before training)
    from rich.console import Console

    from fullcert.commands.display import progress_bar, show
    from fullcert.evaluation import measure
    from fullcert.figures import barriers
    from fullcert.training import Recipe

    recipe = Recipe(options)  # all mistakes are found here, before anything is written
    if json and json != "-":
        runs.check_writable(Path(json))
    if out:
        runs.make_folder(out)

    with progress_bar(hidden=quiet) as progress:
        certificate = recipe.certify(progress)
    metrics = measure(recipe, certificate)

    picture = out / "barriers.png" if out and recipe.planar else None
    if picture:
        runs.write(picture, barriers(recipe, certificate))
    if out:
        certificate.save(out / "certificate.safetensors")
        runs.write(out / "options.json", runs.as_json(asdict(options)).encode())
        runs.write(out / "metrics.json", runs.as_json(metrics).encode())
    if json == "-":
        print(runs.as_json(metrics), end="")
    elif json:
        runs.write(Path(json), runs.as_json(metrics).encode())
    if not quiet:
        show(metrics, picture, Console(stderr=json == "-"))
