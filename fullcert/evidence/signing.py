"""Signatures: who vouches for a run.

    signature = Ed25519(private key, "fullcert signature 2" + name, size and sha256 of every file in the folder)

A digest says that a file is as it was written, and anybody can compute one. A signature can only be made with the
private key; whoever has the public key, and knows whose it is, knows who has seen these very files and no others: one
that was added, changed or taken away afterwards is not covered (`manifest.py`). It does not say that what they claim is
true.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullcert.experiment import runs
from fullcert.results import manifest
from fullcert.results.beside import WRITERS
from fullcert.results.manifest import Differences, Entry
from fullcert.system import locks
from fullcert.system.mistakes import Mistake
from fullcert.system.unpacking import TEXT, content

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = 2
EARLIER = (1,)  # its signatures were made over some of the files
# the commands that write into the folder of a finished run, after which it is to be signed again
ADDERS = {
    **{name: WRITERS[name] for name in runs.BESIDE.values()},
    runs.REPORT: "fullcert report RUN",
}


class NotSigned(Exception):
    """A signature that is missing or does not hold; the message is a sentence."""


@dataclass(frozen=True)
class Signature:
    """What somebody has signed: every file of a run; and with which key, as 64 hexadecimal digits."""

    run: Path
    files: dict[str, Entry]
    public_key: str

    def differences(self) -> Differences:
        """How the run differs from what was signed."""
        return manifest.differences(self.run, self.files, without=(runs.SIGNATURE,))

    def covers(self, name: str, read: bytes) -> bool:
        """Whether what was read from a file is what was signed."""
        return self.files.get(name) == manifest.of_content(read)


def sign(run: Path, private: "Ed25519PrivateKey") -> Path:
    """Sign every file of a run, into which nobody writes meanwhile; gives the path of the signature."""
    lock = locks.Lock(run)
    try:
        files = manifest.of(run, without=(runs.SIGNATURE, locks.NAME))
        signature = private.sign(message(files)).hex()
        public = _raw(private.public_key())
        told = {name: entry._asdict() for name, entry in files.items()}
        said = {"format": FORMAT, "files": told, "public_key": public, "signature": signature}
        runs.write(run / runs.SIGNATURE, runs.as_json(said).encode())
    finally:
        lock.release()
    return run / runs.SIGNATURE


def check(run: Path, key: Path) -> Callable[[], str]:
    """Whose signature of a run holds, in a sentence, for what is read from now on until it is asked for.

    `NotSigned` says why it does not, or which files were written meanwhile.
    """
    signature = opened(run, key)
    with not_signed():
        before = manifest.marks(run)
        found = signature.differences()
    if found.names:
        raise NotSigned(f"{found} since it was signed{advice(found)}")

    def told() -> str:
        with not_signed():
            after = manifest.marks(run)
        written = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        if written:
            raise NotSigned(f"{manifest.listed(written)} was written while it was checked: check again")
        return f"all {len(signature.files):,} files signed by the key {signature.public_key[:16]} of {key}"

    return told


@contextmanager
def not_signed() -> Iterator[None]:
    """What cannot be read, or be signed, is not signed."""
    try:
        yield
    except Mistake as mistake:
        raise NotSigned(str(mistake)) from None


def advice(found: Differences) -> str:
    """What to do where commands of ours write such files."""
    if found.missing or not found.names <= ADDERS.keys():
        return ""
    writers = ", ".join(dict.fromkeys(ADDERS[name] for name in sorted(found.names)))
    return f"; if that was {writers}, asked for by you, sign again: fullcert sign RUN --key FILE"


def opened(run: Path, key: Path | None = None) -> Signature:
    """The signature of a run, made by the holder of a key; without one, by that of whatever key it names."""
    public = None if key is None else public_key(apart(run, key))
    files, signature, named = _read(run)
    if public is None:
        public = _named(named)
    elif named != _raw(public):
        raise NotSigned(f"the signature was not made with the key that belongs to {key}")
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(bytes.fromhex(signature), message(files))
    except (InvalidSignature, ValueError):
        raise NotSigned(f"{run / runs.SIGNATURE} does not hold: it was changed after it was made") from None
    return Signature(run, files, named)


def _read(run: Path) -> tuple[dict[str, Entry], str, str]:
    """The files that were signed, the signature, and the key it names."""
    path = run / runs.SIGNATURE
    if not path.is_file():
        raise NotSigned(f"{run} is not signed: it has no {runs.SIGNATURE}")
    with not_signed():
        said = runs.read_json(path)
    if said.get("format") in EARLIER:
        again = "fullcert sign RUN --key FILE signs all of them"
        raise NotSigned(f"{path} was made by an earlier version, which did not sign every file: {again}")
    files, signature, named = (said.get(name) for name in ("files", "signature", "public_key"))
    if said.get("format") != FORMAT or len(said) != 4 or not isinstance(signature, str) or not isinstance(named, str):
        raise NotSigned(f"{path} is no signature of this version of fullcert")
    try:
        return {name: _entry(**told) for name, told in dict(files).items()}, signature, named  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise NotSigned(f"{path} does not say which files were signed") from None


def _entry(bytes: Any, sha256: Any) -> Entry:
    if type(bytes) is not int or type(sha256) is not str:
        raise TypeError
    return Entry(bytes, sha256)


def message(files: dict[str, Entry]) -> bytes:
    """What is signed: never the bytes of anything else that the key may be used for."""
    return f"fullcert signature {FORMAT}\n{json.dumps(files, sort_keys=True)}\n".encode()


# --- keys -------------------------------------------------------------------------------------------------------------


def make_key(path: Path) -> Path:
    """A new private key, readable by its owner alone, and beside it the public one, whose path is returned."""
    serialization = _cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem, raw = serialization.Encoding.PEM, serialization.NoEncryption()
    public = path.with_name(path.name + ".pub")
    _write_new(path, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, raw), 0o600)
    _write_new(public, key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo), 0o644)
    return public


def _write_new(path: Path, text: bytes, mode: int) -> None:
    """Write a file that is not there: a key that was overwritten is lost."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(text)
    except FileExistsError:
        raise Mistake(f"{path} is there already, and keys are not overwritten") from None
    except OSError as error:
        raise Mistake(f"cannot write {path}: {error.strerror}") from None


def apart(run: Path, key: Path) -> Path:
    """A key that is not in the folder of a run: there, whoever has the run has the key, or can put another there."""
    if Path(os.path.realpath(key)).is_relative_to(os.path.realpath(run)):
        raise Mistake(
            f"{key} is in the folder that it is to vouch for: keep the key, and hand it over, apart from that folder"
        )
    return key


def private_key(path: Path) -> "Ed25519PrivateKey":
    key = _loaded(path, "private")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not isinstance(key, Ed25519PrivateKey):
        raise Mistake(f"{path} is not a private Ed25519 key: fullcert sign --new-key {path}.new makes one")
    return key


def public_key(path: Path) -> "Ed25519PublicKey":
    """The public key in a file, or that of the private one in it."""
    key = _loaded(path, "public")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    key = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    if not isinstance(key, Ed25519PublicKey):
        raise Mistake(f"{path} is not an Ed25519 key: give the .pub file that fullcert sign --new-key has written")
    return key


def _loaded(path: Path, kind: str) -> Any:
    """A key of any kind, from PEM; a private one where there is one."""
    serialization = _cryptography()
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm

    try:
        text = content(path, TEXT)
        if b"PRIVATE KEY" in text:
            return serialization.load_pem_private_key(text, password=None)
        return serialization.load_pem_public_key(text)
    except OSError as error:
        raise Mistake(f"cannot read the key {path}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):  # no key, damaged, or locked with a password
        raise Mistake(f"{path} holds no {kind} key without a password, in PEM") from None


def _cryptography() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError:
        raise Mistake("signatures need cryptography, which is not here: pip install cryptography") from None
    return serialization


def _named(public: str) -> "Ed25519PublicKey":
    """The key that a signature names itself."""
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    except ValueError:
        raise NotSigned("the signature names no key") from None


def _raw(public: "Ed25519PublicKey") -> str:
    return public.public_bytes_raw().hex()
