"""Nothing is taken for the same that is not: each reuse compares what it rests on, byte for byte.

A world is a folder with tables, a model file and runs, finished and interrupted ones. A case does something to a copy
of it and gives a command, and says the sentence in which that is refused, or that its answers are those of before.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from commands import Columns, Command, Result, people, run_main, sentence, write_csv
from forging import forged

from boundflow.files import certificate_files
from fullcert.experiment.options import resolve
from fullcert.experiment.training import Recipe
from fullcert.sweeps import swept_runs
from fullcert.system import jobs

TABLE = ("--target", "income", "--ignore", "pay", "--flip-labels", "1", "--steps", "2", "--quiet")
PLAIN = ("--data", "people.csv", *TABLE)
RUNS: dict[str, tuple[str, ...]] = {
    "run": PLAIN,
    "other": ("--data", "other.csv", *TABLE),
    "tested": (*PLAIN, "--test-data", "test.csv"),
    "trusted": (*PLAIN, "--trusted", "trusted.csv"),
    "net": (*PLAIN, "--model", "net.py:make"),
    "vote": (*PLAIN, "--members", "3"),
    "other-vote": ("--data", "other.csv", *TABLE, "--members", "3"),
    "arrays": ("--data", "people.npz", "--target", "income", "--flip-labels", "1", "--steps", "2", "--quiet"),
}
NET = "from layers import Half\nfrom torch import nn\n\n\ndef make(features, outputs):\n    return {}\n"
NETWORK = "nn.Sequential(nn.Linear(features, 4), Half(), nn.Linear(4, outputs))"
LAYERS = "from torch import nn\n\n\nclass Half(nn.Module):\n    def forward(self, x):\n        return x * {}\n"


class Killed(BaseException):
    """What ends a process at once."""


def changed(columns: Columns) -> Columns:
    """The same table after somebody has corrected it: other numbers in two columns, one other category."""
    ages = [age + 30 for age in columns["age"]]
    return {**columns, "age": ages, "town": ["east" if town == "west" else town for town in columns["town"]]}


def killed(*arguments: object) -> None:
    """A run that is killed when its first training begins: all before that is written, nothing of it is."""

    def never(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recipe, "certify", never)
        with contextlib.suppress(Killed):
            run_main("train", *arguments)


def halfway(path: Path) -> None:
    """The checkpoint of a run on the other table after its first step."""

    def stop(step: Any) -> None:
        if step.number == 2:
            raise Killed

    options = {"data": "other.csv", "target": "income", "ignore": ("pay",), "flip_labels": 1, "steps": 2}
    with contextlib.suppress(Killed):
        Recipe(resolve(options, {})).certify([stop], path)
    assert path.is_file()


def arrays(path: Path, dtype: type) -> None:
    columns = people(60)
    numbers = {name: np.array(columns[name], dtype=dtype) for name in ("age", "hours")}
    np.savez(path, **numbers, income=np.array(columns["income"]))


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_csv(folder / "people.csv", people(60))
    write_csv(folder / "other.csv", changed(people(60)))
    write_csv(folder / "test.csv", people(30, 2))
    write_csv(folder / "trusted.csv", people(40, 3))
    write_csv(folder / "rows.csv", people(12, 4))
    (folder / "net.py").write_text(NET.format(NETWORK))
    (folder / "layers.py").write_text(LAYERS.format(0.5))
    arrays(folder / "people.npz", np.float64)
    with within(folder):
        halfway(folder / "halfway.safetensors")
        for name, flags in RUNS.items():
            assert run_main("train", *flags, "--out", name) == 0, name
            killed(*flags, "--out", f"begun-{name}")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made, tmp_path / "world")
    with within(tmp_path / "world"):
        yield tmp_path / "world"


def answers(command: Command, run: str, rows: str = "rows.csv") -> list[dict[str, Any]]:
    told = command("certify", run, rows, "--json", "-", "--quiet")
    assert told.code == 0, told
    found: list[dict[str, Any]] = json.loads(told.out)["rows"]
    return found


# --- what was found ---------------------------------------------------------------------------------------------------


def test_a_table_that_was_corrected_before_the_first_checkpoint(command: Command, world: Path) -> None:
    """The report and `certify` say the same of the same rows, or nothing is said."""
    write_csv(world / "people.csv", changed(people(60)))
    told = command("train", "--resume", "--out", "begun-run", "--quiet")
    assert "people.csv" in sentence(told)
    assert command("train", *PLAIN, "--out", "begun-run").code == 0  # afresh, as the sentence says
    tested = json.loads((world / "begun-run" / "evaluation.json").read_text())["samples"]
    kept = {row["line"]: (row["label"], row["certified"]) for row in tested}
    found = {row["line"]: (row["label"], row["certified"]) for row in answers(command, "begun-run", "people.csv")}
    assert {line: found[line] for line in kept} == kept


def test_a_vote_takes_no_member_of_other_data(command: Command, world: Path) -> None:
    shutil.copytree(world / "other-vote" / "members", world / "begun-vote" / "members")
    assert command("train", "--resume", "--out", "begun-vote", "--quiet").code == 0
    for path in (world / "vote" / "members").glob("*.safetensors"):
        assert path.read_bytes() == (world / "begun-vote" / "members" / path.name).read_bytes()


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a sweep are made in this process."""

    def perform(run: swept_runs.Run, _: object = None) -> float:
        began = ["--resume"] if (run.path / "options.toml").exists() else []
        plan = Path(run.folder) / "plans" / f"{run.name}.toml"
        assert run_main("train", "--config", plan, *began, "--out", run.path, "--quiet") == 0
        return 1.0

    monkeypatch.setattr(swept_runs, "perform", perform)
    monkeypatch.setattr(jobs, "in_threads", lambda left, work, *_: [(run, work(run)) for run in left])


@pytest.mark.usefixtures("in_turn")
def test_a_sweep_is_of_one_dataset(command: Command, world: Path) -> None:
    swept = (*PLAIN, "--out", "swept", "--flips", "0,1", "--on", "processes")
    assert command("sweep", *swept).code == 0
    before = (world / "swept" / "table.json").read_bytes()
    assert command("sweep", *swept).code == 0 and (world / "swept" / "table.json").read_bytes() == before
    shutil.rmtree(next((world / "swept" / "runs").iterdir()))
    write_csv(world / "people.csv", changed(people(60)))
    assert "people.csv" in sentence(command("sweep", *swept))
    assert (world / "swept" / "table.json").read_bytes() == before


def test_what_a_test_set_withstands_is_asked_of_that_test_set(command: Command, world: Path) -> None:
    columns = people(60)
    columns["income"] = ["much" if income == "little" else "little" for income in columns["income"]]
    write_csv(world / "people.csv", columns)
    assert "people.csv" in sentence(command("certify", "run", "--withstands", "--quiet"))
    assert not (world / "run" / "curve.json").exists()


# --- many more --------------------------------------------------------------------------------------------------------

World = Path
Change = Callable[[World], object]


class Case(NamedTuple):
    """What is done to a world, what is asked of it then, and what that is answered with.

    ``said`` is a part of the sentence of a refusal; without one the answers are those of the run as it was.
    """

    name: str
    change: Change
    ask: tuple[str, ...]
    said: str | None = None
    code: int = 2


def edited(name: str, old: str, new: str) -> Change:
    def change(world: World) -> None:
        text = (world / name).read_bytes()
        assert old.encode() in text
        (world / name).write_bytes(text.replace(old.encode(), new.encode()))

    return change


def written(name: str, make: Callable[[Columns], Columns], **how: Any) -> Change:
    """A table as somebody else would have written it."""

    def change(world: World) -> None:
        with (world / name).open(newline="") as file:
            rows = list(csv.reader(file))
        columns = make({head: [row[place] for row in rows[1:]] for place, head in enumerate(rows[0])})
        text, (separator, ends) = io.StringIO(), (how.get("separator", ","), how.get("ends", "\r\n"))
        writer = csv.writer(text, delimiter=separator, lineterminator=ends)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        (world / name).write_bytes(text.getvalue().encode(how.get("letters", "utf-8")))

    return change


def moved(source: str, target: str) -> Change:
    return lambda world: shutil.move(world / source, world / target)


def copied(source: str, target: str) -> Change:
    return lambda world: shutil.copy(world / source, world / target)


def exchanged(one: str, other: str) -> Change:
    def change(world: World) -> None:
        (world / one).rename(world / "meanwhile")
        (world / other).rename(world / one)
        (world / "meanwhile").rename(world / other)

    return change


def gone(name: str) -> Change:
    return lambda world: (world / name).unlink()


def touched(name: str) -> Change:
    return lambda world: os.utime(world / name, (10**9, 10**9))


def nothing(world: World) -> None:
    """As it was."""


def said_in(name: str, *path: str, value: object) -> Change:
    """A file of JSON that says something else."""

    def change(world: World) -> None:
        whole = json.loads((world / name).read_text())
        part = whole
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        (world / name).write_text(json.dumps(whole))

    return change


def of_an_earlier_version(world: World) -> None:
    path = world / "run" / "certificate.safetensors"
    forged(path, certificate_files.KEY, lambda said, _: {k: v for k, v in said.items() if k != "run"}, path)


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:-5]) or content[:-5])


def packed(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


def centred(path: Path) -> None:
    said = json.loads(path.read_text())
    said["columns"][0]["center"] += 2.0**-40
    path.write_text(json.dumps(said))


def flipped(path: Path) -> None:
    """A report that says of a sample that its label is the other one, and as right as before."""
    said = json.loads(path.read_text())
    other = {"much": "little", "little": "much"}
    said["samples"][0] |= {name: other[said["samples"][0][name]] for name in ("true", "label")}
    path.write_text(json.dumps(said))


def reversed_rows(columns: Columns) -> Columns:
    return {name: column[::-1] for name, column in columns.items()}


def other_order(columns: Columns) -> Columns:
    return dict(reversed(columns.items()))


def as_it_is(columns: Columns) -> Columns:
    return columns


def resume(run: str, *flags: str) -> tuple[str, ...]:
    return ("train", "--resume", "--out", run, "--quiet", *flags)


def certify(run: str, *flags: str) -> tuple[str, ...]:
    return ("certify", run, "rows.csv", "--quiet", *flags)


BEGUN, TESTED, TRUSTED, NETS = resume("begun-run"), resume("begun-tested"), resume("begun-trusted"), resume("begun-net")
ASKED, STANDS = certify("run"), ("certify", "run", "--withstands", "--quiet")
CASES = [
    # goes on with a run that was killed before its first step
    Case("a cell was corrected", edited("people.csv", "north", "south"), BEGUN, "begun with another people.csv"),
    Case("the last rows are missing", lambda w: truncated(w / "people.csv"), BEGUN, "begun with another people.csv"),
    Case("rows in another order", written("people.csv", reversed_rows), BEGUN, "begun with another people.csv"),
    Case("columns in another order", written("people.csv", other_order), BEGUN, "begun with another people.csv"),
    Case("a column was renamed", edited("people.csv", "hours", "hour"), BEGUN, "begun with another people.csv"),
    Case(
        "a column that is no input",
        written("people.csv", lambda c: {**c, "pay": c["pay"][::-1]}),
        BEGUN,
        "another people.csv",
    ),
    Case("another table under the name", moved("other.csv", "people.csv"), BEGUN, "begun with another people.csv"),
    Case("two tables were exchanged", exchanged("people.csv", "other.csv"), BEGUN, "begun with another people.csv"),
    Case("other ends of lines", written("people.csv", as_it_is, ends="\n"), BEGUN, "begun with another people.csv"),
    Case("a mark of the byte order", written("people.csv", as_it_is, letters="utf-8-sig"), BEGUN, "another people.csv"),
    Case("other letters", written("people.csv", as_it_is, letters="utf-16"), BEGUN, "begun with another people.csv"),
    Case("another separator", written("people.csv", as_it_is, separator=";"), BEGUN, "begun with another people.csv"),
    Case("a packed table under the name", lambda w: packed(w / "people.csv"), BEGUN, "another people.csv"),
    Case("the table is gone", gone("people.csv"), BEGUN, "people.csv cannot be read"),
    Case(
        "the table was renamed",
        moved("people.csv", "new.csv"),
        resume("begun-run", "--data", "new.csv"),
        "--data people.csv and not new.csv",
    ),
    Case(
        "arrays of another precision",
        lambda w: arrays(w / "people.npz", np.float32),
        resume("begun-arrays"),
        "another people.npz",
    ),
    Case("other test rows", edited("test.csv", "north", "south"), TESTED, "begun with another test.csv"),
    Case("other trusted rows", edited("trusted.csv", "north", "south"), TRUSTED, "begun with another trusted.csv"),
    Case("other code of the model", edited("net.py", "4", "5"), NETS, "begun with another net.py"),
    Case("another comment in the model", edited("net.py", "\n\n\n", "\n# half\n\n"), NETS, "begun with another net.py"),
    Case("another neighbour of the model", edited("layers.py", "0.5", "0.6"), NETS, "begun with another layers.py"),
    Case("columns of another run", copied("other/columns.json", "begun-run/columns.json"), BEGUN),
    Case("no columns", gone("begun-run/columns.json"), BEGUN),
    Case(
        "options of another run",
        copied("begun-tested/options.toml", "begun-run/options.toml"),
        BEGUN,
        "other options",
    ),
    Case(
        "an option by hand",
        edited("begun-run/options.toml", "flip_labels = 1", "flip_labels = 2"),
        BEGUN,
        "other options",
    ),
    Case(
        "what another run rests on",
        copied("other/identity.json", "begun-run/identity.json"),
        BEGUN,
        "begun with another people.csv",
    ),
    Case("a run of an earlier version", gone("begun-run/identity.json"), BEGUN, "like those of earlier versions"),
    Case("damaged", lambda w: truncated(w / "begun-run" / "identity.json"), BEGUN, "is damaged"),
    Case(
        "another boundflow",
        said_in("begun-run/identity.json", "versions", "boundflow", value="0.1"),
        BEGUN,
        "another version of boundflow",
    ),
    Case(
        "another torch",
        said_in("begun-run/identity.json", "versions", "torch", value="2.10"),
        BEGUN,
        "another version of torch",
    ),
    Case("nothing was changed", nothing, BEGUN),
    Case("only touched", touched("people.csv"), BEGUN),
    Case("the model only touched", touched("layers.py"), NETS),
    Case("steps of another run", copied("other/metrics.jsonl", "begun-run/metrics.jsonl"), BEGUN),
    Case(
        "the checkpoint of another run",
        copied("halfway.safetensors", "begun-run/checkpoint.safetensors"),
        BEGUN,
        "is a checkpoint of another run",
    ),
    # goes on with a finished run
    Case(
        "finished, and a cell was corrected",
        edited("people.csv", "north", "south"),
        resume("run"),
        "begun with another people.csv",
    ),
    Case(
        "finished, and other test rows",
        edited("test.csv", "north", "south"),
        resume("tested"),
        "begun with another test.csv",
    ),
    Case(
        "finished, by another numpy",
        said_in("run/identity.json", "versions", "numpy", value="1.0"),
        resume("run"),
        "another version of numpy",
    ),
    Case(
        "finished, the result of another run",
        copied("other/metrics.json", "run/metrics.json"),
        resume("run"),
        "about another certificate",
    ),
    Case(
        "finished, the certificate of another run",
        copied("other/certificate.safetensors", "run/certificate.safetensors"),
        resume("run"),
        "columns.json is not that of the certificate",
    ),
    Case("finished, and only touched", touched("people.csv"), resume("run")),
    # asks a run
    Case(
        "columns of another run are asked",
        copied("other/columns.json", "run/columns.json"),
        ASKED,
        "columns.json is not that of the certificate",
    ),
    Case("no columns are asked", gone("run/columns.json"), ASKED, "columns.json is not that of the certificate"),
    Case(
        "another center in the columns",
        lambda w: centred(w / "run" / "columns.json"),
        ASKED,
        "columns.json is not that of the certificate",
    ),
    Case(
        "the certificate of another run is asked",
        copied("other/certificate.safetensors", "run/certificate.safetensors"),
        ASKED,
        "columns.json is not that of the certificate",
    ),
    Case(
        "more flips in the options",
        edited("run/options.toml", "flip_labels = 1", "flip_labels = 200"),
        ASKED,
        "options.toml is not that of the certificate",
    ),
    Case(
        "another decimal sign in the options",
        edited("run/options.toml", 'decimal = "."', 'decimal = ","'),
        ASKED,
        "options.toml is not that of the certificate",
    ),
    Case(
        "the place of the table in the options",
        edited("run/options.toml", 'data = "people.csv"', 'data = "there.csv"'),
        ASKED,
    ),
    Case("a run of an earlier version is asked", of_an_earlier_version, ASKED, "does not say what it rests on"),
    Case("the table is gone, and is not asked", gone("people.csv"), ASKED),
    Case("the folder was renamed", moved("run", "elsewhere"), certify("elsewhere")),
    Case(
        "a member of another vote",
        copied("other-vote/members/member-0001-0.safetensors", "vote/members/member-0001-0.safetensors"),
        certify("vote"),
        "member-0001-0.safetensors is of a run with another",
    ),
    Case(
        "two members were exchanged",
        exchanged("vote/members/member-0001-1.safetensors", "vote/members/member-0002-1.safetensors"),
        certify("vote"),
        "a member is not of the part of the data",
    ),
    Case(
        "two budgets of a member were exchanged",
        exchanged("vote/members/member-0001-0.safetensors", "vote/members/member-0001-1.safetensors"),
        certify("vote"),
        "is the certificate of another member",
    ),
    Case(
        "other code is not run",
        edited("net.py", "from layers", "raise SystemExit('run')\nfrom layers"),
        certify("net"),
        "trained with another net.py",
    ),
    Case(
        "another neighbour is not run",
        edited("layers.py", "0.5", "0.6"),
        certify("net"),
        "trained with another layers.py",
    ),
    Case("the neighbour is gone", gone("layers.py"), certify("net"), "trained with another layers.py"),
    Case("new rows with columns in another order", written("rows.csv", other_order), ASKED),
    Case("new rows with other ends of lines", written("rows.csv", as_it_is, ends="\n"), ASKED),
    Case("new rows with a mark of the byte order", written("rows.csv", as_it_is, letters="utf-8-sig"), ASKED),
    Case("new rows in other letters", written("rows.csv", as_it_is, letters="utf-16"), ASKED),
    Case("new rows with another separator", written("rows.csv", as_it_is, separator="\t"), ASKED),
    Case("new rows with columns more", written("rows.csv", lambda c: {"note": ["x"] * 12, **c}), ASKED),
    Case(
        "new rows with ages as 40.0", written("rows.csv", lambda c: {**c, "age": [f"{a}.0" for a in c["age"]]}), ASKED
    ),
    Case(
        "new rows without a column",
        written("rows.csv", lambda c: {n: v for n, v in c.items() if n != "age"}),
        ASKED,
        "no column 'age'",
    ),
    # asks a run about its own data
    Case(
        "what is withstood of other labels",
        edited("people.csv", "much", "little"),
        STANDS,
        "trained with another people.csv",
    ),
    Case(
        "what is withstood of other test rows",
        edited("test.csv", "much", "little"),
        ("certify", "tested", "--withstands", "--quiet"),
        "trained with another test.csv",
    ),
    Case(
        "an attack on other trusted rows",
        edited("trusted.csv", "much", "little"),
        ("attack", "trusted", "--quiet"),
        "trained with another trusted.csv",
    ),
    Case(
        "an attack on other code",
        edited("layers.py", "0.5", "0.6"),
        ("attack", "net", "--quiet"),
        "trained with another layers.py",
    ),
    Case(
        "an audit of other rows",
        edited("people.csv", "north", "south"),
        ("audit", "run", "--quiet"),
        "trained with another people.csv",
    ),
    Case(
        "an audit of rows in another order",
        written("people.csv", reversed_rows),
        ("audit", "run", "--quiet"),
        "trained with another people.csv",
    ),
    Case(
        "trained again with other test rows",
        edited("test.csv", "much", "little"),
        ("verify", "tested", "--rerun", "--quiet"),
        "trained with another test.csv",
        3,
    ),
    Case(
        "poisoned trainings of other rows",
        edited("people.csv", "much", "little"),
        ("verify", "run", "--trainings", "1", "--quiet"),
        "trained with another people.csv",
        4,
    ),
    Case(
        "verified with columns of another run",
        copied("other/columns.json", "run/columns.json"),
        ("verify", "run", "--quiet"),
        "its parts failed",
    ),
    Case(
        "verified with options of another run",
        copied("tested/options.toml", "run/options.toml"),
        ("verify", "run", "--quiet"),
        "its parts failed",
    ),
    Case(
        "verified with a member of another vote",
        copied("other-vote/members/member-0001-0.safetensors", "vote/members/member-0001-0.safetensors"),
        ("verify", "vote", "--quiet"),
        "its parts failed",
    ),
    Case(
        "a report of other answers",
        lambda w: flipped(w / "run" / "evaluation.json"),
        ("verify", "run", "--rerun", "--quiet"),
        "the same training says something else of the test samples",
        3,
    ),
    # draws its report
    Case(
        "the evaluation of another run",
        copied("other/evaluation.json", "run/evaluation.json"),
        ("report", "run", "--quiet"),
        "about another certificate",
    ),
    Case(
        "the certificate of another run is reported",
        copied("other/certificate.safetensors", "run/certificate.safetensors"),
        ("report", "run", "--quiet"),
        "about another certificate",
    ),
    Case(
        "the curve of another run",
        copied("other-vote/curve.json", "vote/curve.json"),
        ("report", "vote", "--quiet"),
        "about another certificate",
    ),
    Case("a report, and other test rows by now", edited("test.csv", "much", "little"), ("report", "tested", "--quiet")),
]


@pytest.fixture(scope="module")
def before(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the runs answer for new rows as they were made."""
    found = {}
    with within(made):
        for run in ("run", "vote", "net"):
            out = tmp_path_factory.mktemp("before") / "answers.json"
            assert run_main("certify", run, "rows.csv", "--quiet", "--out", out) == 0
            found[run] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_same_or_refused(command: Command, made: Path, world: Path, before: dict[str, Any], case: Case) -> None:
    case.change(world)
    what, run = case.ask[0], case.ask[3] if case.ask[0] == "train" else case.ask[1]
    if case.said is not None:
        kept = content(world)
        told = command(*case.ask)
        assert told.code == case.code and case.said in refusal(told), told
        assert content(world) == kept, "what is refused leaves everything as it was"
        return
    out = ("--out", "answers.json") if what == "certify" else ()
    assert command(*case.ask, *out) == Result(0, "", "")
    if what == "certify":
        assert json.loads(Path("answers.json").read_text()) == before["run" if run == "elsewhere" else run]
    if what == "train":
        whole = made / run.removeprefix("begun-")
        for name in ("certificate.safetensors", "columns.json", "identity.json", "options.toml"):
            assert (world / run / name).read_bytes() == (whole / name).read_bytes(), name
        assert steps(world / run) == steps(whole)


def content(world: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in world.rglob("*") if path.is_file()}


def steps(run: Path) -> list[tuple[float, float]]:
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["width"]) for line in told]


def refusal(told: Result) -> str:
    """The one sentence, which is all that was printed."""
    (line,) = told.err.splitlines()
    assert told.out == "" and line.startswith("fullcert: ")
    return line
