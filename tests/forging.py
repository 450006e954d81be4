"""For tests of files: a copy of one with other content and the digest of that, as anybody can make it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from boundflow import files

Record = dict[str, Any]
Tensors = dict[str, Tensor]
Forgery = Callable[[Record, Tensors], Any]  # changes the tensors, and changes the record or gives another


def forged(path: Path, key: str, forge: Forgery, target: Path) -> Path:
    """A forged copy of a certificate or checkpoint, whose digest is right."""
    tensors, text = files.read(path, key, "file")
    tensors, record = {name: value.clone() for name, value in tensors.items()}, json.loads(text)
    del record["digest"]
    record = forge(record, tensors) or record
    files.write(target, tensors, key, files.sealed(record, tensors))
    return target
