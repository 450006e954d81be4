"""One run a folder: a file that stays locked while a run writes there.

    a run has `.lock` open and locked   =>   every other run into that folder is refused

The system takes the lock back when the process ends, however it ends: a file that a killed run has left behind blocks
nobody. The file names the process that holds it. Where the system or the disk has no such locks, the file itself is the
lock: one process alone can make it, and one that was left behind is to be deleted by hand, as the sentence says.
"""

import errno
import os
import platform
from contextlib import suppress
from pathlib import Path

from fullcert.system.mistakes import Mistake

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows
    flock = None  # type: ignore[assignment]

NAME = ".lock"
LONGEST = 1000  # bytes of the file, which holds a number and a name
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})  # of a disk


class Lock:
    """The right to write into a folder, from the moment it is made until `release`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME
        self.by_system = flock is not None
        try:
            self.handle = self._taken()
        except OSError as error:
            raise Mistake(f"cannot write {self.path}: {error.strerror}") from None
        try:
            os.truncate(self.handle, 0)
            os.write(self.handle, f"{os.getpid()} {platform.node()}\n".encode())
        except OSError as error:
            self.release()
            raise Mistake(f"cannot write {self.path}: {error.strerror}") from None

    def _taken(self) -> int:
        while True:
            handle, made = self._opened()
            if not self._locked(handle, made):
                os.close(handle)
                raise Mistake(self._refusal())
            self.handle = handle
            if self.in_place():
                return handle
            os.close(handle)  # whoever held it has deleted it in the meantime

    def _opened(self) -> tuple[int, bool]:
        """The file, and whether this process has made it."""
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), True
        except FileExistsError:
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), False

    def _locked(self, handle: int, made: bool) -> bool:
        if self.by_system:
            try:
                flock(handle, LOCK_EX | LOCK_NB)
                return True
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                self.by_system = False
        return made

    def _refusal(self) -> str:
        process, machine = said(self.path)
        who = f"process {process}" if process else "another process"
        who += f" on {machine}" if machine not in ("", platform.node()) else ""
        sentence = f"{who} is writing a run into {self.folder}: wait for it, or use another --out"
        return sentence if self.by_system else f"{sentence}; if that process is gone, delete {self.path}"

    def in_place(self) -> bool:
        """Whether the folder is still the one that was locked."""
        try:
            return os.path.samestat(os.fstat(self.handle), os.stat(self.path))
        except OSError:
            return False

    def check(self, *_: object) -> None:
        """Refuse to go on in a folder that is another one by now; a callback after every step, for instance."""
        if not self.in_place():
            gone = f"the folder {self.folder} was removed or moved while a run wrote there"
            raise Mistake(f"{gone}: the run has ended, and its steps since the last checkpoint are lost")

    check.only_looks = True  # type: ignore[attr-defined]  # a run may have its steps compiled

    def release(self) -> None:
        """Give the folder free. The name goes while the lock is held: nobody else can have locked that file."""
        mine = self.in_place()
        if not self.by_system:  # Windows deletes no file that is open
            os.close(self.handle)
        if mine:
            with suppress(OSError):  # a file that stays behind blocks nobody
                self.path.unlink()
        if self.by_system:
            os.close(self.handle)


def said(path: Path) -> tuple[str, str]:
    """The process and the machine that a file names; empty where it names none, or is gone."""
    try:
        with path.open("rb") as file:
            process, _, machine = file.read(LONGEST).decode().strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return "", ""
    return (process, machine) if process.isascii() and process.isdecimal() and len(process) < 10 else ("", "")


def held(folder: Path) -> bool:
    """Whether a process of this machine writes into a folder.

    The system knows it by its lock; where it has none, by the number that the file names, if that is a process.
    """
    try:
        handle = os.open(folder / NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        if flock is not None:
            flock(handle, LOCK_EX | LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    finally:
        os.close(handle)
    return _is_there(folder)


def _is_there(folder: Path) -> bool:
    process, machine = said(folder / NAME)
    if not process or machine != platform.node() or int(process) <= 0:
        return False
    try:
        os.kill(int(process), 0)  # no signal: only whether it is there
    except OSError:
        return False
    return True
