"""`torchrun -m fullcert train`: several processes, one run folder, one voice."""

import json
import sys
import time
from pathlib import Path

import pytest
from commands import run_main
from ranked_runs import ended, started

# as the command, with a checkpoint after every step
EAGER = (
    "import boundflow, inspect; inspect.unwrap(boundflow.certify).__kwdefaults__['checkpoint_every'] = 0.0; "
    "from fullcert.cli.command import main; main()"
)
IRIS = ("train", "--dataset", "iris", "--flip-labels", "2", "--epochs", "30")


def test_a_run_of_two_processes_is_written_and_told_once(tmp_path: Path) -> None:
    """By torchrun itself, with the numbers of one process."""
    words = [*IRIS, "--steps", "4", "--json", "-", "--quiet"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "fullcert"]
    ((code, out, err),) = ended(started([sys.executable, *launch, *words, "--out", str(tmp_path / "two")], 1))
    assert code == 0, err
    two = json.loads(out)  # one result, and nothing else
    names = {path.name for path in (tmp_path / "two").iterdir()}
    assert {"certificate.safetensors", "report.html", "metrics.json"} <= names and "checkpoint.safetensors" not in names
    assert run_main(*IRIS, "--steps", "4", "--quiet", "--out", tmp_path / "one") == 0
    one = json.loads((tmp_path / "one" / "metrics.json").read_text())
    for name in ("nominal_accuracy", "certified_accuracy", "certified_robustness"):
        assert one[name] == two[name]


def test_a_killed_process_ends_the_others_and_one_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    processes = started([sys.executable, "-c", EAGER, *IRIS, "--out", str(out)], 2)
    limit = time.monotonic() + 60
    while not (out / "checkpoint.safetensors").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    processes[1].kill()
    killed = time.monotonic()
    (code, said, err), _ = ended(processes, 60)
    assert time.monotonic() - killed < 30
    last = err.splitlines()[-1]
    assert code == 2 and said == "" and last.startswith("fullcert: another process of this run has ended"), err
    assert "Traceback" not in err and not (out / "metrics.json").exists()
    assert run_main("train", "--resume", "--quiet", "--out", out) == 0
    assert run_main(*IRIS, "--quiet", "--out", tmp_path / "whole") == 0
    resumed, whole = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "whole"))
    for name in ("nominal_accuracy", "certified_accuracy", "certified_robustness"):
        assert resumed[name] == whole[name]


def test_mistakes_are_told_by_the_first_process_alone(tmp_path: Path) -> None:
    words = [*IRIS, "--loss", "nothing"]
    first, second = ended(started([sys.executable, "-m", "fullcert", *words], 2))
    assert first[0] == second[0] == 2 and len(first[2].splitlines()) == 1 and second[1:] == ("", "")


@pytest.mark.parametrize("flag", ["--members", "--tensorboard"])
def test_what_several_processes_do_not_do(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert run_main(*IRIS, flag, "3" if flag == "--members" else tmp_path) == 2
    assert f"{flag} is for a run of one process" in capfd.readouterr().err
