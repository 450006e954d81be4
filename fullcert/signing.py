"""Signatures: who vouches for a run.

    signature = Ed25519(private key, "fullcert signature 1" + the sha256 of every file that the run's answers rest on)

A digest says that a file is as it was written, and anybody can compute one. A signature can only be made with the
private key; whoever has the public key, and knows whose it is, knows who has seen these very files. It does not say
that what they claim is true.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullcert import runs
from fullcert.mistakes import Mistake
from fullcert.unpacking import TEXT, content

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = 1
SIGNED = (runs.CERTIFICATE, runs.OPTIONS, runs.COLUMNS, runs.METRICS, runs.EVALUATION)  # those that a run has
BLOCK = 2**20


class NotSigned(Exception):
    """A signature that is missing or does not hold; the message is a sentence."""


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


def sign(run: Path, private: "Ed25519PrivateKey") -> Path:
    """Sign the files of a run; gives the path of the signature."""
    files = digests(run)
    signature = private.sign(message(files)).hex()
    said = {"format": FORMAT, "files": files, "public_key": _raw(private.public_key()), "signature": signature}
    runs.write(run / runs.SIGNATURE, runs.as_json(said).encode())
    return run / runs.SIGNATURE


def check(run: Path, key: Path) -> str:
    """Whose signature of a run holds, in a sentence; `NotSigned` says why it does not."""
    public = public_key(key)
    from cryptography.exceptions import InvalidSignature

    if not (run / runs.SIGNATURE).is_file():
        raise NotSigned(f"{run} is not signed: it has no {runs.SIGNATURE}")
    files, signature = _read(run / runs.SIGNATURE)
    try:
        public.verify(bytes.fromhex(signature), message(files))
    except (InvalidSignature, ValueError):
        raise NotSigned(f"the signature was not made with the key that belongs to {key}") from None
    found = digests(run)
    changed = sorted(name for name in {*files, *found} if files.get(name) != found.get(name))
    if changed:
        raise NotSigned(f"{', '.join(changed)} is not as it was signed")
    return f"signed by the key {_raw(public)[:16]} of {key}"


def _read(path: Path) -> tuple[dict[str, str], str]:
    """The digests that were signed, and the signature."""
    said = runs.read_json(path)
    files, signature = said.get("files"), said.get("signature")
    if said.get("format") == FORMAT and isinstance(files, dict) and isinstance(signature, str):
        if all(isinstance(digest, str) for digest in files.values()):
            return files, signature
    raise NotSigned(f"{path} is no signature of this version of fullcert")


def digests(run: Path) -> dict[str, str]:
    """The sha256 of every file of a run that is signed."""
    listed = f"{runs.MEMBERS}/{runs.LISTED}"
    members = [f"{runs.MEMBERS}/{path.name}" for path in runs.certificates(run) if path.parent.name == runs.MEMBERS]
    names = [*SIGNED, *([listed, *members] if members else [])]
    return {name: _sha256(run / name) for name in names if (run / name).is_file()}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise Mistake(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()


def message(files: dict[str, str]) -> bytes:
    """What is signed: never the bytes of anything else that the key may be used for."""
    return f"fullcert signature {FORMAT}\n{json.dumps(files, sort_keys=True)}\n".encode()


# --- keys -------------------------------------------------------------------------------------------------------------


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
        raise Mistake("signatures need cryptography, which is not here: pip install 'boundflow[sign]'") from None
    return serialization


def _raw(public: "Ed25519PublicKey") -> str:
    return public.public_bytes_raw().hex()
