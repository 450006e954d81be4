"""Mutates valid files of every reader and reports what the readers do not refuse as they should.

    python tests/fuzz_readers.py --seconds 60 --seed 0

A reader may take a file or refuse it with its documented exception (a `Mistake`, or a `BoundFlowError` of the library).
Any other exception is a finding, and so is a file that takes too long. Certificates and checkpoints are mutated inside,
and their digest is computed again: otherwise the digest would refuse them all. The peak of memory is told at the end.
"""

import argparse
import contextlib
import gzip
import io
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from commands import people, run_main, write_csv
from forging import forged
from moons import moons
from mutations import forging, mutated, mutated_data

import boundflow as bf
from boundflow import certificate_files, checkpoint
from fullcert import options, runs, signing, step_log, tables, verifying
from fullcert.answering import encoding_of
from fullcert.datasets import cars, mnist
from fullcert.mistakes import Mistake

SLOW = 20.0  # seconds that no small file should take


@dataclass
class Findings:
    """What was tried, and what came out that should not have."""

    tried: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


# --- readers ----------------------------------------------------------------------------------------------------------


def training(**given: Any) -> bf.Certificate:
    """A small run, always the same."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    threat = bf.threats.AtMost(2, bf.threats.Linf(0.01))
    return bf.certify(model, moons(8, 0), threat=threat, loss="bce", epochs=3, order=2, **given)


def stop(step: bf.Step) -> None:
    if step.number == 2:
        raise KeyboardInterrupt


class Readers:
    """A valid file for every reader, and what reads it."""

    def __init__(self, folder: Path):
        self.folder = folder
        training().save(folder / "certificate")
        with contextlib.suppress(KeyboardInterrupt):
            training(checkpoint=folder / "checkpoint", callbacks=[stop])
        self.plain: dict[str, tuple[bytes, Callable[[Path], object]]] = {
            "table.csv": (b"x,y,word\n1,2.5,a\n-3,1e5,b\n,nan,c\n", tables.read),
            "table.npz": (self.of_arrays(compressed=False), tables.read),
            "packed.npz": (self.of_arrays(compressed=True), tables.read),
            "table.parquet": (tables.as_parquet({"x": [1.0, None], "word": ["a", "b"]}), tables.read),
            "options.toml": (options.as_toml(options.Options()).encode(), options.read_options),
            "metrics.json": (b'{"a": [1, 2.5, null, "x"], "b": {"c": {}}}', runs.read_json),
            "metrics.jsonl": (b'{"step": 1, "seconds": 0.1}\n{"step": 2, "seconds": 0.2}\n', step_log.read_steps),
            "columns.json": (self.columns(), encoding_of),
            "images.gz": (gzip.compress(b"\0\0\x08\x03" + bytes([0, 0, 0, 2] * 3) + bytes(8)), self.read_images),
            "cars.csv": (b"mpg," + ",".join(cars.FEATURES).encode() + b"\n1,2,3,4,5,6,7,8\n", cars.read_table),
            "key.pub": (self.key(), signing.public_key),
            "certificate": ((folder / "certificate").read_bytes(), bf.load),
            **self.of_run(),
        }

    def of_run(self) -> dict[str, tuple[bytes, Callable[[Path], object]]]:
        """The files of a run, each with the command that reads it; the command prints nothing here."""
        rows, run = write_csv(self.folder / "people.csv", people(30)), self.folder / "run"
        train = ("train", "--data", rows, "--target", "income", "--flip-labels", 1, "--steps", 2, "--out", run)
        commands: dict[str, tuple[object, ...]] = {
            "evaluation.json": ("report", run, "--out", "/dev/null"),
            "metrics.json": (*train, "--resume"),
            "columns.json": ("certify", run, rows),
        }

        def reader(name: str) -> Callable[[Path], object]:
            def read(path: Path) -> None:
                shutil.copy(path, run / name)
                try:
                    self.printed(commands[name])
                finally:
                    (run / name).write_bytes(whole[name])

            return read

        self.printed(train)
        whole = {name: (run / name).read_bytes() for name in commands}
        return {f"run {name}": (whole[name], reader(name)) for name in commands}

    @staticmethod
    def printed(command: tuple[object, ...]) -> None:
        """Run a command; the sentence of a mistake is raised."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = run_main(*command)
        if code:
            raise Mistake(said.getvalue().strip())

    @staticmethod
    def of_arrays(compressed: bool) -> bytes:
        file = io.BytesIO()
        arrays = {"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3, dtype=np.uint8), "w": np.array(["a", "bc", ""])}
        (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]
        return file.getvalue()

    @staticmethod
    def columns() -> bytes:
        number = {"kind": "number", "name": "x", "center": 0.0, "scale": 1.0, "source": "given"}
        target = {"name": "y", "classes": ["a", "b"], "center": 0.0, "scale": 1.0}
        return json.dumps({"columns": [number], "target": target}).encode()

    def key(self) -> bytes:
        return signing.make_key(self.folder / "key").read_bytes()

    @staticmethod
    def read_images(path: Path) -> object:
        return mnist.read_idx(path, "mnist")

    @staticmethod
    def answered(path: Path) -> object:
        """A certificate that is taken must answer, too."""
        certificate = bf.load(path)
        return certificate.predict(torch.ones(3, *certificate.record.get("input_shape", (2,))), epsilon=0.01)

    @staticmethod
    def resumed(path: Path) -> object:
        return training(checkpoint=path, resume=True)

    def once(self, pick: random.Random, found: Findings) -> None:
        """One mutated file for one reader."""
        name = pick.choice([*self.plain, "forged certificate", "forged certificate", "forged checkpoint"])
        path = self.folder / "mutated" / name.split()[-1]
        path.parent.mkdir(exist_ok=True)
        if name == "forged certificate":
            read: Callable[[Path], object] = pick.choice((self.answered, self.answered, verifying.of_certificate))
            made = self.forge("certificate", certificate_files.KEY, path, pick)
        elif name == "forged checkpoint":
            read, made = self.resumed, self.forge("checkpoint", checkpoint.KEY, path, pick)
        else:
            content, read = self.plain[name]
            if name.endswith("json") and pick.random() < 0.5:
                path.write_text(json.dumps(mutated_data(json.loads(content), pick)))
            else:
                path.write_bytes(mutated(content, pick))
            made = True
        if made:
            attempt(name, read, path, found)

    def forge(self, name: str, key: str, path: Path, pick: random.Random) -> bool:
        """Write a forged file; some forgeries cannot be written down."""
        try:
            forged(self.folder / name, key, forging(pick), path)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
            return False
        return True


def attempt(name: str, read: Callable[[Path], object], path: Path, found: Findings) -> None:
    """Read a file, and note what it should not have done."""
    found.tried[name] = found.tried.get(name, 0) + 1
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
        found.taken[name] = found.taken.get(name, 0) + 1
    except (Mistake, bf.BoundFlowError) as refusal:
        if "\n" in str(refusal):
            found.wrong.append(f"{name}: more than a line: {refusal!r}")
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = "" if place is None else f" at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
        found.wrong.append(f"{name}: {type(error).__name__}{where}: {str(error)[:200]}")
        with contextlib.suppress(OSError):
            path.rename(path.with_name(f"wrong-{len(found.wrong)}-{path.name}"))
    if time.monotonic() - began > SLOW:
        found.wrong.append(f"{name}: took {time.monotonic() - began:.0f} s")


def fuzz(folder: Path, seed: int, seconds: float, most: int | None = None) -> Findings:
    """Mutate files for so many seconds, or so many of them."""
    pick, readers, found = random.Random(seed), Readers(folder), Findings()
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until and (most is None or count < most):
        readers.once(pick, found)
        count += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    found = fuzz(folder, chosen.seed, chosen.seconds)
    for name in sorted(found.tried):
        print(f"{name:20} {found.tried[name]:7} tried, {found.taken.get(name, 0):7} taken")
    print(*found.wrong, sep="\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    count = sum(found.tried.values())
    print(f"{count} files, {len(found.wrong)} findings, peak memory {peak:,.0f} MiB, files in {folder}")
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
