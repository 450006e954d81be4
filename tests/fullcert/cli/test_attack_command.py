"""`fullcert attack`: a finished run is trained again on poisoned datasets; the result, its files, and mistakes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import Command, people, run_main, sentence, write_csv

QUICK = ("--steps", "1", "--restarts", "1", "--targets", "4")
INCOME = ("--target", "income", "--ignore", "pay")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with flipped labels, one with tolerances, one of regression, and one on a plane."""
    folder = tmp_path_factory.mktemp("runs")
    table = write_csv(folder / "people.csv", people())
    flags = {
        "flips": (*INCOME, "--flip-labels", "3"),
        "tolerances": (*INCOME, "--tolerance", "age=2", "--test-tolerance", "age=1"),
        "regression": ("--target", "pay", "--ignore", "income", "--regression", "--tolerance", "age=1"),
    }
    for name, more in flags.items():
        assert run_main("train", "--data", table, *more, "--steps", "3", "--quiet", "--out", folder / name) == 0
    return {name: folder / name for name in flags}


def test_flips_break_predictions_and_the_report_tells(command: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    run, worst = runs["flips"], tmp_path / "worst.npz"
    before = (run / "report.html").read_text()
    result = command("attack", run, *QUICK, "--out", worst)
    assert result.code == 0 and "attacked accuracy" in result.out and "certified accuracy" in result.out
    found = json.loads((run / "attack.json").read_text())
    assert found["certified_accuracy"] <= found["attacked_accuracy"] <= found["nominal_accuracy"]
    assert sum(found["states"].values()) == found["points"] == len(found["by_point"]) and found["outside"] == 0
    assert found["certified_accuracy"] == json.loads((run / "metrics.json").read_text())["certified_accuracy"]
    page = (run / "report.html").read_text()
    assert 'id="attack"' in page and 'id="attack"' not in before and "poisoned trainings" in page
    assert "broken: " in page and "undecided: " in page
    (run / "report.html").unlink()
    assert command("report", run).code == 0 and (run / "report.html").read_text() == page
    told = json.loads(command("certify", run, "--withstands", "--json", "-", "--quiet").out)
    assert told["curve"]["points"][-1]["attacked_accuracy"] == found["attacked_accuracy"]
    with np.load(worst) as saved:
        assert set(saved) == {"inputs", "targets", "weights"} and len(saved["inputs"]) == len(saved["weights"])


@pytest.mark.parametrize("name", ["tolerances", "regression"])
def test_other_threats_and_tasks(command: Command, runs: dict[str, Path], name: str) -> None:
    result = command("attack", runs[name], *QUICK, "--json", "-", "--quiet")
    found = json.loads(result.out)
    assert result.code == 0 and result.err == "" and found["trainings"] > 10 and found["outside"] == 0
    if name == "regression":
        assert found["attacked_accuracy"] is None and found["largest_move"] > 0
    else:
        assert found["certified_accuracy"] <= found["attacked_accuracy"]
    assert found == json.loads((runs[name] / "attack.json").read_text())


def test_a_damaged_result_is_told_by_the_report(command: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["tolerances"], run)
    for content in ("[]", "{}", '{"states": 3, "trainings": "many"}', "{"):
        (run / "attack.json").write_text(content)
        assert "attack.json" in sentence(command("report", run))


def test_only_some_attacks(command: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    result = command("attack", runs["flips"], "--attacks", "random-corners", "--json", out, "--quiet")
    assert result == (0, "", "")
    found = json.loads(out.read_text())
    assert found["settings"]["attacks"] == ["random-corners"]
    assert set(found["found_by"]) <= {"random-corners"}


def test_help_names_the_attacks(command: Command) -> None:
    told = command("attack", "--help").out
    for name in ("class-shifts", "random-corners", "hypergradients", "influence", "enumeration"):
        assert name in told


def test_mistakes(command: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    assert "there is no run at" in sentence(command("attack", tmp_path / "nowhere"))
    assert "not the folder of a finished run" in sentence(command("attack", tmp_path))
    assert "attack" in sentence(command("attack", runs["flips"], "--attacks", "magic"))
    assert "steps" in sentence(command("attack", runs["flips"], "--steps", "0"))
    assert "cannot write" in sentence(command("attack", runs["flips"], "--out", tmp_path / "no" / "where.npz"))
    damaged = tmp_path / "damaged"
    shutil.copytree(runs["flips"], damaged)
    content = (damaged / "certificate.safetensors").read_bytes()
    (damaged / "certificate.safetensors").write_bytes(content[:-4])
    assert "certificate" in sentence(command("attack", damaged, *QUICK))


def test_data_that_have_changed_since_are_refused(command: Command, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "people.csv", people())
    run = tmp_path / "run"
    assert command("train", "--data", table, *INCOME, "--flip-labels", "1", "--steps", "2", "--out", run).code == 0
    write_csv(table, people(seed=1))
    assert "was trained with another" in sentence(command("attack", run, *QUICK))
    table.unlink()
    assert "people.csv" in sentence(command("attack", run, *QUICK))


def test_a_wrong_certificate_leaves_its_evidence(
    command: Command, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fullcert.results import attacked_run

    honest = attacked_run.loaded

    def too_narrow(run: Path):
        recipe, certificate = honest(run)
        certificate.model = certificate.model if certificate.model is None else narrowed(certificate)
        return recipe, certificate

    def narrowed(certificate):
        import torch

        from boundflow.sets.set import Set

        for parameter, plain in zip(certificate.model.parameters(), certificate.nominal.parameters(), strict=True):
            parameter.set = Set(torch.stack((plain.detach() - 1e-6, plain.detach() + 1e-6)))
        return certificate.model

    monkeypatch.setattr(attacked_run, "loaded", too_narrow)
    told = sentence(command("attack", runs["flips"], *QUICK, "--quiet"))
    assert "the certificate is wrong" in told and "violation.npz" in told
    with np.load(runs["flips"] / "violation.npz") as saved:
        assert "inputs" in saved
    (runs["flips"] / "violation.npz").unlink()
