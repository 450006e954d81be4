"""What is in a folder, file by file: the list that a signature is made over, and how a folder differs from it.

    list = {name: (bytes, sha256)}   for every file in the folder, and in the folders within it, hidden ones too

Nothing is left out but what is named. Links, pipes and devices are refused: what is behind them is not in the folder.
An empty folder is not listed, since nothing can be read from it. Files are read in blocks, and none that is not in the
list, or has another size.
"""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fullcert.system.mistakes import Mistake

BLOCK = 2**20
TOLD = 5  # names in a sentence
LONGEST = 100  # letters of a name in it


class Entry(NamedTuple):
    """How large a file is, and its sha256."""

    bytes: int
    sha256: str


class Mark(NamedTuple):
    """What changes when a file is written or another one takes its place; nobody but the system sets the last."""

    device: int
    number: int
    bytes: int
    written: int
    changed: int


@dataclass(frozen=True)
class Differences:
    """Names of files that a list does not have, has as something else, and has alone."""

    added: list[str]
    changed: list[str]
    missing: list[str]

    def __str__(self) -> str:
        kinds = {"was added": self.added, "was changed": self.changed, "was taken away": self.missing}
        told = [f"{listed(names)} {words}" for words, names in kinds.items() if names]
        return ", ".join(told)

    @property
    def names(self) -> set[str]:
        return {*self.added, *self.changed, *self.missing}


def of(folder: Path, without: Collection[str] = ()) -> dict[str, Entry]:
    """Every file of a folder with its size and sha256."""
    return {name: entry(folder / name) for name in sorted(marks(folder)) if name not in without}


def differences(folder: Path, files: dict[str, Entry], without: Collection[str] = ()) -> Differences:
    """How the files of a folder differ from a list."""
    found = {name: mark for name, mark in marks(folder).items() if name not in without}
    both = sorted(found.keys() & files.keys())
    changed = [name for name in both if found[name].bytes != files[name].bytes or entry(folder / name) != files[name]]
    return Differences(sorted(found.keys() - files.keys()), changed, sorted(files.keys() - found.keys()))


def marks(folder: Path) -> dict[str, Mark]:
    """Every file of a folder by its name, with what tells whether it was written to."""
    try:
        return {name: Mark(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in _walked(folder)}
    except OSError as error:
        raise Mistake(f"cannot read {error.filename or folder}: {error.strerror}") from None


def _walked(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    left = [""]
    while left:
        within = left.pop()
        with os.scandir(folder / within) as entries:
            for one in entries:
                name, found = f"{within}{one.name}", one.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    left.append(f"{name}/")
                elif stat.S_ISREG(found.st_mode):
                    yield name, found
                else:
                    raise Mistake(
                        f"{listed([name])} in {folder} is a link, or no file at all: only a copy can be signed"
                    )


def entry(path: Path) -> Entry:
    """The size and the sha256 of a file."""
    size, digest = 0, hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                size += len(block)
                digest.update(block)
    except OSError as error:
        raise Mistake(f"cannot read {path}: {error.strerror}") from None
    return Entry(size, digest.hexdigest())


def of_content(content: bytes) -> Entry:
    """The same of what was read from a file."""
    return Entry(len(content), hashlib.sha256(content).hexdigest())


def listed(names: Collection[str]) -> str:
    """Names in a sentence; letters that look like others, or are none, are written as numbers."""
    shown = [name if name.isascii() and name.isprintable() else ascii(name) for name in sorted(names)]
    shown = [name if len(name) <= LONGEST else f"{name[:LONGEST]}..." for name in shown]
    left = len(shown) - TOLD
    return ", ".join(shown[:TOLD]) + (f" and {left:,} more" if left > 0 else "")
