"""Files of strangers: how much is unpacked at most, and what may go wrong on the way.

A few kilobytes of zip or gzip can stand for terabytes, and a header of a hundred bytes can claim any number of values.
So what a file claims is compared with what it holds, and both with the limits here, before memory is asked for:

    VALUES      numbers in a table or an archive of arrays, 2^28: 2 GiB in float64
    COLUMNS     columns of a table, 20,000
    TEXT        bytes of a file of options (1 MiB)
    JSON        bytes of a file of a run (256 MiB)

Whatever is wrong is a ValueError with one sentence, or one of DAMAGE, which parsers raise on what is no content.
"""

import csv
import gzip
import io
import json
import lzma
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

VALUES, COLUMNS, TEXT, JSON = 2**28, 20_000, 2**20, 2**28

# what parsers raise on files that were cut off, changed or made to break them; an OSError is about the disk
DAMAGE: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, TypeError, ValueError),
    *(NotImplementedError, RecursionError, RuntimeError, SyntaxError, SystemError, StopIteration),
    *(csv.Error, gzip.BadGzipFile, lzma.LZMAError, struct.error, zipfile.BadZipFile, zlib.error),
)


def content(path: Path, most: int) -> bytes:
    """The bytes of a file, unpacked if its name ends with .gz; more than `most` of them are refused, and not read."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        found: bytes = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"it holds more than {most:,} bytes")
    return found


def parsed_json(text: str | bytes) -> Any:
    """What JSON says; lists within lists without end, and integers of thousands of digits, are a ValueError too."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class Limited(io.RawIOBase):
    """A stream that refuses to give more than so many bytes: for archives, whose members say what is read of them."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int):
        self.stream, self.left = stream, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self.left + 1 if size < 0 else min(size, self.left + 1)
        found = self.stream.read(wanted)
        self.left -= len(found)
        if self.left < 0:
            raise ValueError("it unpacks to more than it should hold")
        return found
