"""Forecasts: what trials choose, what is made of what they saw, and that no run notices. No clock is real here."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import boundflow as bf
from fullcert.cli import display
from fullcert.experiment import forecasting, trial_trainings
from fullcert.experiment.forecasting import Forecast, fitted, shortest
from fullcert.experiment.options import resolve
from fullcert.experiment.training import Recipe
from fullcert.experiment.trial_trainings import Plan, Seen, Training, trial

WHOLE = Plan(tracked=True, piece=10**6, compiled=False)


def training(samples: int = 200, threat: bf.threats.Threat | None = None, **fields: object) -> Training:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    recipe = bf.Recipe(**{"loss": "bce", "epochs": 4, "optimizer_options": {"lr": 0.1}, "order": 3, **fields})
    return Training(model, (x, (x[:, 0] > 0).long()), recipe, threat or bf.threats.Linf(1e-3))


def ticking() -> trial_trainings.Clock:
    """A clock on which every look takes a hundredth of a second."""
    count = itertools.count()
    return lambda: 0.01 * next(count)


def seen(sizes: tuple[int, ...], errors: tuple[int, ...], most: int) -> list[Seen]:
    """A trial of a step that takes 0.1 + 0.001 n + 1e-4 S + 2e-4 E + 1e-6 n (S + E), with two rows a sample."""
    owned = 2 * sizes[0]
    steps = [Seen(sizes[0], 0.05 + 0.0005 * sizes[0], owned, errors[0], most)]
    for n, free in zip(sizes[1:], errors[1:], strict=True):
        took = 0.1 + 0.001 * n + 1e-4 * owned + 2e-4 * free + 1e-6 * n * (owned + free)
        steps.append(Seen(n, took, owned, free, most))
    return steps


TRIALS = [
    seen((64, 64, 8, 64, 8), (100, 200, 300, 400, 500), 500),
    seen((1024, 1024, 32, 512), (100, 200, 300, 400), 500),
    seen((8192, 4096, 32, 2048), (100, 200, 300, 400), 500),
]


# --- what is made of trials -------------------------------------------------------------------------------------------


def test_all_steps_of_a_run_are_counted() -> None:
    """Every later step with the symbols met by then and the errors added until there are ``order`` of them."""
    run = training(samples=20_000, batch_size=5_000, epochs=2)
    expected = 0.05 + 0.0005 * 5_000
    for step in range(2, 9):
        owned, errors = 2 * min(20_000, 5_000 * step), min(500, 100 * step)
        expected += 0.1 + 5 + 1e-4 * owned + 2e-4 * errors + 1e-6 * 5_000 * (owned + errors)
    found = Forecast(run, WHOLE, TRIALS)
    assert (found.each, found.errors, found.most, found.added) == (2, 100, 500, 100)
    assert found.seconds() == pytest.approx(expected, rel=0.35)


def test_a_run_of_one_step_is_its_first() -> None:
    run = training(samples=5_000, epochs=1)
    assert Forecast(run, WHOLE, TRIALS).seconds() == pytest.approx(0.05 + 0.0005 * 5_000, rel=0.1)


def test_compiled_steps_take_a_share() -> None:
    run = training(samples=5_000, epochs=forecasting.COMPILED_ZONOTOPE_STEPS + 101)
    by_rules, compiled = (Forecast(run, replace(WHOLE, compiled=on), TRIALS).seconds() for on in (False, True))
    shorter = Forecast(replace(run, recipe=run.recipe.but(epochs=run.steps - 100)), WHOLE, TRIALS).seconds()
    assert by_rules - compiled == pytest.approx((1 - forecasting.COMPILED) * (by_rules - shorter))


def test_no_coefficient_is_negative() -> None:
    """Shorter steps on more samples are noise."""
    found = fitted([(1.0, 64.0), (1.0, 128.0), (1.0, 256.0)], [0.4, 0.37, 0.3])
    assert (found >= 0).all() and found @ (1, 1000) < 2


def test_terms_that_are_not_there_have_no_coefficient() -> None:
    found = fitted([(1.0, 8.0, 0.0), (1.0, 64.0, 0.0)], [0.1, 0.2])
    assert found[2] == 0 and np.isfinite(found).all()


def test_terms_that_trials_do_not_tell_apart_share() -> None:
    """One trial says nothing of what grows with what: neither all of it does nor nothing."""
    found = fitted([(1.0, 100.0)], [1.0])
    assert found[0] == pytest.approx(100 * found[1]) and 0.9 < found @ (1, 100) <= 1.0


def test_of_steps_that_are_alike_the_shortest_counts() -> None:
    first, again, other = Seen(64, 0.5, 10, 20, 30), Seen(64, 0.3, 10, 20, 30), Seen(8, 0.2, 10, 20, 30)
    assert shortest([first, again, other]) == [again, other]


# --- which trials are made --------------------------------------------------------------------------------------------


def test_the_next_trial_is_the_largest_there_is_time_for() -> None:
    run = training(samples=20_000)
    found = Forecast(run, WHOLE, TRIALS[:2])
    sizes = [found.larger(1024, left) for left in (0.0, found.trial(3_000), 1e9)]
    assert sizes[0] is None and sizes[1] is not None and sizes[2] is not None
    assert 1024 < sizes[1] <= 3_000 < sizes[2] <= 8 * 1024 + 8 * 100
    assert found.larger(20_000, 1e9) is None


def test_samples_of_a_step_show_beside_its_rows() -> None:
    found = Forecast(training(samples=20_000), WHOLE, TRIALS)
    many = found.telling(4096, 0.0)
    assert found.step(many, 4096) == pytest.approx(2 * found.step(0, 4096), rel=0.05)
    assert many < found.telling(4096, 1e9) <= 3 * many + 3


def test_a_trial_sees_samples_and_rows_vary_apart() -> None:
    steps = trial(training(), WHOLE, (64, 32, 32, 4), ticking())
    assert [step.samples for step in steps] == [64, 32, 32, 4]
    assert {step.owned for step in steps} == {2 * 64}  # two features each, of all that were met
    scalars = 3 * 2 + 3 + 3 + 1
    assert [step.errors for step in steps] == [2 * scalars, 3 * scalars, 3 * scalars, 3 * scalars]
    assert {step.most for step in steps} == {3 * scalars}


def test_trials_have_no_rows_where_the_run_has_none() -> None:
    """Rows of few samples fit into a memory that those of all do not."""
    run = training(samples=20_000, memory=4e6)
    plan = Plan.of(run)
    assert not plan.tracked and plan.piece < 20_000
    assert {step.owned for step in trial(run, plan, (16, 8, 8, 2), ticking())} == {0}
    assert trial(run, replace(plan, tracked=True), (16, 8), ticking())[0].owned == 2 * 16


def test_steps_know_the_work_they_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices that go by work are made as for the whole run, whatever the samples of a step."""
    known: list[float] = []
    looked = trial_trainings._rows

    def rows(space: Any) -> Any:
        known.append(space.arithmetic.trial_of)
        return looked(space)

    monkeypatch.setattr(trial_trainings, "_rows", rows)
    trial(training(), WHOLE, (50, 25, 25, 5), ticking())
    assert known == [200 * 200 / (50 * n) for n in (50, 25, 25, 5)]


def test_a_trial_has_its_share_of_every_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """And looks at the same part of its samples for a threshold."""
    both = (
        bf.threats.AtMost(200, bf.threats.Linf(0.1))
        & bf.threats.Tolerance({0: 0.1})
        & bf.threats.AtMost(3, bf.threats.Labels())
    )
    found = [clause.budget for clause in trial_trainings.with_budgets(both, 64 / 3000).clauses]
    assert found == [None, 4, 1]
    known: list[float] = []
    looked = trial_trainings._rows

    def rows(space: Any) -> Any:
        known.append(space.arithmetic.samples_of)
        return looked(space)

    monkeypatch.setattr(trial_trainings, "_rows", rows)
    trial(training(threat=bf.threats.AtMost(8, bf.threats.Linf(1e-3))), WHOLE, (50, 25, 25, 5), ticking())
    assert known == [200 / 50] * 4


def test_runs_that_are_compiled_are_known() -> None:
    assert Plan.of(training(domain="interval", epochs=forecasting.COMPILED_STEPS)).compiled
    assert not Plan.of(training(domain="interval", epochs=100)).compiled


# --- on a GPU ---------------------------------------------------------------------------------------------------------


class Launches:
    """Trials of a GPU: a step takes its launches, 0.1 s, and in 3e-10 s a coefficient of each sample and row.

    ``waits`` is how much longer the first step on so many samples takes; the very first one compiles for ten seconds.
    """

    def __init__(self, waits: float = 0.0) -> None:
        self.now, self.waits = 0.0, waits
        self.sizes: list[int] = []

    def clock(self) -> float:
        return self.now

    def __call__(
        self, training: Training, plan: Plan, sizes: tuple[int, ...], clock: trial_trainings.Clock, least: int
    ) -> list[Seen]:
        waits, found = 0.0 if sizes[0] in self.sizes else self.waits if self.sizes else 10.0, []
        self.sizes.append(sizes[0])
        for number, n in enumerate(sizes[: 1 + least]):
            rows = 10 * sizes[0] + 3000
            took = self.step(n, rows) if number else 0.1 + 1e-6 * n
            found.append(Seen(n, took + waits * (number == 0), 10 * sizes[0], 3000, 3000))
            self.now += found[-1].seconds
        return found

    @staticmethod
    def step(samples: int, rows: int) -> float:
        return 0.1 + 3e-10 * samples * rows


@pytest.mark.parametrize("waits", [0.0, 0.7])
@pytest.mark.parametrize("samples", [100, 3_000, 15_000])
def test_trials_of_a_gpu_grow_until_more_than_launches_shows(
    samples: int, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = training(samples=samples, device="cuda"), Launches(waits)
    monkeypatch.setattr(forecasting, "trial", seen)
    found = forecasting._on_a_gpu(run, WHOLE, seen.clock).seconds()
    actual = 0.1 + 1e-6 * samples + 3 * seen.step(samples, 10 * samples + 3000)
    assert seen.sizes == {100: [64, 64], 3_000: [1024, 1024, 1500], 15_000: [1024, 1024, 7500]}[samples]
    assert actual / 1.5 < found < 1.5 * actual


def test_trials_of_a_gpu_stop_where_the_next_one_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = training(samples=1_000_000, device="cuda"), Launches()
    monkeypatch.setattr(forecasting, "trial", seen)
    assert forecasting._on_a_gpu(run, WHOLE, seen.clock).seconds() > 1000
    assert seen.sizes == [1024, 1024, 16384] and seen.now < 20


def test_where_a_run_is_computed() -> None:
    assert not training().on_gpu and training(device="cuda").on_gpu and not training(device="cpu").on_gpu


# --- whole forecasts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{}, {"batch_size": 10}, {"domain": "interval"}, {"clip_gradients": 1.0}, {"optimizer": torch.optim.Adam}],
    ids=["all samples", "batches", "intervals", "clipped", "Adam"],
)
def test_every_kind_of_run_has_a_forecast(fields: dict[str, object]) -> None:
    found = forecasting.of(training(samples=24, epochs=1000, **fields), ticking())
    assert found is not None and found > 0


def test_short_runs_are_not_asked() -> None:
    assert forecasting.of(training(epochs=2), ticking()) is None


def test_asking_never_takes_as_long_as_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are long on however few samples are tried where the run has many of them, and if they prove short."""
    monkeypatch.setattr(forecasting, "LARGE", 0)
    monkeypatch.setattr(forecasting, "WORTH", 0)
    assert forecasting.of(training(samples=24, epochs=99), ticking()) is None
    assert forecasting.of(training(samples=24, epochs=100), ticking()) is not None
    slow = ticking()
    assert forecasting.of(training(samples=24, epochs=5, domain="interval"), lambda: 1e3 * slow()) is None


def test_a_run_with_long_steps_says_so_before_the_first() -> None:
    """Two convolutions on zonotopes ran for 25 minutes without a word of how long it takes, or what takes less."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 1100), torch.nn.Linear(1100, 1)).double()
    long = replace(training(samples=24, epochs=12, order=5), model=model)
    assert forecasting.of(long, ticking()) is None
    said = forecasting.warning(long)
    assert said is not None and "4,401 trained numbers has up to 22,005 rows" in said and "--order 1" in said
    assert "each of 24 samples in each of 12 steps" in said and "--domain interval" in said
    assert (
        forecasting.warning(replace(long, recipe=replace(long.recipe, epochs=2))) is None
    )  # as the rule for pixels has
    assert forecasting.warning(replace(long, recipe=replace(long.recipe, domain="interval"))) is None
    assert forecasting.warning(training(samples=24, epochs=12)) is None


def test_what_is_left_goes_by_the_rows_of_each_step() -> None:
    assert display.still_to_do(0, 2, 12, 0) == 5 and display.still_to_do(4, 6, 12, 0) == 3
    assert display.still_to_do(0, 2, 4, 5) == (3 + 4) / (1 + 2) and display.still_to_do(0, 4, 4, 5) == 0
    assert display.still_to_do(0, 1, 12, 5) == (2 + 3 + 4 + 5 + 6 * 7) / 1 and display.still_to_do(3, 3, 12, 5) > 0


def test_what_cannot_be_bounded_has_no_forecast() -> None:
    """What is wrong is said by the run itself."""
    assert forecasting.of(training(epochs=100, threat=bf.threats.Replacement()), ticking()) is None
    assert forecasting.of(training(epochs=100, optimizer_options={"lr": 1e200}), ticking()) is None


def test_no_run_notices_its_forecast() -> None:
    recipe = Recipe(resolve({"dataset": "two-moons", "epsilon": 1e-3, "hidden": "4", "steps": 3, "batch_size": 0}, {}))
    before = recipe.certify([])
    longer, drawn = replace(recipe.program(), epochs=20, steps=None), torch.random.get_rng_state()
    run = Training(recipe.initial, recipe.observed(), longer, recipe.threats.training)
    assert forecasting.of(run, ticking()) is not None
    assert torch.equal(drawn, torch.random.get_rng_state())
    after = recipe.certify([])
    x = torch.from_numpy(recipe.data.test.inputs)
    assert torch.equal(before.predict(x).lower, after.predict(x).lower)
    assert before.record == after.record


@pytest.mark.parametrize(("took", "words"), [(0.2, "about 1 s"), (600, "about 10 min"), (9000, "about 2.5 h")])
def test_lengths_of_time_in_words(took: float, words: str) -> None:
    assert forecasting.told(took) == words
