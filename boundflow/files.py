"""Files without code: tensors and one text, in the safetensors format.

What a file says of itself ends with a digest of everything in it, so that a bit that changed on the way is noticed.

One metadata key only: two or more are written in random order, and equal content should give equal bytes. A file is
written beside its place and then moved there at once, so a crash leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from .errors import BoundFlowError


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
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get(key)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, SafetensorError) as error:
        raise BoundFlowError(f"{path} cannot be read as a {what}: {error}") from None
    if text is None:
        raise BoundFlowError(f"{path} is a safetensors file, but not a {what} of boundflow")
    return tensors, text


def sealed(content: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """The text of a file: what it says, with a digest of that and of its tensors."""
    return json.dumps({**content, "digest": _digest(content, tensors)}, sort_keys=True)


def unsealed(
    path: str | Path, text: str, tensors: dict[str, Tensor], formats: Sequence[int], advice: str
) -> dict[str, Any]:
    """What a file says, if it has a format that is known and nothing has changed since."""
    try:
        content: dict[str, Any] = json.loads(text)
        digest = content.pop("digest", None)
    except (ValueError, AttributeError):
        raise BoundFlowError(f"{path} is damaged: what it says of itself cannot be read") from None
    if content.get("format") not in formats:
        raise BoundFlowError(
            f"{path} was written by another version of boundflow and cannot be read by this one: {advice}"
        )
    if digest != _digest(content, tensors):
        raise BoundFlowError(f"{path} is damaged: its content is not what was written")
    return content


def _digest(content: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    names = sorted(tensors)
    said = json.dumps([content, names, fingerprint(*(tensors[name] for name in names))], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def fingerprint(*tensors: Tensor) -> str:
    """sha256 of some tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
