"""Running cases: what is finished is never run again, whatever else differs is, and rows are means over seeds."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from fullcert.reproduce import engine
from fullcert.reproduce.experiments import Case, Experiment, Outcome, Scale, load
from fullcert.system import jobs

CPU = torch.device("cpu")


class Toy:
    """An experiment that counts its runs."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.breaks_at = -1

    def cases(self, scale: Scale) -> list[Case]:
        epochs = 1 if scale.quick else 9

        def case(domain: str, quick: bool) -> Case:
            def run(seed: int, device: torch.device) -> Outcome:
                if len(self.ran) == self.breaks_at:
                    raise KeyboardInterrupt
                self.ran.append((domain, seed))
                return Outcome(seed + epochs, 50.0 if domain == "interval" else None, {"seed": seed})

            return Case({"epsilon": 0.1}, domain, "paper", run, 7.0, (1, 2, 4), quick, {"epochs": epochs})

        return [case("interval", True), case("zonotope", False), case("-", True)]

    def experiment(self) -> Experiment:
        return Experiment("toy", "a toy", "nowhere", "everything", self.cases)


def test_rows_have_means_over_seeds(tmp_path: Path) -> None:
    rows = engine.run([Toy().experiment()], Scale(), tmp_path, CPU)
    first = rows[0]
    assert [row["domain"] for row in rows] == ["interval", "zonotope", "-"]
    assert first.keys() >= {"id", "setting", "domain", "recipe", "paper", "mean", "std", "seeds", "nominal", "seconds"}
    assert first["values"] == [10, 11, 13] and first["seeds"] == 3 and first["paper"] == 7.0
    assert first["mean"] == pytest.approx(34 / 3) and first["std"] == pytest.approx(math.sqrt(7 / 3))
    assert first["nominal"] == 50.0 and rows[1]["nominal"] is None and first["details"][2] == {"seed": 4}


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    toy = Toy()
    toy.breaks_at = 4
    with pytest.raises(KeyboardInterrupt):
        engine.run([toy.experiment()], Scale(), tmp_path, CPU)
    toy.breaks_at = -1
    told: list[jobs.Progress] = []
    rows = engine.run([toy.experiment()], Scale(), tmp_path, CPU, tell=told.append)
    assert len(toy.ran) == len(set(toy.ran)) == 9
    assert [one.done for one in told] == list(range(4, 10)) and told[-1].seconds_left == 0
    assert engine.run([toy.experiment()], Scale(), tmp_path, CPU) == rows and len(toy.ran) == 9


def test_a_quick_run_is_not_mixed_with_a_full_one(tmp_path: Path) -> None:
    toy = Toy()
    quick = engine.run([toy.experiment()], Scale(quick=True), tmp_path, CPU)
    assert toy.ran == [("interval", 1), ("interval", 2), ("-", 1), ("-", 2)]
    assert quick[0]["values"] == [2, 3] and quick[0]["fixed"] == {"epochs": 1}
    assert engine.run([toy.experiment()], Scale(), tmp_path, CPU)[0]["values"] == [10, 11, 13]


@pytest.mark.parametrize(("domain", "domains"), [("interval", ["interval", "-"]), ("zonotope", ["zonotope", "-"])])
def test_a_domain_and_methods_without_sets(domain: str, domains: list[str], tmp_path: Path) -> None:
    rows = engine.run([Toy().experiment()], Scale(seeds=1, domain=domain), tmp_path, CPU)
    assert [row["domain"] for row in rows] == domains and all(row["seeds"] == 1 and row["std"] == 0 for row in rows)


def test_one_recipe_and_only_what_is_finished(tmp_path: Path) -> None:
    toy = Toy()
    assert engine.run([toy.experiment()], Scale(recipe="best"), tmp_path, CPU) == [] == toy.ran
    engine.run([toy.experiment()], Scale(seeds=2, domain="interval", recipe="paper"), tmp_path, CPU)
    (first, other) = engine.run([toy.experiment()], Scale(), tmp_path, CPU, only_finished=True)
    assert first["values"] == [10, 11] and other["domain"] == "-" and len(toy.ran) == 4


def test_a_file_that_is_not_whole_counts_as_none(tmp_path: Path) -> None:
    toy = Toy()
    engine.run([toy.experiment()], Scale(seeds=1, domain="interval"), tmp_path, CPU)
    for path in (tmp_path / "toy").iterdir():
        path.write_text(path.read_text()[:20])
    engine.run([toy.experiment()], Scale(seeds=1, domain="interval"), tmp_path, CPU)
    assert len(toy.ran) == 4


@pytest.mark.parametrize("change", ["setting", "domain", "recipe", "fixed", "seed"])
def test_everything_that_changes_the_value_is_in_the_name(change: str, tmp_path: Path) -> None:
    work = engine.planned([Toy().experiment()], Scale())[0]
    changed = {"setting": {"epsilon": 0.2}, "domain": "zonotope", "recipe": "best", "fixed": {"epochs": 2}}
    other = (
        work._replace(seed=9)
        if change == "seed"
        else work._replace(case=replace(work.case, **{change: changed[change]}))
    )  # type: ignore[arg-type]
    assert work.path(tmp_path, CPU) != other.path(tmp_path, CPU)


def test_a_value_of_other_code_or_another_device_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe is known by its name, and what it does stands in the code."""
    toy = Toy()
    asked = partial(engine.run, [toy.experiment()], Scale(seeds=1, domain="interval"), tmp_path)
    asked(CPU)
    asked(torch.device("cpu"))
    assert len(toy.ran) == 2
    asked(torch.device("cuda"))
    assert len(toy.ran) == 4
    made_by = engine.made_by
    monkeypatch.setattr(engine, "made_by", lambda device: {**made_by(device), "code": "another"})
    asked(CPU)
    assert len(toy.ran) == 6


def test_a_value_under_the_name_of_another_is_not_taken_over(tmp_path: Path) -> None:
    toy = Toy()
    one, other = engine.planned([toy.experiment()], Scale())[:2]
    engine.perform(one, tmp_path, CPU)
    one.path(tmp_path, CPU).rename(other.path(tmp_path, CPU))
    assert engine.finished(other, tmp_path, CPU) is None


def test_a_value_that_is_no_number_raises(tmp_path: Path) -> None:
    case = Case({}, "-", "none", lambda seed, device: Outcome(math.nan))
    toy = Experiment("toy", "a toy", "nowhere", "everything", lambda scale: [case])
    with pytest.raises(ValueError, match="nan"):
        engine.run([toy], Scale(), tmp_path, CPU)


def test_derived_rows_come_last(tmp_path: Path) -> None:
    toy = replace(Toy().experiment(), derive=lambda rows: [{**rows[0], "recipe": "derived"}])
    assert engine.run([toy], Scale(seeds=1), tmp_path, CPU)[-1]["recipe"] == "derived"


def test_several_processes_give_the_same_values(tmp_path: Path) -> None:
    one, scale = load()["convergence"], Scale(quick=True, domain="interval")
    apart, alone = (engine.run([one], scale, tmp_path / str(jobs), CPU, jobs) for jobs in (2, 1))
    assert [row["values"] for row in apart] == [row["values"] for row in alone]


def test_time_left_goes_by_the_like() -> None:
    interval, zonotope = engine.planned([Toy().experiment()], Scale(seeds=1))[:2]
    taken = {interval.kind: [1.0, 3.0], zonotope.kind: [10.0]}
    assert jobs.seconds_left([interval, zonotope], taken, 1) == 12
    assert jobs.seconds_left([interval, zonotope], taken, 2) == 6
    assert jobs.seconds_left([interval], {}, 1) is None and jobs.seconds_left([], {}, 1) == 0
