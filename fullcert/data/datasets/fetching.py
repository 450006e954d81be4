"""Fetch a file from its publisher.

Bytes go to a `.part` file beside the place where the file will be. It takes its final name only when its digest is the
published one. A download that broke off is kept and resumed from where it ended, at any address that has the file; what
does not match in the end is thrown away.
"""

import fcntl
import http.client
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from fullcert.data.datasets.sources import Copy, File, digest_like
from fullcert.system.mistakes import Mistake

PATIENCE = 30.0  # seconds without a byte
BLOCK = 2**18

Progress = Callable[[int], None]  # is told how many bytes there are by now


class Unreachable(Exception):
    """An address that did not give the file; the message says what it did instead."""


def part_of(path: Path) -> Path:
    """Where the bytes of a file are kept until all of them are there."""
    return path.with_name(path.name + ".part")


def fetch(file: File, folder: Path, progress: Progress) -> str:
    """Put the file in its place, whatever stood there before, and return the address it came from."""
    target = folder / file.published.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part_file(part_of(target)) as stream:
            check_room(target.parent, file.published.size - stream.seek(0, os.SEEK_END))
            address = fetch_from_any(file, stream, progress)
            os.fsync(stream.fileno())
            os.replace(part_of(target), target)
            return address
    except OSError as error:  # of this disk; those of the network are Unreachable
        raise Mistake(f"cannot write {target}: {error.strerror}") from None


@contextmanager
def part_file(path: Path) -> Iterator[BinaryIO]:
    """The file of a download, for one process alone; an empty one is not left behind."""
    with path.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat())
        except BlockingIOError:
            ours = False
        if not ours:  # another process is at it, or has just finished and renamed the file under our hands
            raise Mistake(f"{path} is being fetched by another process: wait until it is done")
        try:
            yield stream
        finally:
            if not os.fstat(stream.fileno()).st_size:
                path.unlink(missing_ok=True)


def check_room(folder: Path, needed: int) -> None:
    """Refuse to start what cannot fit."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Mistake(f"{folder} has room for {free:,} bytes, and {needed:,} are needed: make room or use --data-dir")


def fetch_from_any(file: File, stream: BinaryIO, progress: Progress) -> str:
    """Try the addresses in turn; return the one that completed the file."""
    failures = []
    for address in file.addresses:
        try:
            complete(address, file.published, stream, progress)
            return address
        except Unreachable as failure:
            failures.append(f"{urlsplit(address).netloc} {failure}")
    kept = stream.seek(0, os.SEEK_END)
    resume = f" ({kept:,} bytes are kept: run the command again to go on from there)" if kept else ""
    raise Mistake(f"cannot fetch {file.published.path}: {'; '.join(failures)}{resume}")


def complete(address: str, wanted: Copy, stream: BinaryIO, progress: Progress) -> None:
    """Add what is missing and check the whole; if what was there before was of another file, ask for all of it."""
    begun = stream.seek(0, os.SEEK_END)
    if begun > wanted.size:
        begun = emptied(stream)
    if begun < wanted.size:
        transfer(address, begun, wanted.size, stream, progress)
    stream.seek(0)
    if digest_like(wanted.digest, stream) == wanted.digest:
        return
    emptied(stream)
    if not begun:
        raise Unreachable("sent a file whose digest is not the published one")
    complete(address, wanted, stream, progress)


def transfer(address: str, begun: int, size: int, stream: BinaryIO, progress: Progress) -> None:
    """Write the bytes from `begun` to `size` to the end of the stream."""
    with asked(address, begun) as response:
        begun = begun if response.status == 206 else emptied(stream)  # 200: the server starts from the beginning
        check_extent(response, begun, size)
        progress(begun)
        while block := received(response):
            stream.write(block)
            begun += len(block)
            if begun > size:
                emptied(stream)
                raise Unreachable(f"sent more than the {size:,} bytes that are published")
            progress(begun)
    stream.flush()
    if begun < size:
        raise Unreachable(f"broke off after {begun:,} of {size:,} bytes")


@contextmanager
def asked(address: str, begun: int) -> Iterator[http.client.HTTPResponse]:
    """The answer of a server that was asked for all bytes from `begun` on."""
    headers = {"User-Agent": "fullcert", **({"Range": f"bytes={begun}-"} if begun else {})}
    try:
        response = urlopen(Request(address, headers=headers), timeout=PATIENCE)
    except HTTPError as error:
        error.close()
        raise Unreachable(f"answered {error.code} {error.reason}") from None
    except (URLError, OSError, http.client.HTTPException) as error:
        raise Unreachable(f"cannot be reached ({cause(error)})") from None
    with response:
        yield response


def check_extent(response: http.client.HTTPResponse, begun: int, size: int) -> None:
    """Refuse an answer that announces another file, before a byte of it is written."""
    length, extent = response.headers.get("Content-Length", ""), response.headers.get("Content-Range", "")
    if response.status == 206 and not re.match(rf"bytes {begun}-", extent):
        raise Unreachable("answered with other bytes than it was asked for")
    if length.isdecimal() and begun + int(length) != size:
        raise Unreachable(f"has {begun + int(length):,} bytes where {size:,} are published")


def received(response: http.client.HTTPResponse) -> bytes:
    """The next bytes; none at the end, or if the connection was cut."""
    try:
        return response.read(BLOCK)
    except (OSError, http.client.HTTPException):  # the size tells that it was cut
        return b""


def cause(error: Exception) -> str:
    """The reason of a failed connection in a few words."""
    reason = error.reason if isinstance(error, URLError) else error
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def emptied(stream: BinaryIO) -> int:
    """Throw away what has arrived."""
    stream.seek(0)
    return stream.truncate()
