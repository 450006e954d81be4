"""`fullcert sweep`: what is varied, what is run again, tables, the combined curve, and where the runs are made."""

import csv
import json
import os
import platform
import signal
import subprocess
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import Command, sentence

import boundflow as bf
from fullcert.experiment.options import Options, resolve
from fullcert.sweeps import attacked_curves, sweep_tables, swept_runs
from fullcert.system import jobs
from fullcert.system.mistakes import Mistake

IRIS = ("--dataset", "iris", "--steps", "3")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}


def sweep(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fullcert", "sweep", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over two numbers of flips, killed when the first of its runs is finished, and run again."""
    out = tmp_path_factory.mktemp("sweep")
    flags = (*IRIS, "--flips", "1,4", "--out", out, "--on", "processes", "--quiet")
    with sweep(*flags) as first:
        while first.poll() is None and not list(out.glob("runs/*/metrics.json")):
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    (finished,) = out.glob("runs/*/metrics.json")
    before = finished.stat().st_mtime_ns
    with sweep(*flags, "--json", out / "result.json") as second:
        assert second.wait() == 0, second.stderr.read() if second.stderr else ""
    assert finished.stat().st_mtime_ns == before, "a finished run was repeated"
    return out


def test_a_killed_sweep_goes_on_and_repeats_nothing(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(swept.glob("runs/*/metrics.json"))) == 2
    monkeypatch.setattr("subprocess.Popen", None)  # nothing is left to run
    from commands import run_main

    flags = (*IRIS, "--flips", "1,4", "--out", swept, "--on", "processes", "--quiet")
    assert run_main("sweep", *flags) == 0


def test_tables_and_plot(swept: Path) -> None:
    result = json.loads((swept / "result.json").read_text())
    assert [row["setting"] for row in result["rows"]] == [{"flip_labels": 1}, {"flip_labels": 4}]
    assert {key: result[key] for key in ("rows", "curves")} == json.loads((swept / "table.json").read_text())
    with (swept / "table.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [row["flip_labels"] for row in read] == ["1", "4"]
    assert float(read[0]["certified_accuracy"]) == result["rows"][0]["certified_accuracy"]
    assert "\\toprule" in (swept / "table.tex").read_text() and "<svg" in (swept / "plot.svg").read_text()


def test_the_curve_is_the_best_of_all_runs(swept: Path) -> None:
    (curve,) = json.loads((swept / "table.json").read_text())["curves"]
    at = {point["value"]: point["certified_accuracy"] for point in curve["points"]}
    rows = json.loads((swept / "table.json").read_text())["rows"]
    for row in rows:
        k = row["setting"]["flip_labels"]
        known = at.get(k, at[min(value for value in at if value >= k)] if max(at) >= k else 0.0)
        assert known >= row["certified_accuracy"] - 1e-12
    assert curve["unit"] == "k" and curve["nominal_accuracy"] == pytest.approx(rows[0]["nominal_accuracy"])
    largest = Path(curve["largest_run"])
    assert "flip-labels-4" in largest.name and "What the predictions withstand" in (largest / "report.html").read_text()
    assert json.loads((swept / "curve.json").read_text()) == curve


def test_means_and_deviations_over_the_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 0.5 and 0.7 are 60 +- 14.1 %; one seed has no deviation, and what was not measured has no number."""
    measured: dict[Path, dict[str, float]] = {}
    monkeypatch.setattr(swept_runs.Run, "metrics", property(lambda run: measured[run.path]))

    def run(flips: int, seed: int, certified: float | None) -> swept_runs.Run:
        options = Options(dataset="iris", flip_labels=flips, seed=seed)
        metrics = {"nominal_accuracy": 0.9} | ({} if certified is None else {"certified_accuracy": certified})
        made = swept_runs.Run(str(tmp_path), "", (("flip_labels", flips),), options)
        measured[made.path] = metrics
        return made

    table = sweep_tables.rows([run(2, 0, 0.5), run(2, 1, 0.7), run(5, 0, 0.25), run(9, 0, None)])
    assert [(row["setting"], row["seeds"]) for row in table] == [
        ({"flip_labels": 2}, 2),
        ({"flip_labels": 5}, 1),
        ({"flip_labels": 9}, 1),
    ]
    assert table[0]["certified_accuracy"] == 0.6 and table[0]["certified_accuracy_std"] == pytest.approx(0.02**0.5)
    assert table[1]["certified_accuracy_std"] == 0.0 and "certified_accuracy" not in table[2]
    lines = sweep_tables.as_latex(table).splitlines()
    assert lines[4:7] == [
        " & 2 & $60.0 \\pm 14.1$ & $90.0 \\pm 0.0$ & 2 \\\\",
        " & 5 & $25.0$ & $90.0$ & 1 \\\\",
        " & 9 & - & $90.0$ & 1 \\\\",
    ]
    points = sweep_tables.series(table, "flip_labels")[""]
    assert points == [(2, 60.0, pytest.approx(100 * 0.02**0.5)), (5, 25.0, 0.0)]
    shared = sweep_tables.averaged([{"value": 3.0, "certified_accuracy": c, "other": c} for c in (0.5, 0.7, 0.6)])
    assert shared == {
        "value": 3.0,
        "certified_accuracy": pytest.approx(0.6),
        "other": pytest.approx(0.6),
        "certified_accuracy_std": pytest.approx(0.1),
    }


def test_one_recipe_for_all_values(swept: Path) -> None:
    runs = [bf.load(path) for path in sorted(swept.glob("runs/*/certificate.safetensors"))]
    assert len({one.record["steps"] for one in runs}) == 1
    assert bf.withstands(runs, [[0.5, 0.5, 0.5, 0.5]]).most == 4


def test_attacks_give_the_curve_an_upper_bound(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = (*IRIS, "--flips", "1,4", "--out", swept, "--on", "processes", "--quiet", "--attacked", "--targets", "2")
    with sweep(*flags) as attacking:
        assert attacking.wait() == 0, attacking.stderr.read() if attacking.stderr else ""
    (curve,) = json.loads((swept / "table.json").read_text())["curves"]
    attacked = [point["attacked_accuracy"] for point in curve["points"]]
    assert {1, 4} <= {point["value"] for point in curve["points"]} and attacked == sorted(attacked, reverse=True)
    assert all(p["certified_accuracy"] <= p["attacked_accuracy"] <= curve["nominal_accuracy"] for p in curve["points"])
    assert "accuracy under attack" in (Path(curve["largest_run"]) / "report.html").read_text()
    assert "under attack" in (swept / "plot.svg").read_text()
    folders = sorted(path.parent for path in swept.glob("runs/*/attack.json"))
    monkeypatch.setattr("fullcert.results.attacked_run.loaded", None)  # nothing is attacked twice
    attacked_curves.attack_all(folders, {"steps": 3, "restarts": 2, "targets": 2, "seed": 0})
    for folder in folders:
        (folder / "attack.json").write_text('{"by_point": [1]}')
    with pytest.raises(Mistake, match="does not say which certificate"):
        attacked_curves.broken(folders[0])
    for folder in folders:
        (folder / "attack.json").unlink()


def planned(*axes: swept_runs.Axis, given: dict[str, Any] | None = None, told: bool = False) -> list[swept_runs.Run]:
    def made(said: dict[str, Any]) -> Options:
        return resolve({"dataset": "iris", **(given or {})}, said)

    return swept_runs.planned(Path("out"), made, {"": {}}, axes, (0, 1), told)


def test_the_plan() -> None:
    plan = planned(swept_runs.axis_of("flip-labels", "1,3"), swept_runs.axis_of("lr", "0.1,0.2"))
    assert len(plan) == 8 and len({run.name for run in plan}) == 8 and len({run.kind for run in plan}) == 4
    assert {run.options.steps for run in plan} == {plan[0].options.steps}
    assert "flip-labels-1-lr-0.1-seed-0" in plan[0].name and "seed 0" in str(plan[0])


def test_test_inputs_stay_the_same_over_epsilon() -> None:
    axis = swept_runs.axis_of("epsilon", "1e-3,1e-2")
    assert {run.options.test_epsilon for run in planned(axis)} == {0.0}
    kept = planned(axis, given={"test_epsilon": 0.5}, told=True)
    assert {run.options.test_epsilon for run in kept} == {0.5}


def test_runs_that_cannot_be_combined_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    axis = swept_runs.axis_of("flip-labels", "1,3")

    def refused(folders: object, over: object) -> None:
        raise Mistake("they differ in steps")

    monkeypatch.setattr("fullcert.results.withstood_answers.of_runs", refused)
    found = sweep_tables.curves(planned(axis), [axis])
    assert found[0]["why_not"] == "they differ in steps" and "points" not in found[0]
    lr = swept_runs.axis_of("lr", "0.1,0.2")
    assert sweep_tables.curves(planned(lr), [lr]) == []


def test_mistakes_are_one_sentence(command: Command, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "sweep", "--quiet")
    cases = {
        (): "varies something",
        ("--flips", "1,x"): "cannot be 'x'",
        ("--flips", "1.5"): "cannot be '1.5'",
        ("--flips", "1,1"): "each once",
        ("--flips", ""): "needs values",
        ("--over", "flip-labels"): "OPTION=A,B",
        ("--over", "nothing=1"): "cannot be varied",
        ("--over", "tolerance=a"): "cannot be varied",
        ("--over", "seed=1,2"): "--seeds",
        ("--flips", "1", "--over", "flip-labels=2"): "varied twice",
        ("--flips", "1", "--seeds", "a"): "cannot be 'a'",
        ("--flips", "1", "--on", "moon"): "--on is one of",
        ("--flips", "1", "--on", "processes", "--address", "auto"): "--on ray",
        ("--flips", "1", "--recipe", tmp_path / "none.toml"): "cannot read",
        ("--flips", "1", "--dataset", "nothing"): "nothing",
        ("--flips", "1,9999"): "exceeds",
    }
    for flags, words in cases.items():
        where = () if "--dataset" in flags else IRIS
        assert words in sentence(command("sweep", *where, *flags, *out)), flags
    assert not (tmp_path / "sweep" / "runs").exists()
    assert "--flips" in command("sweep", "--help").out


def test_what_an_earlier_sweep_left_behind_may_be_damaged(tmp_path: Path) -> None:
    """A lock that nobody holds is waited for by nobody, whatever it names, and a result with anything in it is told."""
    mine = f"{os.getpid()} {platform.node()}".encode()  # numbers of processes come again
    for text in (b"\xff\xfe", b"", b"9" * 5000, b"0 " + platform.node().encode(), b"-1 x", "\u0663 x".encode(), mine):
        (tmp_path / ".lock").write_bytes(text)
        swept_runs.awaited(tmp_path)
    run = swept_runs.Run(str(tmp_path), "", (), Options())
    run.path.mkdir(parents=True)
    for value in ('"x"', "[]", "NaN", "1e300"):
        (run.path / "metrics.json").write_text(f'{{"seconds": {value}}}')
        with pytest.raises(Mistake, match="seconds is no number"):
            _ = run.metrics


def test_a_run_that_fails_is_told(tmp_path: Path) -> None:
    run = swept_runs.Run(str(tmp_path), "", (("flip_labels", 1),), Options(dataset="nothing"))
    with pytest.raises(Mistake, match="failed"):
        swept_runs.run_all([run], 1, "processes", None, lambda progress: None)


# --- where it runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    value: int

    @property
    def kind(self) -> str:
        return "number"


def squared(number: Number) -> float:
    return float(number.value**2)


def test_pieces_in_threads() -> None:
    pieces = [Number(value) for value in range(5)]
    found = dict(jobs.in_threads(pieces, squared, 2, lambda: None))
    assert found == {piece: float(piece.value**2) for piece in pieces}


def test_an_interrupt_ends_the_processes() -> None:
    stopped: list[bool] = []

    def interrupted(number: Number) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(jobs.in_threads([Number(1)], interrupted, 1, lambda: stopped.append(True)))
    children = jobs.Children()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        children.add(process)
        children.stop()
        assert process.wait(30) != 0
    assert stopped == [True]


def test_where_work_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "has_ray", lambda: False)
    assert jobs.place_of("auto", None) == jobs.place_of("processes", None) == "processes"
    with pytest.raises(Mistake, match="pip install ray"):
        jobs.place_of("ray", None)
    with pytest.raises(Mistake, match="not installed"):
        jobs.place_of("auto", "auto")
    monkeypatch.setattr(jobs, "has_ray", lambda: True)
    assert jobs.place_of("auto", None) == jobs.place_of("ray", "auto") == "ray"
    assert jobs.place_of("processes", None) == "processes"


def test_pieces_go_to_ray_as_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam alone, with something in the place of Ray; the test below is with Ray itself."""
    said: list[Any] = []

    class Remote:
        def __init__(self, function: Any) -> None:
            self.function = function

        def remote(self, piece: Any) -> tuple[str, Any]:
            return ("task", piece)

    fake: Any = types.ModuleType("ray")
    fake.init = lambda address, **options: said.append(("init", address, options["num_cpus"]))
    fake.remote = lambda **options: Remote
    fake.wait = lambda tasks, num_returns: (tasks[:1], tasks[1:])
    fake.get = lambda task: squared(task[1])
    fake.shutdown = lambda: said.append("shutdown")
    monkeypatch.setitem(sys.modules, "ray", fake)
    found = dict(jobs.on_ray([Number(2), Number(3)], squared, 4, None))
    assert list(found.values()) == [4.0, 9.0] and said == [("init", None, 4), "shutdown"]
    said.clear()
    dict(jobs.on_ray([Number(2)], squared, 4, "ray://cluster:10001"))
    assert said[0] == ("init", "ray://cluster:10001", None)


def test_ray_itself(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    options = resolve({"dataset": "iris", "flip_labels": 1, "steps": 1}, {})
    run = swept_runs.Run(str(tmp_path), "", (("flip_labels", 1),), options)
    told: list[jobs.Progress] = []
    swept_runs.run_all([run], 2, "ray", None, told.append)
    assert run.metrics is not None and told[-1].done == 1
    wrong = swept_runs.Run(str(tmp_path), "", (("flip_labels", 1),), Options(dataset="nothing"))
    with pytest.raises(Mistake, match="failed: there is no dataset"):
        swept_runs.run_all([run, wrong], 2, "ray", None, told.append)
