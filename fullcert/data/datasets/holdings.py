"""What is in the folder of datasets: listed, fetched and verified, as rows of plain data."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fullcert.data.datasets import ABOUT, PAIRS, About, File, listed
from fullcert.system.mistakes import Mistake

Row = dict[str, Any]
Bar = Callable[[str, int], Callable[[int], None]]  # a name and a size give what is told how many bytes there are


def listing(folder: Path) -> list[Row]:
    """Every dataset, whether it is here and how it is checked; families of images have pairs of classes too."""
    return [
        {
            "name": name,
            "pairs": name in PAIRS,
            "samples": list(about.samples),
            "shape": list(about.shape),
            "classes": about.classes,
            "here": here(about, folder),
            "licence": about.licence,
            "digest": ", ".join(sorted({file.published.digest.partition(":")[0] for file in about.files})),
        }
        for name, about in sorted(ABOUT.items())
    ]


def here(about: About, folder: Path) -> bool:
    """Whether a dataset could be loaded now."""
    if about.package and not find_spec(about.package):
        return False
    return all(file.copy(folder) for file in about.files)


def obtain(names: list[str], folder: Path, bar: Bar) -> list[Row]:
    """Fetch every file of the datasets that is not here as published, or as a copy that will do."""
    from fullcert.data.datasets.fetching import fetch

    rows = []
    for name, file in files_of(names):
        copy = file.copy(folder)
        ready = copy is not None and copy.intact(folder)
        path = copy.path if copy and ready else file.published.path
        address = None if ready else fetch(file, folder, bar(path, file.published.size))
        state = "here already" if ready else "fetched"
        size = (folder / path).stat().st_size
        rows.append({"dataset": name, "path": path, "bytes": size, "state": state, "address": address})
    return rows


def inspect(names: list[str], folder: Path) -> list[Row]:
    """Compare files with their digests: those of the datasets named, which must be here, or all that are here."""
    rows = []
    for name, file in files_of(names or list(ABOUT)):
        copy = file.copy(folder)
        if copy:
            state = "intact" if copy.intact(folder) else "damaged"
            rows.append({"dataset": name, "path": copy.path, "state": state, "digest": copy.digest})
        elif names:
            missing = folder / file.published.path
            raise Mistake(f"{missing} is not there: get it with fullcert datasets fetch {name}")
    return rows


def present(folder: Path) -> list[Row]:
    """The files of datasets that are here, and the beginnings of downloads."""
    from fullcert.data.datasets.fetching import part_of

    rows = []
    for name, file in files_of(list(ABOUT)):
        paths = [copy.path for copy in (file.published, *file.others) if copy.here(folder)]
        part = part_of(Path(file.published.path))
        paths += [str(part)] if (folder / part).is_file() else []
        rows += [{"dataset": name, "path": path, "bytes": (folder / path).stat().st_size} for path in paths]
    return rows


def files_of(names: list[str]) -> Iterator[tuple[str, File]]:
    """The files of the datasets with these names, each once and by its first dataset; unknown names are told first."""
    families = dict.fromkeys(map(listed, names))
    owners: dict[File, str] = {}
    for family in families:
        for file in ABOUT[family].files:
            owners.setdefault(file, family)
    return ((family, file) for file, family in owners.items())
