"""`fullcert sign` and `fullcert verify`: who vouches for a run, and what holds of it."""

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command, run_main, sentence
from forging import forged

from boundflow import certificate_files
from fullcert import signing
from fullcert.mistakes import Mistake

NONE = {
    "a list": "[]",
    "nothing": "{}",
    "no table of files": '{"format": 1, "files": [], "signature": ""}',
    "lists within lists": "[" * 100_000,
    "no digest": '{"format": 1, "files": {"x": ' + "[" * 900 + "]" * 900 + '}, "signature": ""}',
    "no JSON": "x",
}
NAMES = ["format", "digest", "content", "network", "signature"]


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


def test_files_that_changed_after_they_were_signed(command: Command, finished: Path, run: Path) -> None:
    command("sign", run, "--key", finished / "mine")
    key = finished / "mine.pub"
    for name in ("options.toml", "evaluation.json", "metrics.json"):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole + b"\n")
        assert f"{name} is not as it was signed" in sentence(command("verify", run, "--key", key, "--quiet"))
        (run / name).unlink()
        assert f"{name} is not as it was signed" in sentence(command("verify", run, "--key", key, "--quiet"))
        (run / name).write_bytes(whole)
    (run / "columns.json").write_text("{}")
    assert "columns.json is not as it was signed" in sentence(command("verify", run, "--key", key, "--quiet"))


def test_a_certificate_with_a_digest_of_its_own_does_not_have_the_signature(
    command: Command, finished: Path, run: Path
) -> None:
    """Wider claims with the right digest: content and digest hold, and the signature tells."""
    command("sign", run, "--key", finished / "mine")
    path = run / "certificate.safetensors"

    def less(record: dict, tensors: dict) -> None:
        record["threat"] = "Linf(1000.0)"

    forged(path, certificate_files.KEY, less, path)
    assert results(command, run) == {**dict.fromkeys(NAMES, "held"), "signature": "not done"}
    found = results(command, run, "--key", finished / "mine.pub")
    assert found == {**dict.fromkeys(NAMES, "held"), "signature": "failed"}


def test_checks_that_rest_on_one_that_failed_are_not_done(command: Command, finished: Path, run: Path) -> None:
    path = run / "certificate.safetensors"
    forged(path, certificate_files.KEY, lambda r, t: t.update({"bounds.0.bias": t["bounds.0.bias"].flip(0)}), path)
    assert list(results(command, run).values()) == ["held", "held", "failed", "not done", "not done"]
    assert "above its upper bound" in sentence(command("sign", run, "--key", finished / "mine"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert list(results(command, run).values()) == ["held", "failed", "not done", "not done", "not done"]
    path.write_bytes(content[:-30])
    assert list(results(command, run).values()) == ["failed", "not done", "not done", "not done", "not done"]
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
    script = "import sys; sys.modules['cryptography'] = None; from fullcert.command import main; main()"
    arguments = [sys.executable, "-c", script, "verify", str(run)]
    assert subprocess.run([*arguments, "--quiet"], capture_output=True).returncode == 0
    key = run / "key"
    key.touch()
    result = subprocess.run([*arguments, "--key", str(key)], capture_output=True, text=True)
    assert result.returncode == 2 and "pip install 'boundflow[sign]'" in result.stderr
