"""What stands beside a certificate: of another run, contradicting it or unsigned, and what a report says of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Command, run_main, sentence

from fullcert.evidence import signing
from fullcert.experiment import runs
from fullcert.experiment.options import Options
from fullcert.results.beside import Beside
from fullcert.sweeps import attacked_curves, swept_runs
from fullcert.system.mistakes import Mistake

Data = dict[str, Any]
FILES = ("curve.json", "attack.json", "audit.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in their number of flips, with everything beside them, a vote, and a key."""
    folder = tmp_path_factory.mktemp("beside")
    for flips in (2, 3):
        out = folder / f"flips-{flips}"
        train = ("train", "--dataset", "iris", "--flip-labels", flips, "--steps", 3, "--quiet", "--out", out)
        assert run_main(*train) == 0
        assert run_main("attack", out, "--attacks", "influence", "--targets", 1, "--quiet") == 0
        assert run_main("certify", out, "--withstands", "--quiet") == 0
        assert run_main("audit", out, "--suspects", "--report", "--quiet") == 0
    flags = ("--dataset", "iris", "--flip-labels", 1, "--members", 2, "--steps", 2, "--quiet")
    assert run_main("train", *flags, "--out", folder / "vote") == 0
    signing.make_key(folder / "key")
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "flips-3", tmp_path / "run"))


def changed(path: Path, change: Callable[[Data], object]) -> None:
    """A file with other content, as JSON."""
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


# --- whose it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_run_is_refused(command: Command, made: Path, run: Path, name: str) -> None:
    shutil.copy(made / "flips-2" / name, run)
    said = sentence(command("report", run))
    assert f"{name} in {run} is about another certificate" in said and f"{run}" in said and "makes it again" in said
    changed(run / name, lambda data: data.pop("certificate"))  # as earlier versions wrote it
    assert "does not say which certificate it is about" in sentence(command("report", run))


def test_an_evaluation_of_another_run_is_refused(command: Command, made: Path, run: Path) -> None:
    shutil.copy(made / "flips-2" / "evaluation.json", run)
    assert "evaluation.json in" in sentence(command("report", run))
    shutil.copy(made / "flips-2" / "certificate.safetensors", run)  # both: what was found out is of the other one
    assert "curve.json in" in sentence(command("report", run))
    for name in FILES:
        shutil.copy(made / "flips-2" / name, run)
    assert command("report", run).code == 0


def test_an_evaluation_alone_is_taken_at_its_word(command: Command, made: Path, run: Path) -> None:
    """A folder without a certificate; what was found out is still of the run that the evaluation is of."""
    (run / "certificate.safetensors").unlink()
    assert command("report", run).code == 0
    shutil.copy(made / "flips-2" / "attack.json", run)
    assert "attack.json in" in sentence(command("report", run))


def test_members_are_what_files_beside_a_vote_are_about(command: Command, made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made / "vote", tmp_path / "vote"))
    assert command("report", run).code == 0
    assert command("certify", run, "--withstands", "--quiet").code == 0 and command("report", run).code == 0
    first, second = run / "members" / "member-0000-0.safetensors", run / "members" / "member-0001-0.safetensors"
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    assert "is about another certificate" in sentence(command("report", run))


def test_an_attack_on_another_run_is_made_again(made: Path, run: Path) -> None:
    """A sweep takes an attack for made where it was made on this very run, and no curve counts one that was not."""
    settings = {"steps": 1}
    changed(run / "attack.json", lambda data: data.update(asked=settings))
    assert attacked_curves.known(run, settings) and attacked_curves.broken(run) is not None
    shutil.copy(made / "flips-2" / "attack.json", run)
    changed(run / "attack.json", lambda data: data.update(asked=settings))
    assert not attacked_curves.known(run, settings)
    with pytest.raises(Mistake, match="is about another certificate"):
        attacked_curves.broken(run)


def test_a_result_of_another_run_is_not_told(command: Command, made: Path, run: Path) -> None:
    """Nor counted in a table: it is the number of a sweep, and what a finished run says when it is to go on."""
    resume, metrics = ("train", "--resume", "--out", run, "--quiet"), run / "metrics.json"
    assert command(*resume).code == 0
    shutil.copy(made / "flips-2" / "metrics.json", run)
    assert f"metrics.json in {run} is about another certificate" in sentence(command(*resume))
    swept = swept_runs.Run(str(run.parent), "", (), Options())
    shutil.copytree(run, swept.path)
    with pytest.raises(Mistake, match="is about another certificate"):
        _ = swept.metrics
    for words, change in WRONG_RESULTS.items():
        shutil.copy(made / "flips-3" / "metrics.json", run)
        changed(metrics, lambda data, change=change: data.update(change))
        assert words in sentence(command(*resume)), change


WRONG_RESULTS: dict[str, Data] = {
    "certified accuracy is not that of the evaluation": {"certified_accuracy": 1.0},
    "nominal accuracy is not that of the evaluation": {"nominal_accuracy": 1.0},
    "number of test samples": {"test_samples": 10_000},
    "word on the constant answer is not that of the evaluation": {"beats_constant_answer": False},
    "threat is not that of the certificate": {"threat": "AtMost(200, Labels(classes=3))"},
    "seed is not that of the certificate": {"seed": 7},
    "claim is not that of its numbers": {"claim": "No one could have changed anything."},
    "does not say which certificate": {"certificate": None},
}


# --- what cannot be ---------------------------------------------------------------------------------------------------


def all_points(**values: float) -> Callable[[Data], object]:
    return lambda data: [point.update(values) for point in data["points"]]


def last(**values: Any) -> Callable[[Data], object]:
    return lambda data: data["points"][-1].update(values)


def first_row(name: str, **values: Any) -> Callable[[Data], object]:
    return lambda data: data[name][0].update(values)


IMPOSSIBLE: list[tuple[str, str, Callable[[Data], object]]] = [
    ("curve.json", "nothing beyond 3", lambda data: data["points"].append({**data["points"][-1], "value": 100_000})),
    ("curve.json", "nothing beyond 3", last(value=4)),
    ("curve.json", "nothing beyond 0", lambda data: data.update(unit="epsilon")),
    ("curve.json", "not in order", last(value=0)),
    ("curve.json", "no number", last(value=float("nan"))),
    ("curve.json", "no number", last(value=float("inf"))),
    ("curve.json", "between 0 and 1", all_points(certified_robustness=1.5)),
    ("curve.json", "between 0 and 1", last(certified_accuracy=float("nan"))),
    ("curve.json", "rises", last(certified_robustness=1.0)),
    ("curve.json", "more is certified and right", all_points(certified_accuracy=1.0, certified_robustness=1.0)),
    ("curve.json", "more is certified and right", all_points(attacked_accuracy=0.01)),
    ("curve.json", "certified accuracy is not that", last(certified_accuracy=0.1)),
    ("curve.json", "nominal accuracy is not that", lambda data: data.update(nominal_accuracy=1.0)),
    ("curve.json", "number of test samples", lambda data: data.update(samples=1000)),
    ("attack.json", "number of test samples", lambda data: data["by_point"].pop()),
    ("attack.json", "counts otherwise", lambda data: data["states"].update(certified=30, undecided=0)),
    ("attack.json", "broken a prediction that is certified", lambda data: recounted(data, "certified", "broken")),
    ("attack.json", "number of certified predictions", lambda data: recounted(data, "undecided", "certified")),
    ("attack.json", "between 0 and 1", lambda data: data.update(attacked_accuracy=2.0)),
    ("audit.json", "number of test samples", lambda data: data.update(samples=1000)),
    ("audit.json", "number of test samples", lambda data: data.update(data="other.csv")),
    ("audit.json", "number of certified predictions", lambda data: data.update(certified=30)),
    ("audit.json", "more predictions than there are", lambda data: data.update(audited=31)),
    ("audit.json", "more rows than were to be checked", lambda data: data.update(budget=0)),
    ("audit.json", "between 0 and 1", lambda data: data["checklist"]["rows"][0].update(share=3.0)),
    ("audit.json", "more rows than were to be checked", lambda data: data["suspects"].update(rows=[{}] * 51)),
    ("audit.json", "between 0 and 1", lambda data: data["suspects"]["rows"][0].update(probability=3.0)),
    ("evaluation.json", "headline counts otherwise", lambda data: data["headline"].update(certified=30)),
    ("evaluation.json", "accuracy of its headline", lambda data: data["headline"].update(certified_accuracy=1.0)),
    ("evaluation.json", "robustness of its headline", lambda data: data["headline"].update(certified_robustness=1.0)),
    ("evaluation.json", "another number of samples", lambda data: data["headline"].update(samples=1000)),
    ("evaluation.json", "headline counts otherwise", first_row("samples", certified="yes")),
    ("evaluation.json", "became void", lambda data: data["headline"].update(void_at_step=1)),
    ("evaluation.json", "another task", lambda data: data.update(task="regression")),
]


def recounted(data: Data, before: str, after: str) -> None:
    """An attack of which all points in one state are said to be in another, counted rightly."""
    for point in data["by_point"]:
        point["state"] = after if point["state"] == before else point["state"]
    data["states"][after] += data["states"][before]
    data["states"][before] = 0


def test_what_contradicts_the_certificate_or_the_evaluation_is_refused(command: Command, made: Path, run: Path) -> None:
    for name, words, change in IMPOSSIBLE:
        changed(run / name, change)
        said = sentence(command("report", run))
        assert words in said and f"{name} in {run} is not of this run, or damaged" in said, (name, words, said)
        shutil.copy(made / "flips-3" / name, run)
    assert command("report", run).code == 0


def test_a_vote_says_nothing_beyond_all_of_its_samples(command: Command, made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made / "vote", tmp_path / "vote"))
    changed(run / "curve.json", last(value=91))
    assert "say nothing beyond 90" in sentence(command("report", run))


def test_a_certificate_that_was_refuted_is_neither_shown_nor_signed(command: Command, made: Path, run: Path) -> None:
    (run / "violation.npz").write_bytes(b"")
    for words in (("report", run), ("verify", run, "--quiet"), ("sign", run, "--key", made / "key")):
        assert "is a dataset that an attack found to refute its certificate" in sentence(command(*words))


# --- who has signed it ------------------------------------------------------------------------------------------------


def shown(run: Path) -> str:
    return " ".join((run / "report.html").read_text().split())


def test_a_report_says_that_nobody_has_signed_it(command: Command, run: Path) -> None:
    assert command("report", run).code == 0
    assert "Signature: none when this page was made" in shown(run)
    assert "signature of this run" not in shown(run)


def test_a_report_says_of_each_section_whether_it_is_signed(command: Command, made: Path, run: Path) -> None:
    """A signed run: all is covered; a file that comes later is not, nor is one that changed, and the rest still is."""
    private, public = made / "key", made / "key.pub"
    curve = (run / "curve.json").read_bytes()
    (run / "curve.json").unlink()
    assert command("sign", run, "--key", private, "--quiet").code == 0
    result = command("report", run)
    assert f"Note: the page is another one than before, and {run} is signed: sign again" in result.out
    for name in ("evaluation.json", "attack.json", "audit.json"):
        assert f"Drawn from <code>{name}</code>, which the signature of this run covers." in shown(run)
    assert command("sign", run, "--key", private, "--quiet").code == 0
    assert command("report", run).out == f"report: {run / 'report.html'}\n"  # the same page again
    assert command("verify", run, "--key", public, "--quiet").code == 0
    (run / "curve.json").write_bytes(curve)
    (run / "attack.json").write_text((run / "attack.json").read_text() + " ")
    said = json.loads(command("report", run, "--key", public, "--json", "-").out)["signature"]
    assert set(said["apart"]) == {"curve", "attack"} and f"of {public}" in said["who"]
    told = command("report", run, "--key", public).out
    assert "Note: the signature does not cover curve.json, which was added after it was made." in told
    assert "Note: the signature does not cover attack.json, which was changed after it was made." in told
    page = shown(run)
    assert "does not cover this section: it is drawn from <code>curve.json</code>, which was added after" in page
    assert "does not cover this section: it is drawn from <code>attack.json</code>, which was changed after" in page
    for name in ("evaluation.json", "audit.json"):
        assert f"Drawn from <code>{name}</code>, which the signature of this run covers." in page
    assert "curve.json was added, attack.json" in sentence(command("verify", run, "--key", public, "--quiet"))


def test_a_forged_evaluation_of_a_signed_run_is_told_at_the_top(command: Command, made: Path, run: Path) -> None:
    """One whose numbers fit together, with everything certified and a far larger threat."""
    assert command("sign", run, "--key", made / "key", "--quiet").code == 0

    def forge(data: Data) -> None:
        for row in data["samples"]:
            row.update(certified=True, margin=1.0, label=row["true"])
        perfect = dict.fromkeys(("certified_accuracy", "certified_robustness", "nominal_accuracy"), 1.0)
        data["headline"].update(certified=30, **perfect)
        data["threat"]["training"] = "flipped at most 80 of the 90 training labels"

    changed(run / "evaluation.json", forge)
    for name in FILES:
        (run / name).unlink()
    told = command("report", run).out
    assert "Note: the signature does not cover evaluation.json, which was changed after it was made." in told
    page = shown(run)
    after_the_claim = page.partition('<p class="claim">')[2]
    assert after_the_claim.index("could have changed any of these 30") < 200
    assert after_the_claim.index("does not cover this page") < 300


@pytest.mark.parametrize("text", ["{}", '{"format": 1}', "no JSON", '{"format": 2, "files": {}}'])
def test_a_signature_that_does_not_hold_covers_nothing(command: Command, run: Path, text: str) -> None:
    (run / "signature.json").write_text(text)
    told = command("report", run)
    assert told.code == 0 and told.out.count("Note: the signature does not cover") == 4
    assert "Signature: one that does not hold" in shown(run)


def test_a_report_for_a_key_is_of_a_run_that_its_holder_has_signed(command: Command, made: Path, run: Path) -> None:
    signing.make_key(run.parent / "other")
    public = made / "key.pub"
    before = (run / "report.html").read_bytes()
    assert "is not signed as asked" in sentence(command("report", run, "--key", public))
    assert command("sign", run, "--key", run.parent / "other", "--quiet").code == 0
    assert "was not made with the key that belongs to" in sentence(command("report", run, "--key", public))
    assert (run / "report.html").read_bytes() == before
    assert command("report", run).code == 0 and "fullcert report --key FILE compares it with yours" in shown(run)


def test_what_is_beside_a_run_is_read_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate may be large: its digest is taken once for a report."""
    from fullcert.results import manifest

    taken: list[Path] = []
    real = manifest.entry
    monkeypatch.setattr(manifest, "entry", lambda path: (taken.append(path), real(path))[1])
    Beside(run).found()
    assert taken == [run / runs.CERTIFICATE]
