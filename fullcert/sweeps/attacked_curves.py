"""Attacked accuracy above the certified one, at the values of a sweep.

    certified at v  <=  what is true at v  <=  attacked at v = right and not broken with at most v

What few changes break is broken by more of them, so an attack at one value counts at all larger ones. What was found
stands in `attack.json` of every run, and a sweep that is repeated does not attack again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from boundflow.attacks import ATTACKS, Progress
from boundflow.attacks.result import BROKEN
from fullcert.experiment import runs
from fullcert.results import attacked_run, beside
from fullcert.results.beside import Beside
from fullcert.system.mistakes import Mistake


def attack_all(
    folders: Sequence[Path], settings: Mapping[str, Any], tell: Callable[[str, Progress], None] | None = None
) -> None:
    """Attack the runs in these folders that were not attacked with these settings before."""
    for number, folder in enumerate(folders):
        if not known(folder, settings):
            attack_one(folder, settings, partial(tell or silent, f"run {number + 1} of {len(folders)}: "))


def silent(run: str, now: Progress) -> None:
    """Tells nothing."""


def attack_one(folder: Path, settings: Mapping[str, Any], tell: Callable[[Progress], None]) -> None:
    """Attack one run, keep what was found in its folder, and tell of it in its report."""
    from fullcert.report import page_of

    recipe, certificate = attacked_run.loaded(folder)
    data = attacked_run.attacked(folder, recipe, certificate, tuple(ATTACKS), tell, **settings).as_data()
    beside.write(folder, runs.ATTACK, {**data, "asked": dict(settings)})
    runs.write(folder / runs.REPORT, page_of(folder).encode())


def known(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether this very run was attacked with these settings."""
    try:
        return (folder / runs.ATTACK).is_file() and Beside(folder).read(runs.ATTACK).get("asked") == dict(settings)
    except Mistake:  # of another run, or damaged: it is attacked again
        return False


def broken(folder: Path) -> torch.Tensor | None:
    """Which test predictions of a run attacks have changed; None where it was not attacked."""
    if not (folder / runs.ATTACK).is_file():
        return None
    points = Beside(folder).read(runs.ATTACK)["by_point"]
    return torch.tensor([point["state"] == BROKEN for point in points])


def broken_by_value(folders: Mapping[float, Path]) -> dict[float, torch.Tensor]:
    """The same by the number of changes, or the radius, of each run that was attacked."""
    found = {value: broken(folder) for value, folder in folders.items()}
    return {value: labels for value, labels in found.items() if labels is not None}
