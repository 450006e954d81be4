"""Files without code: tensors and one text, in the safetensors format.

What a file says of itself ends with a digest of everything in it, so that a bit that changed on the way is noticed.

One metadata key only: two or more are written in random order, and equal content should give equal bytes. A file is
written beside its place and then moved there at once, so a crash leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BoundFlowError, WrongContent
from ..same_program.identity import of_tensors
from .checked_content import require, require_room

# those that numpy knows: of others there is no digest
NUMBERS = (torch.float64, torch.float32, torch.float16, torch.complex64, torch.complex128)
COUNTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8)
DTYPES = frozenset((*NUMBERS, *COUNTS, torch.bool))
# what a reader trips over where content is not of the kind it expects
TRIPPED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError)


def write(path: str | Path, tensors: dict[str, Tensor], key: str, text: str) -> None:
    """Write tensors and, under the metadata key, the text; whatever was there before is replaced at once."""
    from safetensors.torch import save

    content = {name: value.detach().cpu().contiguous().clone() for name, value in sorted(tensors.items())}
    target = Path(path)
    serialised = save(content, metadata={key: text})
    temporary = target.with_name(f".{target.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(serialised)
            file.flush()
            os.fsync(file.fileno())  # the content is on the disk before the name points to it
        temporary.replace(target)
    except OSError as error:  # a full disk does not say which file it is about
        if error.errno is not None:
            error.filename = str(target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | Path, key: str, what: str) -> tuple[dict[str, Tensor], str]:
    """The tensors and the text of a file; ``what`` names it in errors."""
    from safetensors import SafetensorError, safe_open

    try:
        require_room(Path(path).stat().st_size, "its content")
        with safe_open(str(path), framework="pt") as file:  # refuses a header that claims more than the file holds
            text = (file.metadata() or {}).get(key)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, SafetensorError, MemoryError, ValueError, *TRIPPED) as error:
        raise BoundFlowError(f"{path} cannot be read as a {what}: {' '.join(str(error).split())}") from None
    if text is None:
        raise BoundFlowError(f"{path} is a safetensors file, but not a {what} of boundflow")
    with told(path, what):
        for name, value in tensors.items():
            require(value.dtype in DTYPES, f"{name} is {value.dtype}, which is not written here")
    return tensors, text


def text_of(path: str | Path, key: str, what: str) -> str:
    """The text of a file, whose tensors are not looked at."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get(key)
    except (OSError, SafetensorError, MemoryError, ValueError, *TRIPPED) as error:
        raise BoundFlowError(f"{path} cannot be read as a {what}: {' '.join(str(error).split())}") from None
    if text is None:
        raise BoundFlowError(f"{path} is a safetensors file, but not a {what} of boundflow")
    return str(text)


@contextmanager
def told(path: str | Path, what: str) -> Iterator[None]:
    """Content that is not what a run writes, as one sentence with the name of its file."""
    try:
        yield
    except WrongContent as error:
        raise WrongContent(f"{path} is not a {what} that a run has written: {error}") from None
    except BoundFlowError:
        raise
    except (MemoryError, ValueError, *TRIPPED) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise WrongContent(f"{path} is not a {what} that a run has written: {why}") from error


def sealed(content: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """The text of a file: what it says, with a digest of that and of its tensors."""
    return json.dumps({**content, "digest": _digest(content, tensors)}, sort_keys=True)


def unsealed(
    path: str | Path, text: str, tensors: dict[str, Tensor], formats: Sequence[int | str], advice: str
) -> dict[str, Any]:
    """What a file says, if it has a format that is known and nothing has changed since."""
    content = said(path, text, formats, advice)
    require_digest(path, content, tensors)
    del content["digest"]
    return content


def said(path: str | Path, text: str, formats: Sequence[int | str], advice: str) -> dict[str, Any]:
    """What a file says, in a format that is known, with its digest."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # integers of thousands of digits, lists within lists without end
        content = None
    if not isinstance(content, dict):
        raise BoundFlowError(f"{path} is damaged: what it says of itself cannot be read")
    if content.get("format") not in formats:
        raise BoundFlowError(
            f"{path} was written by another version of boundflow and cannot be read by this one: {advice}"
        )
    return content


def require_digest(path: str | Path, content: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse a file whose digest is not that of what it says and of its tensors."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    try:
        found = _digest(rest, tensors)
    except (ValueError, RecursionError):  # what was read can be too deep to be written
        found = None
    if found is None or content.get("digest") != found:
        raise BoundFlowError(f"{path} is damaged: its content is not what was written")


def _digest(content: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    names = sorted(tensors)
    said = json.dumps([content, names, of_tensors(*(tensors[name] for name in names))], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()
