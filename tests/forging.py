"""For tests of files: a copy of one with other content and the digest of that, as anybody can make it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from boundflow.files import certificate_files, sealed_files
from fullcert.experiment import identity, runs
from fullcert.experiment.options import read_options
from fullcert.results.beside import Beside

Record = dict[str, Any]
Tensors = dict[str, Tensor]
Forgery = Callable[[Record, Tensors], Any]  # changes the tensors, and changes the record or gives another


def taken_over(run: Path) -> None:
    """What stands beside the certificate of a run is about the one that is there now, as anybody can write it."""
    for path in run.glob("*.json"):
        said = json.loads(path.read_text())
        if "certificate" in said:
            path.write_text(json.dumps({**said, "certificate": Beside(run).identity}))


def forged(path: Path, key: str, forge: Forgery, target: Path) -> Path:
    """A forged copy of a certificate or checkpoint, whose digest is right."""
    tensors, text = sealed_files.read(path, key, "file")
    tensors, record = {name: value.clone() for name, value in tensors.items()}, json.loads(text)
    del record["digest"]
    record = forge(record, tensors) or record
    sealed_files.write(target, tensors, key, sealed_files.sealed(record, tensors))
    return target


def rebound(run: Path) -> None:
    """Let the certificate of a run name the options and columns that are in its folder now."""

    def named(record: Record, _: Tensors) -> None:
        said = record[identity.KEY]
        said[identity.OPTIONS] = identity.of_options(read_options(run / runs.OPTIONS))
        if (run / runs.COLUMNS).exists():
            said[identity.ENCODING] = identity.of_encoding(runs.read_json(run / runs.COLUMNS))

    path = run / runs.CERTIFICATE
    forged(path, certificate_files.KEY, named, path)
