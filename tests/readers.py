"""Every reader of files, each with valid files and the ways they are changed: what `fuzz_readers.py` goes through.

A file is changed as bytes, as JSON, or inside: the arrays of an archive, the content of a gzipped file, and what a
certificate, checkpoint or member says, whose digest is computed again. Otherwise a checksum would refuse them all, and
nothing behind it would be tried.
"""

import contextlib
import gzip
import io
import json
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from commands import people, run_main, write_csv
from forging import forged
from moons import moons
from mutations import forging, mutated, mutated_data

import boundflow as bf
from boundflow.files import certificate_files, checkpoint
from fullcert.data import tables
from fullcert.data.datasets import adult, cars, cifar, magic, mnist, pneumonia
from fullcert.data.datasets.sources import reading
from fullcert.evidence import signing, verifying
from fullcert.experiment import options, runs
from fullcert.results import step_log
from fullcert.results.answering import encoding_of
from fullcert.sweeps import swept_runs
from fullcert.system import locks
from fullcert.system.mistakes import Mistake

Read = Callable[[Path], object]
Change = Callable[[bytes, random.Random], bytes]


class Unwritable(Exception):
    """A change that cannot be written down."""


class File(NamedTuple):
    """A valid file, what reads it, and how it is changed."""

    name: str  # its ending says how it is read
    valid: bytes
    read: Read
    change: Change = mutated


# --- changes ----------------------------------------------------------------------------------------------------------


def mutated_json(valid: bytes, pick: random.Random) -> bytes:
    """JSON with other bytes, or with other values."""
    if pick.random() < 0.5:
        return mutated(valid, pick)
    return json.dumps(mutated_data(json.loads(valid), pick)).encode()


def inside_zip(valid: bytes, pick: random.Random) -> bytes:
    """An archive with one member changed, and the checksum of that; now and then a member is twice there."""
    with zipfile.ZipFile(io.BytesIO(valid)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, file = pick.choice(sorted(members)), io.BytesIO()
    members[name] = mutated(members[name], pick)
    with zipfile.ZipFile(file, "w", pick.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, content in members.items():
            archive.writestr(f"{pick.choice(('a', ''))}{member}" if pick.random() < 0.05 else member, content)
    return file.getvalue()


def inside_gzip(valid: bytes, pick: random.Random) -> bytes:
    return gzip.compress(mutated(gzip.decompress(valid), pick), 1)


def resealed(folder: Path, key: str) -> Change:
    """Files with tensors and a record, changed inside, with the digest of that."""

    def change(valid: bytes, pick: random.Random) -> bytes:
        whole, target = folder / "whole", folder / "forged"
        whole.write_bytes(valid)
        try:
            return forged(whole, key, forging(pick), target).read_bytes()
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            raise Unwritable from error

    return change


def either(*changes: Change) -> Change:
    return lambda valid, pick: pick.choice(changes)(valid, pick)


# --- valid files ------------------------------------------------------------------------------------------------------


def training(**given: Any) -> bf.Certificate:
    """A small run, always the same."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    threat = bf.threats.AtMost(2, bf.threats.Linf(0.01))
    return bf.certify(model, moons(8, 0), threat=threat, loss="bce", epochs=3, order=2, **given)


def stop(step: bf.Step) -> None:
    if step.number == 2:
        raise KeyboardInterrupt


def zipped(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def printed(*command: object) -> None:
    """Run a command; the sentence of a mistake is raised."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = run_main(*command, "--quiet")
    if code:
        raise Mistake(said.getvalue().strip())


def instead(place: Path, *command: object) -> Read:
    """Runs a command with the file in this place, and puts back what was there."""
    whole = place.read_bytes() if place.exists() else None

    def read(path: Path) -> None:
        shutil.copy(path, place)
        try:
            printed(*command)
        finally:
            if whole is None:
                place.unlink(missing_ok=True)
            else:
                place.write_bytes(whole)

    return read


class Readers:
    """The readers by name; what a reader needs is made when it is asked for."""

    def __init__(self, folder: Path):
        self.folder = folder

    def files(self, name: str) -> list[File]:
        """The files of one reader."""
        return list(getattr(self, name)())

    # runs that files belong to

    @cached_property
    def rows(self) -> Path:
        return write_csv(self.folder / "people.csv", people(30))

    def few_rows(self, count: int) -> bytes:
        return b"".join(self.rows.read_bytes().splitlines(keepends=True)[: count + 1])

    @cached_property
    def run(self) -> Path:
        """A run with everything beside it: an attack, an audit, a signature."""
        out = self.folder / "run"
        printed("train", "--data", self.rows, "--target", "income", "--flip-labels", 1, "--steps", 2, "--out", out)
        printed("attack", out, "--attacks", "influence", "--targets", 1)
        printed("audit", out, "--report")
        signing.sign(out, signing.private_key(self.key))
        return out

    @cached_property
    def vote(self) -> Path:
        out = self.folder / "vote"
        printed(*("train", "--dataset", "iris", "--flip-labels", 1, "--members", 2, "--steps", 1, "--out", out))
        return out

    @cached_property
    def key(self) -> Path:
        signing.make_key(self.folder / "key")
        return self.folder / "key"

    @property
    def public_key(self) -> Path:
        return self.key.with_name("key.pub")

    @cached_property
    def certificate(self) -> bytes:
        training().save(self.folder / "certificate")
        return (self.folder / "certificate").read_bytes()

    @cached_property
    def swept(self) -> tuple[tuple[object, ...], Path]:
        """A sweep, and the folder of one of its runs."""
        out = self.folder / "sweep"
        command = ("sweep", "--dataset", "iris", "--steps", 1, "--flips", "1,2", "--on", "processes", "--out", out)
        printed(*command)
        return command, min((out / "runs").iterdir())

    # readers

    def csv(self) -> Iterator[File]:
        yield File("table.csv", b"x,y,word\n1,2.5,a\n-3,1e5,b\n,nan,c\n", tables.read)
        yield File("dialect.csv", "größe;y;tag\n1,5;2.000,5;1.2.2024\n;3;31.12.1999\n".encode("latin-1"), inspected)
        yield File("asked.csv", self.few_rows(3), inspected)
        yield File("answered.csv", self.few_rows(8), partial(self.of_run, "certify"))

    def of_run(self, command: str, path: Path) -> None:
        printed(command, self.run, path)

    def npz(self) -> Iterator[File]:
        arrays = {"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3, dtype=np.uint8), "w": np.array(["a", "bc", ""])}
        change = either(mutated, inside_zip, inside_zip)
        yield File("table.npz", zipped(**arrays), tables.read, change)
        yield File("images.npz", zipped(images=np.zeros((3, 2, 2), np.uint8), y=np.arange(3)), tables.read, change)

    def parquet(self) -> Iterator[File]:
        import pyarrow
        from pyarrow import parquet

        columns = {"x": [1.0, None], "word": ["a", "b"], "n": [1, 2], "at": np.array([0, 1], "datetime64[s]")}
        for compression in ("none", "snappy", "gzip"):
            file = io.BytesIO()
            parquet.write_table(pyarrow.table(columns), file, compression=compression)
            yield File("table.parquet", file.getvalue(), tables.read)

    def toml(self) -> Iterator[File]:
        yield File("options.toml", options.as_toml(options.Options()).encode(), options.read_options)
        yield File("few.toml", b'data = "a.csv"\ntarget = "y"\nlr = 0.1\ntolerance = ["x=1"]\n', self.resolved)

    @staticmethod
    def resolved(path: Path) -> object:
        return options.resolve({}, options.read_options(path))

    def json(self) -> Iterator[File]:
        """The files of a run, each with what reads it."""
        run = self.run
        train = ("train", "--data", self.rows, "--target", "income", "--flip-labels", 1, "--steps", 2, "--out", run)
        commands = {
            runs.METRICS: (*train, "--resume"),
            runs.COLUMNS: ("certify", run, self.rows),
            **dict.fromkeys((runs.EVALUATION, runs.ATTACK, runs.AUDIT), ("report", run, "--out", "/dev/null")),
        }
        for name, command in commands.items():
            yield File(name, (run / name).read_bytes(), instead(run / name, *command), mutated_json)
        drawn = instead(self.vote / runs.CURVE, "report", self.vote, "--out", "/dev/null")
        yield File(runs.CURVE, (self.vote / runs.CURVE).read_bytes(), drawn, mutated_json)
        yield File("any.json", b'{"a": [1, 2.5, null, "x"], "b": {"c": {}}}', runs.read_json, mutated_json)
        yield File("columns.json", self.columns(), encoding_of, mutated_json)
        lines = b'{"step": 1, "seconds": 0.1}\n{"step": 2, "seconds": 0.2}\n'
        yield File("metrics.jsonl", lines, step_log.read_steps)

    @staticmethod
    def columns() -> bytes:
        number = {"kind": "number", "name": "x", "center": 0.0, "scale": 1.0, "source": "given"}
        target = {"name": "y", "classes": ["a", "b"], "center": 0.0, "scale": 1.0}
        return json.dumps({"columns": [number], "target": target}).encode()

    def datasets(self) -> Iterator[File]:
        images = b"\0\0\x08\x03" + bytes([0, 0, 0, 2] * 3) + bytes(8)
        read_idx = partial(mnist.read_idx, dataset="mnist")
        yield File("images.gz", gzip.compress(images), read_idx, either(mutated, inside_gzip))
        rows = b"mpg," + ",".join(cars.FEATURES).encode() + b"\n" + b"1,2,3,?,5,6,7,8\n" * cars.ROWS
        yield File("cars.csv", rows, cars.read_table)
        yield File("adult.data", b"|x\n39, a,1,b,2,c,d,e,f,g,0,0,40,h, <=50K.\n" * 2, partial(adult.read_table, rows=2))
        showers = b"1,2,3,4,5,6,7,8,9,10,g\n1,2,3,4,5,6,7,8,9,10,h\n" * (magic.ROWS // 2)
        yield File("magic.gz", gzip.compress(showers), magic.read_table, either(mutated, inside_gzip))
        yield File("cifar.tar.gz", self.of_cifar(), self.read_cifar, either(mutated, inside_gzip))
        yield File("pneumonia.npz", self.of_pneumonia(), self.read_pneumonia, either(mutated, inside_zip))

    @staticmethod
    def of_cifar() -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name in (*cifar.TRAIN, cifar.TEST):
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.size = cifar.RECORD
                archive.addfile(member, io.BytesIO(bytes(cifar.RECORD)))
        return file.getvalue()

    @staticmethod
    def read_cifar(path: Path) -> object:
        with reading(path, "cifar-10"):
            found = cifar.read_batches(path)
            return cifar.images(np.concatenate([found[name] for name in cifar.TRAIN])), cifar.images(found[cifar.TEST])

    @staticmethod
    def of_pneumonia() -> bytes:
        parts = {f"{part}_images": np.zeros((2, 28, 28), np.uint8) for part in ("train", "val", "test")}
        return zipped(**parts, **{f"{part}_labels": np.zeros((2, 1), np.uint8) for part in ("train", "val", "test")})

    def read_pneumonia(self, path: Path) -> object:
        return pneumonia.read_splits(path)

    def signatures(self) -> Iterator[File]:
        verify = ("verify", self.run, "--key", self.public_key)
        signature = self.run / runs.SIGNATURE
        for command in (verify, ("report", self.run, "--out", "/dev/null")):
            yield File(signature.name, signature.read_bytes(), instead(signature, *command), mutated_json)
        yield File("key.pub", self.public_key.read_bytes(), signing.public_key)
        yield File("key", self.key.read_bytes(), signing.private_key)

    def certificates(self) -> Iterator[File]:
        forged = resealed(self.folder, certificate_files.KEY)
        yield File("certificate", self.certificate, bf.load)
        yield File("answering", self.certificate, answered, forged)
        yield File("asked", self.certificate, verifying.of_certificate, forged)
        place = self.run / runs.CERTIFICATE
        for command in (("certify", self.run, self.rows), ("certify", self.run, "--withstands"), ("audit", self.run)):
            yield File(place.name, place.read_bytes(), instead(place, *command), forged)

    def checkpoints(self) -> Iterator[File]:
        with contextlib.suppress(KeyboardInterrupt):
            training(checkpoint=self.folder / "checkpoint", callbacks=[stop])
        valid = (self.folder / "checkpoint").read_bytes()
        yield File("checkpoint", valid, resumed)
        yield File("forged", valid, resumed, resealed(self.folder, checkpoint.KEY))

    def ensembles(self) -> Iterator[File]:
        members = self.vote / runs.MEMBERS
        listed, member = members / runs.LISTED, min(members.glob("member-*"))
        certify = ("certify", self.vote, "--withstands")
        for command in (certify, ("verify", self.vote)):
            yield File(listed.name, listed.read_bytes(), instead(listed, *command), mutated_json)
            forged = resealed(self.folder, certificate_files.KEY)
            yield File(member.name, member.read_bytes(), instead(member, *command), forged)

    def audits(self) -> Iterator[File]:
        """Rows that were checked, and rows that are asked about."""
        yield File("verified.csv", b"line,age,hours\n3,40,\n7,,12\n", self.verified)
        yield File("sample.csv", b"sample\n3\n7\n0\n", self.verified)
        yield File("rows.csv", self.few_rows(5), partial(self.of_run, "audit"))

    def verified(self, path: Path) -> None:
        printed("audit", self.run, "--verified", path)

    def sweeps(self) -> Iterator[File]:
        """What an earlier sweep has left behind."""
        command, run = self.swept
        for name in (runs.METRICS, runs.OPTIONS, runs.EVALUATION):
            change = mutated if name == runs.OPTIONS else mutated_json
            yield File(name, (run / name).read_bytes(), instead(run / name, *command), change)
        yield File(locks.NAME, b"999999999 elsewhere\n", self.awaited)

    def awaited(self, path: Path) -> None:
        shutil.copy(path, self.folder / locks.NAME)
        swept_runs.awaited(self.folder)


def inspected(path: Path) -> None:
    printed("inspect", path, "--overwrite", "--out", path.with_suffix(".toml"))


def answered(path: Path) -> object:
    """A certificate that is taken must answer, too."""
    certificate = bf.load(path)
    return certificate.predict(torch.ones(3, *certificate.record.get("input_shape", (2,))), epsilon=0.01)


def resumed(path: Path) -> object:
    return training(checkpoint=path, resume=True)


NAMES = (
    *("csv", "npz", "parquet", "toml", "json", "datasets", "signatures"),
    *("certificates", "checkpoints", "ensembles", "audits", "sweeps"),
)
