"""`fullcert sign` and `fullcert verify`: who vouches for a run, and what holds of it."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Command, as_nobody, run_main, sentence
from forging import forged, taken_over

from boundflow.files import certificate_files
from fullcert.evidence import signing, verifying
from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake

REST = '"public_key": "", "signature": ""}'
NONE = {
    "a list": "[]",
    "nothing": "{}",
    "no table of files": '{"format": 2, "files": [7], ' + REST,
    "lists within lists": "[" * 100_000,
    "no digest": '{"format": 2, "files": {"x": ' + "[" * 900 + "]" * 900 + "}, " + REST,
    "no JSON": "x",
}
NAMES = ["format", "digest", "content", "network", "parts", "results", "signature"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and two keys."""
    folder = tmp_path_factory.mktemp("signing")
    assert run_main("train", "--steps", "2", "--hidden", "3", "--quiet", "--out", folder / "run") == 0
    for name in ("mine", "other"):
        assert run_main("sign", "--new-key", folder / name, "--quiet") == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run, to sign and to change."""
    return Path(shutil.copytree(finished / "run", tmp_path / "run"))


def results(command: Command, *arguments: object) -> dict[str, str]:
    """What came of every check."""
    said = json.loads(command("verify", *arguments, "--quiet", "--json", "-").out)
    found = {check["check"]: check["result"] for check in said["checks"]}
    assert list(found) == NAMES and said["held"] == ("failed" not in found.values())
    return found


def test_a_signed_run(command: Command, finished: Path, run: Path) -> None:
    assert command("verify", run).code == 0
    assert results(command, run) == {**dict.fromkeys(NAMES, "held"), "signature": "not done"}
    assert command("sign", run, "--key", finished / "mine").out == f"signature: {run / 'signature.json'}\n"
    for key in ("mine.pub", "mine"):
        assert results(command, run, "--key", finished / key) == dict.fromkeys(NAMES, "held")
        assert command("verify", run, "--key", finished / key, "--quiet") == (0, "", "")
    shown = command("verify", run)
    assert shown.code == 0 and "held" in shown.out and "not done" in shown.out


def test_a_signature_of_somebody_else(command: Command, finished: Path, run: Path) -> None:
    assert "is not signed" in sentence(command("verify", run, "--key", finished / "mine.pub", "--quiet"))
    assert command("sign", run, "--key", finished / "other", "--quiet") == (0, "", "")
    said = sentence(command("verify", run, "--key", finished / "mine.pub", "--quiet"))
    assert "was not made with the key" in said
    assert results(command, run, "--key", finished / "mine.pub")["signature"] == "failed"


def why_not(run: Path, key: Path) -> str:
    """Why a signature does not hold."""
    with pytest.raises(signing.NotSigned) as refused:
        signing.check(run, key)()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def of(run: Path) -> dict[str, bytes]:
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in run.rglob("*") if path.is_file()}


CHANGES: dict[str, Callable[[Path, bytes], object]] = {
    "longer": lambda path, whole: path.write_bytes(whole + b"\n"),
    "shorter": lambda path, whole: path.write_bytes(whole[:-1]),
    "empty": lambda path, whole: path.write_bytes(b""),
    "one bit": lambda path, whole: path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1])),
    "gone": lambda path, whole: path.unlink(),
    "renamed": lambda path, whole: path.rename(path.with_name(path.name.upper())),
    "a link to a copy": lambda path, whole: path.symlink_to(path.rename(path.parents[1] / "kept")),
    "a folder": lambda path, whole: (path.unlink(), path.mkdir(), (path / path.name).write_bytes(whole)),
    "a pipe": lambda path, whole: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_file_of_a_run_is_signed(finished: Path, run: Path, change: str) -> None:
    """Whichever file changed, however, verify names it; and with what was there it holds again."""
    (run / "more").mkdir()
    (run / "more" / ".hidden").write_text("of the run, too")
    signing.sign(run, signing.private_key(finished / "mine"))
    files = of(run)
    assert len(files) == 10 and {"report.html", "barriers.svg", "metrics.jsonl", "more/.hidden"} < files.keys()
    for name, whole in files.items():
        if name != "signature.json":
            CHANGES[change](run / name, whole)
            assert name in why_not(run, finished / "mine.pub")
            shutil.rmtree(run)
            restored(run, files)
            signing.check(run, finished / "mine.pub")()


def restored(run: Path, files: dict[str, bytes]) -> None:
    for name, whole in files.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(whole)


ADDED = (
    *("curve.json", "attack.json", "audit.json", "violation.npz", "columns.json", "checkpoint.safetensors"),
    *(".lock", ".evaluation.json.x1y2", "signature.json.old", "members/ensemble.json", "a/b/c/d", "Signature.json"),
    *("ev\u0430luation.json", "evaluation.json ", "line\nbreak", "\udcff\udcfe", "\u202ejson.evruc", "x" * 250),
)


@pytest.mark.parametrize("name", ADDED)
def test_an_added_file_is_not_signed(finished: Path, run: Path, name: str) -> None:
    """Also one whose name looks like that of another, or is no text: the sentence shows it in plain letters."""
    signing.sign(run, signing.private_key(finished / "mine"))
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text("{}")
    said = why_not(run, finished / "mine.pub")
    assert "was added since it was signed" in said and said.isascii() and said.isprintable()
    assert ("sign again" in said) == (name in ("curve.json", "attack.json", "audit.json"))


def test_a_forged_curve_neither_verifies_nor_is_taken_for_signed(command: Command, finished: Path, run: Path) -> None:
    command("sign", run, "--key", finished / "mine")
    point = {"value": 100000, "certified_accuracy": 1.0, "certified_robustness": 1.0}
    curve = {"unit": "k", "nominal_accuracy": 1.0, "samples": 500, "points": [{**point, "value": 0}, point]}
    (run / "curve.json").write_text(json.dumps(curve))
    assert "curve.json" in sentence(command("verify", run, "--key", finished / "mine.pub", "--quiet"))
    said = why_not(run, finished / "mine.pub")
    assert "curve.json was added since it was signed; if that was fullcert certify RUN --withstands" in said


def test_a_run_that_a_command_has_added_to_is_signed_again(command: Command, finished: Path, run: Path) -> None:
    """Nothing that is left away stays signed, and a name that comes back with other content is not as it was."""
    key = finished / "mine.pub"
    shutil.copy(run / "report.html", run / "other.html")
    command("sign", run, "--key", finished / "mine")
    (run / "report.html").write_text("another page")
    assert "report.html was changed since it was signed; if that was fullcert report RUN" in why_not(run, key)
    shutil.move(run / "other.html", run / "report.html")
    assert why_not(run, key) == "other.html was taken away since it was signed"
    command("sign", run, "--key", finished / "mine")
    assert results(command, run, "--key", key)["signature"] == "held"
    (run / "curve.json").write_text("{}")
    (run / "metrics.json").unlink()
    assert why_not(run, key) == "curve.json was added, metrics.json was taken away since it was signed"


def test_folders_of_many_files_and_empty_ones(finished: Path, run: Path) -> None:
    for number in range(300):
        (run / f"{number}").write_text("x")
    (run / "empty" / "within").mkdir(parents=True)
    signing.sign(run, signing.private_key(finished / "mine"))
    shutil.rmtree(run / "empty")  # nothing can be read from it
    assert "all 308 files" in signing.check(run, finished / "mine.pub")()
    for number in range(300):
        (run / f"{number}").unlink()
    assert "and 295 more was taken away" in why_not(run, finished / "mine.pub")


def test_a_file_that_became_larger_is_not_read(finished: Path, run: Path) -> None:
    signing.sign(run, signing.private_key(finished / "mine"))
    os.truncate(run / "metrics.jsonl", 2**40)  # would take an hour to read
    with (run / "new").open("wb") as file:
        file.truncate(2**40)
    assert why_not(run, finished / "mine.pub") == "new was added, metrics.jsonl was changed since it was signed"


@pytest.mark.parametrize("make", [Path.symlink_to, lambda path, target: os.mkfifo(path)], ids=["link", "pipe"])
def test_what_is_no_file_is_not_signed(command: Command, finished: Path, run: Path, make: Any) -> None:
    """A link to a file elsewhere would be signed today and be another one tomorrow."""
    make(run / "extra", finished / "mine.pub")
    assert "extra in" in sentence(command("sign", run, "--key", finished / "mine"))
    assert not (run / "signature.json").exists() and not (run / ".lock").exists()
    link = run.with_name("link")
    (run / "extra").unlink()
    link.symlink_to(run)  # the folder itself may be one
    assert command("sign", link, "--key", finished / "mine", "--quiet") == (0, "", "")
    assert results(command, run, "--key", finished / "mine.pub")["signature"] == "held"


def test_a_file_that_cannot_be_read(finished: Path, run: Path) -> None:
    signing.sign(run, signing.private_key(finished / "mine"))
    os.chmod(run / "metrics.json", 0)
    said = as_nobody("verify", run, "--key", finished / "mine.pub", "--quiet")
    assert said.code == 2 and "Permission denied" in said.err and len(said.err.splitlines()) == 1


def test_a_run_that_is_written_is_not_signed(command: Command, finished: Path, run: Path) -> None:
    with runs.begun(run):
        assert "is writing a run into" in sentence(command("sign", run, "--key", finished / "mine"))
    assert command("sign", run, "--key", finished / "mine").code == 0


def test_what_was_read_is_what_was_signed(finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is another one only while it is checked, and is put back, is noticed."""
    signing.sign(run, signing.private_key(finished / "mine"))
    path, real = run / "certificate.safetensors", verifying.of_certificate
    put_back = (lambda kept: kept.rename(path), lambda kept: path.write_bytes(kept.read_bytes()))
    for back in put_back:

        def swapped(file: Path, back: Any = back) -> list[verifying.Check]:
            kept = path.rename(run.parent / "kept")
            shutil.copy(kept, path)
            found = real(file)
            back(kept)
            return found

        monkeypatch.setattr(verifying, "of_certificate", swapped)
        *_, last = verifying.checks(run, finished / "mine.pub")
        assert last.result == "failed" and "certificate.safetensors was written while it was checked" in last.detail
        monkeypatch.setattr(verifying, "of_certificate", real)
        assert verifying.checks(run, finished / "mine.pub")[-1].result == "held"


def test_a_signature_of_an_earlier_version(command: Command, finished: Path, run: Path) -> None:
    """It did not list every file, so what it covers is not said at all."""
    private = signing.private_key(finished / "mine")
    names = ("certificate.safetensors", "options.toml", "metrics.json", "evaluation.json")
    files = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
    signature = private.sign(f"fullcert signature 1\n{json.dumps(files, sort_keys=True)}\n".encode()).hex()
    public = private.public_key().public_bytes_raw().hex()
    said = {"format": 1, "files": files, "public_key": public, "signature": signature}
    (run / "signature.json").write_text(json.dumps(said))
    refused = sentence(command("verify", run, "--key", finished / "mine.pub", "--quiet"))
    assert "did not sign every file: fullcert sign RUN --key FILE signs all of them" in refused
    assert "no signature of this version" in why_not(with_said(run, format=3), finished / "mine.pub")


def with_said(run: Path, **changes: Any) -> Path:
    """The run with other words in its signature."""
    path = run / "signature.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return run


def test_nothing_in_a_signature_is_unsigned(finished: Path, run: Path) -> None:
    """Whatever is changed in the file, the signature does not hold, or it was not changed."""
    signing.sign(run, signing.private_key(finished / "mine"))
    whole, key = (run / "signature.json").read_text(), finished / "mine.pub"
    said = json.loads(whole)
    other = (finished / "other.pub").read_bytes()
    for name, entry in said["files"].items():
        for field, value in (("bytes", 1), ("bytes", float(entry["bytes"])), ("sha256", "0" * 64), ("more", 1)):
            why_not(with_said(run, files={**said["files"], name: {**entry, field: value}}), key)
        why_not(with_said(run, files={kept: value for kept, value in said["files"].items() if kept != name}), key)
    changes = ({"public_key": signing._raw(signing.public_key(finished / "other"))}, {"note": "trust me"})
    for change in (*changes, {"public_key": "00"}, {"public_key": None}, {"signature": ""}, {"signature": 1}):
        (run / "signature.json").write_text(whole)
        why_not(with_said(run, **change), key)
    (run / "signature.json").write_text(whole)
    assert other and signing.check(run, key)()


def test_keys_beside_what_they_vouch_for(command: Command, finished: Path, run: Path) -> None:
    """A public key in the folder of the run could be anybody's, and a private one would be sent with it."""
    for name in ("mine", "mine.pub"):
        shutil.copy(finished / name, run / name)
    for words in (("sign", run, "--key", run / "mine"), ("verify", run, "--key", run / "mine.pub")):
        assert "in the folder that it is to vouch for" in sentence(command(*words))
    link = finished / "link"
    link.symlink_to(run / "mine.pub")
    assert "in the folder that it is to vouch for" in sentence(command("verify", run, "--key", link))


def test_a_key_with_a_password(finished: Path, run: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as kinds

    pem, locked = kinds.Encoding.PEM, kinds.BestAvailableEncryption(b"secret")
    private = signing.private_key(finished / "mine").private_bytes(pem, kinds.PrivateFormat.PKCS8, locked)
    (tmp_path / "locked").write_bytes(private)
    with pytest.raises(Mistake, match="holds no private key without a password"):
        signing.private_key(tmp_path / "locked")


def test_a_certificate_with_a_digest_of_its_own_does_not_have_the_signature(
    command: Command, finished: Path, run: Path
) -> None:
    """Wider claims with the right digest: content and digest hold, and the signature tells."""
    command("sign", run, "--key", finished / "mine")
    path = run / "certificate.safetensors"

    def less(record: dict, tensors: dict) -> None:
        record["threat"] = "Linf(1000.0)"

    forged(path, certificate_files.KEY, less, path)
    assert results(command, run)["results"] == "failed"  # what stands beside it is about another one
    taken_over(run)
    metrics = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps({**metrics, "threat": "Linf(1000.0)"}))
    assert results(command, run) == {**dict.fromkeys(NAMES, "held"), "signature": "not done"}
    found = results(command, run, "--key", finished / "mine.pub")
    assert found == {**dict.fromkeys(NAMES, "held"), "signature": "failed"}


def test_checks_that_rest_on_one_that_failed_are_not_done(command: Command, finished: Path, run: Path) -> None:
    path = run / "certificate.safetensors"
    forged(path, certificate_files.KEY, lambda r, t: t.update({"bounds.0.bias": t["bounds.0.bias"].flip(0)}), path)
    assert list(results(command, run).values()) == ["held", "held", "failed", *["not done"] * 4]
    assert "above its upper bound" in sentence(command("sign", run, "--key", finished / "mine"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert list(results(command, run).values()) == ["held", "failed", *["not done"] * 5]
    path.write_bytes(content[:-30])
    assert list(results(command, run).values()) == ["failed", *["not done"] * 6]
    assert not (run / "signature.json").exists()


def test_a_network_of_the_user_is_not_run(command: Command, tmp_path: Path) -> None:
    source = "from torch import nn\n\n\nclass Mine(nn.Sequential):\n    pass\n\n\ndef make(features, outputs):\n"
    (tmp_path / "net.py").write_text(source + "    return Mine(nn.Linear(features, outputs))\n")
    out = tmp_path / "run"
    assert run_main("train", "--model", f"{tmp_path / 'net.py'}:make", "--steps", "2", "--quiet", "--out", out) == 0
    (tmp_path / "net.py").write_text("raise SystemExit('it was run')\n")
    assert results(command, out) == {**dict.fromkeys(NAMES, "held"), "network": "not done", "signature": "not done"}


@pytest.mark.parametrize("name", NONE)
def test_signatures_that_are_none(command: Command, finished: Path, run: Path, name: str) -> None:
    (run / "signature.json").write_text(NONE[name])
    sentence(command("verify", run, "--key", finished / "mine.pub", "--quiet"))


def test_a_signature_that_is_no_hexadecimal_number(command: Command, finished: Path, run: Path) -> None:
    command("sign", run, "--key", finished / "mine")
    said = json.loads((run / "signature.json").read_text())
    (run / "signature.json").write_text(json.dumps({**said, "signature": "ü" + said["signature"][1:]}))
    assert results(command, run, "--key", finished / "mine.pub")["signature"] == "failed"


def test_keys(command: Command, finished: Path, run: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE((finished / "mine").stat().st_mode) == 0o600
    assert "not overwritten" in sentence(command("sign", "--new-key", finished / "mine"))
    assert "signs nothing" in sentence(command("sign", run, "--new-key", tmp_path / "key"))
    assert "give the run and the key" in sentence(command("sign", run))
    assert "No such file" in sentence(command("sign", "--new-key", tmp_path / "absent" / "key"))
    assert "not a private Ed25519 key" in sentence(command("sign", run, "--key", finished / "mine.pub"))
    (tmp_path / "key").write_bytes(b"\xff no key")
    assert "holds no private key" in sentence(command("sign", run, "--key", tmp_path / "key"))
    assert "holds no public key" in sentence(command("verify", run, "--key", tmp_path / "key"))
    assert "cannot read the key" in sentence(command("verify", run, "--key", tmp_path / "absent"))
    assert not (run / "signature.json").exists()


def test_a_key_that_openssl_trips_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some damaged keys are an error of OpenSSL that cryptography has no name for."""
    exceptions = pytest.importorskip("cryptography.exceptions")
    from cryptography.hazmat.primitives import serialization

    def trips(*given: object, **options: object) -> None:
        raise exceptions.InternalError("unknown", [])

    monkeypatch.setattr(serialization, "load_pem_private_key", trips)
    (tmp_path / "key").write_bytes(b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(Mistake, match="holds no private key"):
        signing.private_key(tmp_path / "key")


def test_a_new_run_is_not_signed_by_the_old_signature(command: Command, finished: Path, run: Path) -> None:
    command("sign", run, "--key", finished / "mine")
    assert command("train", "--steps", "1", "--hidden", "3", "--quiet", "--out", run, "--overwrite").code == 0
    assert not (run / "signature.json").exists()


def test_signatures_need_cryptography(run: Path) -> None:
    script = "import sys; sys.modules['cryptography'] = None; from fullcert.cli.command import main; main()"
    arguments = [sys.executable, "-c", script, "verify", str(run)]
    assert subprocess.run([*arguments, "--quiet"], capture_output=True).returncode == 0
    key = run.with_name("key")
    key.touch()
    result = subprocess.run([*arguments, "--key", str(key)], capture_output=True, text=True)
    assert result.returncode == 2 and "pip install cryptography" in result.stderr
