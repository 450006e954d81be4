"""The folder of a run. Files appear whole or not at all: written under another name, then renamed."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from fullcert.mistakes import Mistake


def make_folder(path: Path) -> None:
    """Make the folder of a run before the work starts, so that a path that cannot be written is told at once."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"cannot make the folder {path}: {error.strerror}") from None
    check_writable(path / "metrics.json")


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written."""
    if not path.parent.is_dir():
        raise Mistake(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise Mistake(f"cannot write {path}")


def write(path: Path, content: bytes) -> None:
    """Put the whole content at `path` in one step."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def as_json(values: dict[str, Any]) -> str:
    """The one way JSON is written here."""
    return json.dumps(values, indent=2, allow_nan=False) + "\n"
