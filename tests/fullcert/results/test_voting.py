"""`fullcert train --members`: members on parts of the data, their vote, and what it stands."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from commands import Command, people, run_main, sentence, write_csv

import boundflow as bf
from fullcert.baselines import dpa

IRIS = ("--dataset", "iris", "--steps", "2", "--flip-labels", "2", "--members", "3")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("votes") / "run"
    assert run_main("train", *IRIS, "--quiet", "--out", out) == 0
    return out


def test_a_run_of_members(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["members"] == 3 and metrics["budgets"] == [0, 1, 2]
    assert metrics["median_withstood"] >= metrics["median_withstood_by_members"]
    assert metrics["certified_accuracy"] <= metrics["nominal_accuracy"]
    ensemble = bf.Ensemble.load(run / "members")
    assert [len(member) for member in ensemble.members] == [3, 3, 3] and ensemble.samples == 90
    page = (run / "report.html").read_text()
    assert "vote of the members" in page and "What the predictions withstand" in page
    curve = json.loads((run / "curve.json").read_text())
    assert curve["points"][0]["value"] == 0 and curve["unit"] == "k"


def test_the_vote_is_that_of_the_library(command: Command, run: Path) -> None:
    from fullcert.results.withstood_answers import Tested

    test = Tested(run)
    vote = bf.Ensemble.load(run / "members").predict(test.x)
    assert torch.equal(vote.by_members, dpa.certified_parts(dpa.counted(vote.members.T, vote.classes)))
    told = json.loads(command("certify", run, "--withstands", "--json", "-", "--quiet").out)
    assert [row["withstands"] for row in told["rows"]] == [None if v < 0 else v for v in vote.withstood.tolist()]
    assert "changed samples" in sentence(command("certify", run, "--withstands", "--over", "epsilon", "--quiet"))


def test_new_rows_are_voted_on(command: Command, run: Path, tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", {name: [0.1, 0.9] for name in "abcd"})
    told = json.loads(command("certify", run, rows, "--json", "-", "--quiet").out)
    assert told["samples"] == 2 and told["rows"][1].keys() == {
        "row",
        "line",
        "label",
        "certified",
        "votes",
        "withstands",
    }
    assert told["rows"][1]["line"] == 3
    assert "90" in told["claim"]
    assert command("certify", run, rows).code == 0


def test_members_that_are_there_are_not_trained_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    certify = bf.certify

    def counted(*arguments: object, **options: object) -> bf.Certificate:
        made.append(1)
        if len(made) == 5:
            raise KeyboardInterrupt
        return certify(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("boundflow.certify", counted)
    out = tmp_path / "run"
    assert run_main("train", *IRIS, "--quiet", "--out", out) == 130
    assert len(list((out / "members").glob("member-*"))) == 4 and not (out / "metrics.json").exists()
    (out / "members" / "member-0000-1.safetensors").write_bytes(b"damaged")
    assert run_main("train", "--resume", "--quiet", "--out", out) == 0
    assert len(made) == 5 + 6
    again = (json.loads((folder / "metrics.json").read_text()) for folder in (run, out))
    first, second = ({**one, "seconds": 0} for one in again)
    assert first == second
    assert run_main("train", *IRIS, "--quiet", "--out", out, "--overwrite") == 0
    assert len(made) == 5 + 6 + 9


def test_runs_of_members_are_signed_and_verified(command: Command, run: Path, tmp_path: Path) -> None:
    copied, key = tmp_path / "run", tmp_path / "key"
    shutil.copytree(run, copied)
    assert command("sign", "--new-key", key).code == 0 and command("sign", copied, "--key", key).code == 0
    signed = json.loads((copied / "signature.json").read_text())["files"]
    assert "members/ensemble.json" in signed and len([name for name in signed if "member-" in name]) == 9
    told = json.loads(command("verify", copied, "--key", f"{key}.pub", "--rerun", "--json", "-", "--quiet").out)
    found = {check["check"]: check["result"] for check in told["checks"]}
    assert set(found.values()) == {"held"} and {"members", "rerun", "signature"} <= set(found)
    refused = command("verify", copied, "--trainings", "1", "--quiet")
    assert refused.code == 6 and "--rerun" in refused.err
    member = copied / "members" / "member-0001-0.safetensors"
    whole = member.read_bytes()
    member.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    changed = command("verify", copied, "--key", f"{key}.pub", "--quiet")
    assert changed.code == 2 and "member-0001-0" in changed.err
    assert "member-0001-0" in sentence(command("sign", copied, "--key", key, "--quiet"))
    member.unlink()
    assert command("verify", copied, "--quiet").code == 2


def test_what_members_do_not_answer_is_told(command: Command, run: Path) -> None:
    for asked in (("attack", run), ("audit", run)):
        assert "--members" in sentence(command(*asked, "--quiet"))


def test_mistakes_are_one_sentence(command: Command, table: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run", "--quiet")
    iris = ("--dataset", "iris", "--members", "3")
    assert "one budget" in sentence(command("train", *iris, "--epsilon", "0.1", *out))
    assert "one budget" in sentence(command("train", *iris, "--flip-labels", "1", "--remove", "1", *out))
    assert "exceeds the 30" in sentence(command("train", *iris, "--flip-labels", "41", *out))
    assert "exceeds the 90" in sentence(command("train", *iris, "--flip-labels", "1", "--members", "91", *out))
    assert "at least 0" in sentence(command("train", *iris, "--flip-labels", "1", "--members", "-1", *out))
    assert "one model" in sentence(command("train", *iris, "--flip-labels", "1", "--tensorboard", tmp_path, *out))
    data = ("--data", table, "--target", "income", "--ignore", "pay", "--members", "3")
    assert "flipped labels only" in sentence(command("train", *data, "--remove", "1", *out))
    beside = ("--flip-labels", "1", "--missing", "age=20:70")
    assert "--missing is about all of them: fill them with --impute" in sentence(command("train", *data, *beside, *out))
    pay = ("--data", table, "--target", "pay", "--ignore", "income", "--regression", "--members", "3")
    assert "vote for classes" in sentence(command("train", *pay, "--remove", "1", *out))
    assert not (tmp_path / "run").exists() and "--members" in command("train", "--help").out


def test_a_table_votes_against_flipped_labels(command: Command, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people())
    flags = ("--data", data, "--target", "income", "--ignore", "pay", "--flip-labels", "1", "--members", "2")
    result = command("train", *flags, "--steps", "1", "--out", tmp_path / "run")
    assert result.code == 0 and "members" in result.out
    told = json.loads(command("certify", tmp_path / "run", data, "--withstands", "--json", "-", "--quiet").out)
    assert told["certified_accuracy"] <= told["accuracy"] and len(told["rows"]) == 90
