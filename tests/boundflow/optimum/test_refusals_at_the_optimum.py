"""What a certificate at the optimum cannot be about is refused by name; what is given may change afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundflow as bf
from boundflow.threats import AtMost, Labels, Linf, Removal

X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(20) % 2


def certified(**options):
    given = {"threat": AtMost(2, Labels()), "l2": 0.1, **options}
    return bf.certify_optimum(given.pop("head", nn.Linear(3, 2)), given.pop("data", (X, Y)), **given)


REFUSED = {
    "moved features": ({"threat": Linf(0.1)}, bf.BoundFlowError, "Linf.*bf.certify"),
    "removed samples": ({"threat": AtMost(1, Removal())}, bf.BoundFlowError, "Removal.*bf.certify"),
    "no ridge": ({"l2": 0.0}, ValueError, "above 0"),
    "an unknown loss": ({"loss": "hinge"}, ValueError, "squared_hinge"),
    "classes that are numbers": ({"threat": Labels(0.1)}, ValueError, "Labels\\(\\)"),
    "too few outputs": ({"head": nn.Linear(3, 1)}, ValueError, "one output for each"),
    "too many outputs": ({"loss": "logistic"}, ValueError, "one output"),
    "labels that are no classes": ({"data": (X, Y + 1)}, ValueError, "from 0 to 1"),
    "a free intercept": ({"loss": "squared_hinge", "head": nn.Linear(3, 1)}, bf.BoundFlowError, "penalise_bias"),
    "weights of classes for squared loss": ({"class_weights": [1, 2]}, bf.BoundFlowError, "sample_weights"),
    "weights of three classes": (
        {"class_weights": [1, 2, 3], "loss": "logistic", "head": nn.Linear(3, 1)}, ValueError, "two classes"
    ),
    "negative weights": ({"sample_weights": -torch.ones(20)}, ValueError, "at least 0"),
    "tiny weights": (
        {"sample_weights": 0 * X[:, 0] + 1e-200},
        ValueError,
        "weights.*modulus",
    ),
    "huge features": ({"data": (X * 1e200, Y)}, ValueError, "features.*modulus"),
    "a ridge that scaling loses": ({"data": (X * 1e85, Y), "l2": 1e-150}, ValueError, "l2 is too small"),
    "features that draw": ({"features": lambda x: x + torch.rand(1)}, bf.UnsupportedProgram, "draw"),
    "features of a batch": ({"features": lambda x: x - x.mean(0)}, bf.UnsupportedProgram, "other rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    options, error, words = REFUSED[name]
    with pytest.raises(error, match=words) as refused:
        certified(**options)
    assert "\n" not in str(refused.value)


def test_what_was_given_may_change_afterwards() -> None:
    x, y = X.clone(), Y.clone()
    features = nn.Linear(3, 4).double()
    certificate = certified(data=(x, y), features=features, head=nn.Linear(4, 2))
    before = certificate.predict(X).lead
    x.zero_(), y.zero_(), nn.init.zeros_(features.weight)
    assert torch.equal(certificate.predict(X).lead, before)  # type: ignore[arg-type]


def test_a_wider_threat_to_inputs_gives_less() -> None:
    certificate = certified(features=nn.Sequential(nn.Linear(3, 8), nn.Tanh()), head=nn.Linear(8, 2))
    point, near, far = (certificate.predict(X, epsilon) for epsilon in (0.0, 0.01, 0.1))
    assert (point.lead >= near.lead).all() and (near.lead >= far.lead).all()
    moved = certificate.nominal(X + 0.01 * torch.randn(20, 3, dtype=torch.float64).clamp(-1, 1)).argmax(1)
    assert (moved == near.label)[near.certified].all()


def test_a_grid_of_ridges_is_certain_of_what_all_are() -> None:
    grid, single = certified(l2=[0.03, 0.3]), [certified(l2=ridge) for ridge in (0.03, 0.3)]
    answers = [one.predict(X) for one in single]
    sure = answers[0].certified & answers[1].certified & (answers[0].label == answers[1].label)
    assert torch.equal(grid.predict(X).certified, sure)


def test_weights_that_are_given_are_charged_for_what_they_leave() -> None:
    certificate = certified()
    head = nn.Linear(3, 2).double()
    head.load_state_dict({"weight": certificate.nominal.weight, "bias": certificate.nominal.bias})  # type: ignore[union-attr]
    same = certified(head=head, fitted=True)
    assert torch.allclose(same.predict(X).lead, certificate.predict(X).lead, rtol=0, atol=1e-9)  # type: ignore[arg-type]
    with torch.no_grad():
        head.weight += 0.05
    off = certified(head=head, fitted=True).predict(X)  # what they leave leads to the same optimum
    assert torch.allclose(off.lower, certificate.predict(X).lower, rtol=0, atol=1e-9)
    assert torch.allclose(off.upper, certificate.predict(X).upper, rtol=0, atol=1e-9)


def test_solvers_that_stop_at_a_gradient_are_inside_its_tolerance() -> None:
    """Weights that leave the gradient s are the optimum of the objective less <s, .>, which may be any so small."""
    tolerance, n = 0.01, len(X)
    exact, within = (certified(tolerance=t).predict(X) for t in (0.0, tolerance))
    light = {"sample_weights": torch.full((n,), 0.1), "l2": 0.01}  # a tenth of the same, to a tenth of the tolerance
    assert torch.allclose(
        certified(tolerance=tolerance / 10, **light).predict(X).lower, within.lower, rtol=0, atol=1e-9
    )
    rows = torch.cat((X, torch.ones(n, 1, dtype=torch.float64)), 1)
    ridge = torch.diag(torch.tensor([0.1 * n] * 3 + [0.0], dtype=torch.float64))
    made = torch.linalg.solve(rows.T @ rows + ridge, rows.T @ nn.functional.one_hot(Y, 2).double())
    left = torch.linalg.solve(rows.T @ rows + ridge, n * tolerance * torch.ones(4, 2, dtype=torch.float64))
    for signs in (1.0, -1.0):
        logits = rows @ (made + signs * left)
        assert (within.lower <= logits).all() and (logits <= within.upper).all()
    direction = torch.linalg.solve(rows.T @ rows + ridge, rows[0])
    furthest = n * tolerance * direction.abs().sum()
    assert torch.allclose(exact.lower[0] - within.lower[0], furthest.expand(2), rtol=1e-9, atol=0)
