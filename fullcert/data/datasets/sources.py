"""The files a dataset is made of: who publishes them, where they stand on disk, and the digests they must have."""

import gzip
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fullcert.system.mistakes import Mistake
from fullcert.system.unpacking import DAMAGE, Limited


@dataclass(frozen=True)
class Copy:
    """A file below the folder of datasets; one that is gzipped has the size and digest of its content."""

    path: str
    size: int
    digest: str  # "sha256:..." or "md5:...", whichever is published
    gzipped: bool = False

    def here(self, folder: Path) -> bool:
        """Whether the file is there; a folder that may not be looked into is a mistake."""
        try:
            os.stat(folder / self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise Mistake(f"{folder / self.path} cannot be read: {error.strerror}") from None
        return True

    def intact(self, folder: Path) -> bool:
        """Whether the file has its published size and digest."""
        path = folder / self.path
        try:
            with gzip.open(path) if self.gzipped else path.open("rb") as file:
                if not self.gzipped and os.fstat(file.fileno()).st_size != self.size:
                    return False
                return digest_like(self.digest, Limited(file, self.size)) == self.digest
        except DAMAGE:
            return False
        except OSError as error:
            raise Mistake(f"{path} cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class File:
    """A file as it is published, the addresses that have it, and other copies that will do."""

    published: Copy
    addresses: tuple[str, ...]
    others: tuple[Copy, ...] = ()

    def copy(self, folder: Path) -> Copy | None:
        """The copy that is there, the published one first."""
        return next((copy for copy in (self.published, *self.others) if copy.here(folder)), None)

    def published_as(self, dataset: str, folder: Path) -> Path:
        """Where to read the file; another one in its place, or one that was changed, is not that dataset."""
        copy = self.copy(folder)
        if copy is not None and not copy.intact(folder):
            raise Mistake(
                f"{folder / copy.path} is not the file that is published as {dataset}: get it again with fullcert "
                f"datasets fetch {dataset}, or train on yours with --data"
            )
        return self.path(folder)

    def path(self, folder: Path) -> Path:
        """Where to read the file; the published path if it is nowhere, so that the error names that."""
        return folder / (self.copy(folder) or self.published).path


def files(folder: str, addresses: tuple[str, ...], table: Mapping[str, tuple[int, str]]) -> tuple[File, ...]:
    """Files that all addresses have under their own names, from a table of sizes and digests."""
    return tuple(
        File(Copy(f"{folder}/{name}", size, digest), tuple(address + name for address in addresses))
        for name, (size, digest) in table.items()
    )


def digest_like(pattern: str, file: IO[bytes] | Limited) -> str:
    """The digest of a file, by the algorithm of another digest."""
    algorithm = pattern.partition(":")[0]
    digest = hashlib.new(algorithm)
    while block := file.read(2**18):
        digest.update(block)
    return f"{algorithm}:{digest.hexdigest()}"


@contextmanager
def reading(path: Path, dataset: str) -> Iterator[None]:
    """Tell what is wrong with a file in one sentence."""
    fetch = f"fullcert datasets fetch {dataset}"
    try:
        yield
    except DAMAGE:
        raise Mistake(f"{path} cannot be read, it is damaged or was cut off: get it again with {fetch}") from None
    except FileNotFoundError:
        where = "point --data-dir or BOUNDFLOW_DATA at the folder that has it"
        raise Mistake(f"{path} is not there: get it with {fetch}, or {where}") from None
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}") from None
