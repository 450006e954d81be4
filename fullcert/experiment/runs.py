"""The folder of a run, and files that appear whole or not at all: written under another name, then renamed.

options.toml              every option of the run; `fullcert train --config` gives the same run again
identity.json             what it rests on: digests of data, encoding, options and code, and versions (`identity.py`)
columns.json              how a table became inputs
metrics.jsonl             a line for every step
metrics.json              the result
certificate.safetensors   the set of all models
evaluation.json           what the report shows
report.html               the report
curve.json                certified accuracy against k or epsilon, if it was asked for
members/                  the certificates of members that vote, instead of one
barriers.svg              the decision barriers of two-dimensional data
checkpoint.safetensors    the last step of a run that was interrupted
attack.json               what attacks found, if they were made
violation.npz             a dataset that shows the certificate to be wrong, if one was found
signature.json            who vouches for the run, if somebody does
audit.json                what abstained predictions lean on, if `fullcert audit --report` was asked
.lock                     there while a run writes (`locks.py`)

`metrics.json` is the last file to be written and the first to be removed: where it is, the run is finished and whole.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fullcert.experiment.options import Options, flag_of
from fullcert.system import unpacking
from fullcert.system.locks import Lock
from fullcert.system.mistakes import Mistake

OPTIONS, IDENTITY, COLUMNS = "options.toml", "identity.json", "columns.json"
STEPS, METRICS = "metrics.jsonl", "metrics.json"
CERTIFICATE, EVALUATION, REPORT = "certificate.safetensors", "evaluation.json", "report.html"
PICTURE, CHECKPOINT, SIGNATURE, MEMBERS = "barriers.svg", "checkpoint.safetensors", "signature.json", "members"
LISTED = "ensemble.json"  # in the folder of members
ATTACK, VIOLATION, AUDIT, CURVE = "attack.json", "violation.npz", "audit.json", "curve.json"
EVALUATION_FORMAT = 1
# what is found out about a finished run, by name: each has a section of its own in the report
BESIDE = {"curve": CURVE, "attack": ATTACK, "audit": AUDIT}
# in the order of their removal: a run that is half removed is neither finished nor resumed with options of another
FILES = (
    *(METRICS, SIGNATURE, ATTACK, VIOLATION, AUDIT, CURVE, CHECKPOINT, OPTIONS),
    *(IDENTITY, COLUMNS, STEPS, CERTIFICATE, EVALUATION, REPORT, PICTURE),
)


def make_folder(path: Path) -> None:
    """Make the folder of a run before the work starts, so that a path that cannot be written is told at once."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"cannot make the folder {path}: {error.strerror}") from None
    check_writable(path / METRICS)


@contextmanager
def begun(path: Path | None) -> Iterator[Lock | None]:
    """The folder of a run, if there is to be one, for this run alone.

    A mistake found before the first step leaves no new folder. What fails because the folder is gone is told as that.
    """
    if path is None:
        yield None
        return
    new = not path.exists()
    make_folder(path)
    lock = Lock(path)
    try:
        yield lock
    except (Mistake, OSError) as error:
        lock.check()
        if isinstance(error, Mistake) and new and not (path / STEPS).exists():
            shutil.rmtree(path)
        raise
    finally:
        lock.release()


def check_unfinished(path: Path) -> None:
    """Refuse to write over a result."""
    if (path / METRICS).exists():
        raise Mistake(f"there is a finished run in {path}: use another --out, or --overwrite to replace it")


def require_unchanged(folder: Path, options: Options, before: Options) -> None:
    """Refuse to go on with a run as if it had been another one; where its data and tensors are is not part of it."""
    then, now = asdict(before), asdict(options)
    if options.loss == "auto":
        now["loss"] = before.loss
    if len(before.missing) == len(options.missing):  # a name stands for the range that was observed
        pairs = zip(before.missing, options.missing, strict=True)
        now["missing"] = tuple(old if old.startswith(f"{new}=") else new for old, new in pairs)
    what = "is finished: use another --out" if (folder / METRICS).exists() else "is resumed as it was"
    for name in sorted(now.keys() - {"data_dir", "device", "memory"}):
        if now[name] != then[name]:
            raise Mistake(f"the run in {folder} has {flag_of(name)} {then[name]} and not {now[name]}, and {what}")


def remove(folder: Path) -> None:
    """Remove the run in a folder; what else is there stays."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    for member in (folder / MEMBERS / LISTED, *(folder / MEMBERS).glob("member-*.safetensors")):
        member.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove files that a killed run had not finished writing."""
    for name in FILES:
        for part in folder.glob(f".{name}.*"):
            part.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written."""
    path = Path(os.path.realpath(path))
    try:
        if is_device(path):
            return
        if not path.parent.is_dir():
            raise Mistake(f"cannot write {path}: there is no folder {path.parent}")
        if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
            raise Mistake(f"cannot write {path}")
    except OSError as error:  # a name that is too long, a folder that is closed
        raise Mistake(f"cannot write {path}: {error.strerror}") from None


def is_device(path: Path) -> bool:
    """Whether this is something to write into and not to replace, such as /dev/stdout or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write(path: Path, content: bytes) -> None:
    """Put the whole content at `path` in one step."""
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    try:
        if is_device(path):
            path.write_bytes(content)
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise Mistake(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # the content is on the disk before the name points to it
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise Mistake(f"cannot write {path}: {error.strerror}") from None
        raise


def check_there(folder: Path) -> None:
    """Refuse a folder that is not there."""
    if not folder.is_dir():
        raise Mistake(f"there is no run at {folder}")


def existing(folder: Path, name: str) -> Path:
    """A file of a run that was made before."""
    check_there(folder)
    if name == CERTIFICATE and not (folder / name).is_file() and (folder / MEMBERS / LISTED).is_file():
        raise Mistake(f"{folder} is a run of --members that vote: this command is for runs with one certificate")
    if not (folder / name).is_file() and (folder / CHECKPOINT).is_file():
        raise Mistake(f"the run in {folder} was interrupted: fullcert train --resume --out {folder} goes on with it")
    if not (folder / name).is_file():
        raise Mistake(f"{folder} has no {name}: it is not the folder of a finished run")
    return folder / name


def certificates(folder: Path) -> list[Path]:
    """The certificate of a run, or those of its members, in order."""
    if (folder / CERTIFICATE).is_file() or not (folder / MEMBERS / LISTED).is_file():
        return [existing(folder, CERTIFICATE)]
    return sorted((folder / MEMBERS).glob("member-*.safetensors"))


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = unpacking.parsed_json(unpacking.content(path, unpacking.JSON))
    except OSError as error:
        raise Mistake(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Mistake(f"{path} is damaged: it does not hold what a run writes there")
    return found


def as_json(values: dict[str, Any]) -> str:
    """The one way JSON is written here."""
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def as_line(values: dict[str, Any]) -> str:
    """JSON without spaces, for what programs read."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False) + "\n"
