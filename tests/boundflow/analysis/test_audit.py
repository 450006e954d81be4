"""What predictions lean on: terms by owner add up to the support, and a list of samples settles what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn as nn
from moons import moons
from threat_cases import THREATS, T, certified, observed

import boundflow as bf
from boundflow.analysis.checklist import ClauseTerms, Elements, choice, gains, settled
from boundflow.analysis.owner_terms import by_column, by_owner, coefficients, total
from boundflow.analysis.verified_rows import tracked

RECIPE = {"optimizer_options": {"lr": 0.3}, "epochs": 3, "order": 5, "progress": False}


def linear(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, outputs).double()


@pytest.mark.parametrize("name", THREATS)
def test_terms_by_owner_add_up_to_the_support(name: str) -> None:
    """The sum over clauses of the k largest terms, and the free rows, is what the support function says."""
    threat, _, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    certificate = certified(threat, task, data if prepare is None else prepare(data), "zonotope")
    assert certificate.model is not None
    known = tracked(certificate.model)
    for parameter in certificate.model.parameters():
        given = coefficients(known.space, parameter.form.dense)
        free = torch.from_numpy(known.space.owners_and_parts(given.numbers)[1] < 0)
        ours = total(by_owner(known.space, given)) + given.values[:, free].abs().sum(1)
        support = known.space.support(parameter.form).expand(2, *parameter.shape).flatten(1)
        torch.testing.assert_close(ours, support, rtol=1e-9, atol=1e-12)
        columns, reaches = by_column(known.space, given)
        assert len(columns) == reaches.shape[-1]
        assert bool((reaches.sum(-1) >= total(by_owner(known.space, given)) - 1e-12).all())


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("threat", [T.AtMost(4, T.Labels(classes=3)), T.Linf(0.2)], ids=["labels", "features"])
def test_the_list_settles_what_it_says(threat: bf.threats.Threat, outputs: int) -> None:
    x, y = moons(60, 0)
    threat = T.AtMost(4, T.Labels()) if outputs == 1 and threat.budget else threat
    y = y if outputs == 1 else y.long() + (x[:, 0] > 1).long()
    loss = "bce" if outputs == 1 else "ce"
    certificate = bf.certify(linear(outputs), (x, y), threat=threat, loss=loss, **RECIPE)
    test = moons(200, 2)[0]
    before = certificate.predict(test)
    found = certificate.audit(test, budget=12)
    assert 0 < len(found) < 200 and not found.certified.any() and (found.margin <= 0).all()
    assert found.inputs.tolist() == np.flatnonzero(~before.certified.numpy()).tolist()
    assert 0 < len(found.checklist.samples) <= 12 and not found.checklist.forecast
    after = certificate.verified(found.checklist.samples).predict(test)
    assert np.flatnonzero((after.certified & ~before.certified).numpy()).tolist() == found.checklist.settles.tolist()
    assert len(found.checklist.settles) > 0 and bool(after.certified[before.certified].all())
    assert (found.owned <= found.reach + 1e-9).all() and (found.terms[:, 0] >= found.terms[:, -1]).all()
    every = certificate.audit(test, every=True)
    assert len(every) == 200 and not len(every.checklist.samples)
    torch.testing.assert_close(torch.from_numpy(every.margin), before.lead.gather(1, before.label[:, None])[:, 0])
    assert "more predictions are certain" in str(found.checklist) or "more prediction is" in str(found.checklist)


def test_a_forecast_for_missing_cells() -> None:
    x, y = moons(60, 0)
    x[::4, 1] = float("nan")
    certificate = bf.certify(linear(), (x, y), threat=T.Missing((-0.5, 1.0)), loss="bce", **RECIPE)
    found = certificate.audit(moons(200, 2)[0], budget=8)
    assert found.checklist.forecast and set(found.checklist.samples.tolist()) <= set(range(0, 60, 4))
    assert "a forecast" in str(found.checklist)
    assert found.columns.tolist() == [0, 1] and (found.by_column[:, 0] == 0).all()


def test_the_audit_of_a_regression() -> None:
    x, _ = moons(60, 0)
    y = x[:, 0] * 0.5
    certificate = bf.certify(linear(), (x, y), threat=T.AtMost(3, T.Labels(1.0)), loss="mse", **RECIPE)
    found = certificate.audit(moons(20, 2)[0], budget=30)
    list_of = found.checklist
    assert len(found) == 20 and list_of.width_after is not None and list_of.width_after < (list_of.width_before or 0)
    assert "wide on average" in str(list_of)


def test_what_can_change_nothing_is_not_worth_a_check() -> None:
    """Samples that do not count in the loss are on no list, however many could be checked."""
    x, _ = moons(20, 0)
    weights = (torch.arange(20) % 2).double()
    options = {"loss": "mse", "sample_weights": weights, **RECIPE}
    certificate = bf.certify(linear(), (x, x[:, 0]), threat=T.AtMost(3, T.Labels(1.0)), **options)
    found = certificate.audit(x, budget=20).checklist.samples
    assert sorted(found.tolist()) == list(range(1, 20, 2))


@pytest.mark.parametrize("budget", [-1, 1.5, True])
def test_a_budget_that_is_none(budget: object) -> None:
    x, y = moons(20, 0)
    certificate = bf.certify(linear(), (x, y), threat=T.Linf(0.01), loss="bce", **RECIPE)
    with pytest.raises(ValueError, match="how many samples can be checked"):
        certificate.audit(x, budget=budget)


# --- the choice ------------------------------------------------------------------------------------------------------


def brute(elements: Elements, chosen: np.ndarray) -> np.ndarray:
    """The reach that is taken off, by its definition."""
    found = np.zeros(len(elements.deficit))
    for part in elements.clauses:
        for place, (terms, names) in enumerate(zip(part.terms, part.owners, strict=True)):
            every = np.zeros(len(chosen))
            every[names] = terms
            k = len(chosen) if part.budget is None else part.budget
            found[place] += np.sort(every)[-k:].sum() - np.sort(np.where(chosen, 0.0, every))[-k:].sum()
    return found


def random_clause(random: np.random.Generator, budget: int | None) -> ClauseTerms:
    owners = np.stack([random.permutation(12) for _ in range(6)])
    return ClauseTerms(-np.sort(-random.random((6, 12)), 1), owners, budget)


@pytest.mark.parametrize("budgets", [(None,), (2,), (5,), (None, 3), (1, 4)])
def test_gains_are_those_of_the_definition(budgets: tuple[int | None, ...]) -> None:
    random = np.random.default_rng(0)
    clauses = tuple(random_clause(random, budget) for budget in budgets)
    candidates = np.stack([random.permutation(12) for _ in range(6)])
    elements = Elements(np.array([0, 0, 1, 2, 3, 3]), random.random(6), clauses, candidates)
    for count in range(5):
        chosen = np.zeros(12, dtype=bool)
        chosen[random.permutation(12)[:count]] = True
        found = gains(elements, chosen, 6)
        for element in range(6):
            further = chosen.copy()
            order = [place for place in candidates[element] if not chosen[place]]
            for more in range(7):
                further[order[:more]] = True
                assert found[element, more] == pytest.approx(brute(elements, further)[element], abs=1e-12)


def test_the_cheapest_prediction_is_settled_first() -> None:
    """One prediction needs one sample, two share another two, one can never be settled."""
    terms = np.array([[3.0, 1.0, 0.5], [2.0, 1.5, 0.1], [2.0, 1.5, 0.1], [0.2, 0.1, 0.1]])
    owners = np.array([[0, 3, 4], [1, 2, 3], [2, 1, 3], [5, 0, 1]])
    elements = Elements(np.arange(4), np.array([2.5, 3.2, 3.2, 9.0]), (ClauseTerms(terms, owners, None),), owners)
    totals = np.array([3.0, 3.5, 3.5, 1.2, 0.6, 0.2])
    assert choice(elements, totals, 1).tolist() == [0]
    assert sorted(choice(elements, totals, 3).tolist()) == [0, 1, 2]
    chosen = np.isin(np.arange(6), [0, 1, 2])
    assert settled(elements, chosen).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_that_no_sample_can_settle_come_last(dtype: type) -> None:
    """Where no sample has a term, in whichever precision, nothing is divided by it."""
    terms = np.array([[0.0, 0.0], [2.0, 0.0], [1e-45, 0.0]], dtype=dtype)
    owners = np.array([[0, 1], [1, 0], [0, 1]])
    elements = Elements(np.arange(3), np.array([1.0, 1.5, 3.0], dtype=dtype), (ClauseTerms(terms, owners, 2),), owners)
    assert choice(elements, np.array([0.5, 2.0]), 1).tolist() == [1]
