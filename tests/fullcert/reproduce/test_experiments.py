"""Every experiment: its cases are told apart, and a small cut of each runs."""

import json
import math
from pathlib import Path

import pytest
import torch

from fullcert.reproduce import barriers, convergence, drawing, engine, paper_tables
from fullcert.reproduce.experiments import EXPERIMENTS, Scale, load
from fullcert.reproduce.published import Published

CPU = torch.device("cpu")


@pytest.mark.parametrize("id", list(load()))
@pytest.mark.parametrize("quick", [False, True])
def test_cases_are_told_apart(id: str, quick: bool) -> None:
    plan = engine.planned([EXPERIMENTS[id]], Scale(quick))
    assert plan and len({work.path(Path("."), CPU) for work in plan}) == len(plan)
    assert all(json.loads(json.dumps(work.key(CPU))) == work.key(CPU) for work in plan)
    assert EXPERIMENTS[id].differs.endswith(".") and EXPERIMENTS[id].title and EXPERIMENTS[id].source


def test_a_full_run_is_no_quick_one() -> None:
    """Where a quick case trains for fewer epochs, its values are kept apart."""
    for id in ("epsilon", "learning-rate", "batch-size", "width", "pretraining-moons", "pretraining-mnist"):
        full, quick = (
            {
                work.path(Path("."), CPU)
                for work in engine.planned([load()[id]], Scale(quick))
                if work.case.recipe == "paper"
            }
            for quick in (False, True)
        )
        assert full.isdisjoint(quick)


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_cut_of_the_tables(domain: str) -> None:
    run = Published(1e-2, hidden=(3,), epochs=1, batch_size=500, domain=domain)
    outcome = paper_tables.as_published(run, paper_tables.SEEDS[0], CPU)
    assert 0 <= outcome.value <= 100 and len(outcome.details["validation"]) == 1


def test_our_recipe_on_the_samples_of_the_paper() -> None:
    outcome = paper_tables.ours("two-moons", 1e-2, paper_tables.SEEDS[0], CPU)
    assert outcome.nominal is not None and 98 <= outcome.value <= outcome.nominal


def test_barriers_are_drawn_from_what_was_kept() -> None:
    run = Published(1e-2, epochs=5)
    outcomes = [barriers.as_published(run, 9, barriers.SEED, CPU), barriers.ours(9, barriers.SEED, CPU)]
    rows = [
        {"id": "barriers", "domain": "interval", "recipe": "paper", "mean": outcome.value, "details": [outcome.details]}
        for outcome in outcomes
    ]
    assert all(len(outcome.details["lower"]) == 81 for outcome in outcomes)
    assert drawing.drawn("barriers", json.loads(json.dumps(rows)), "svg").startswith(b"<?xml")


def test_intervals_grow_and_zonotopes_shrink() -> None:
    outcomes = {
        domain: convergence.follow(domain, 1e-3, 0.1, 0.1, 4, convergence.SEED, CPU)
        for domain in ("interval", "zonotope")
    }
    interval, zonotope = (outcome.details["radius"] for outcome in outcomes.values())
    assert interval[0] == pytest.approx(0.1) == zonotope[0] and len(interval) == 5
    assert interval == sorted(interval) and zonotope == sorted(zonotope, reverse=True)


def test_the_terms_add_up() -> None:
    """h_{t+1} lies within h_t plus both terms, as far as the bounds know."""
    details = convergence.follow("zonotope", 1e-3, 0.0, 0.0, 3, convergence.SEED, CPU).details
    for step in range(3):
        low, high = (sum(details[name][step][end] for name in ("distance", "first", "second")) for end in (0, 1))
        assert low - 1e-6 <= details["distance"][step + 1][1] and details["distance"][step + 1][0] <= high + 1e-6


def test_the_optimum_has_no_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    y = (torch.rand(50, 1, generator=generator) > 0.5).double()
    theta = convergence.optimum(x, y, 0.01)
    slope = (
        torch.cat([x, torch.ones(50, 1)], 1).T @ (torch.sigmoid(x @ theta[:2] + theta[2]) - y[:, 0]) / 50 + 0.01 * theta
    )
    assert slope.abs().max() < 1e-12 and all(map(math.isfinite, theta.tolist()))
