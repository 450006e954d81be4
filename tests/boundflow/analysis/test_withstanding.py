"""What predictions withstand: against plain trainings on all datasets with so many flips, and on moved ones."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from flips import RECIPE, flips, network, plain_answers, points, task, trained
from poisoning import poisoned_inputs

import boundflow as bf
from boundflow.analysis import withstanding
from boundflow.analysis.smaller_threats import levels, with_budget, with_share
from boundflow.files.certificate_files import over_deep_rows
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Missing, Quantised, Removal, Replacement, Tolerance


@pytest.mark.parametrize("hidden", [False, True])
def test_no_dataset_with_as_many_flips_changes_what_withstands_them(hidden: bool) -> None:
    x, y = task(40 if hidden else 9)
    model, inputs, k = network(hidden=hidden), points(), 2 if hidden else 3
    found = bf.certify(model, (x, y), threat=flips(k), **RECIPE).withstands(inputs)
    assert len(set(found.value.tolist())) > 2, "a test of one answer tests little"
    for count in range(k + 1):
        which = list(itertools.combinations(range(len(x)), count))
        labels = y.repeat(len(which), 1)
        for row, flipped in enumerate(which):
            labels[row, list(flipped)] = 1 - labels[row, list(flipped)]
        answers = plain_answers(model, inputs, x.expand(len(which), *x.shape), labels)
        changed = (answers != found.label).any(0)
        assert not bool((changed & (found.value >= count)).any())


@pytest.mark.parametrize(
    "threat",
    [flips(8), AtMost(8, Removal()), Linf(0.02) & flips(8), flips(8) & Linf(0.02), AtMost(8, Linf(0.3))],
    ids=repr,
)
def test_a_level_is_what_the_model_at_that_budget_certifies(threat: bf.threats.Threat) -> None:
    x, y = task(100)
    certificate, inputs = bf.certify(network(), (x, y), threat=threat, **RECIPE), points(200)
    found, asked = certificate.withstands(inputs), levels(certificate)
    assert len(set(found.value.tolist())) > 3
    for level in range(9):
        certain = asked.at(level).predict(inputs).certified
        assert bool((certain == (found.value >= level)).all()), level


def test_a_smaller_budget_gives_a_smaller_set() -> None:
    x, y = task(60)
    certificate = bf.certify(network(hidden=True), (x, y), threat=flips(8), **RECIPE)
    assert certificate.model is not None
    before = None
    for budget in range(9):
        bounds = [p.set.bounds for p in with_budget(certificate.model, 0, budget).parameters()]  # type: ignore[attr-defined]
        if before is not None:
            assert all(bool(((b[0] <= a[0]) & (a[1] <= b[1])).all()) for a, b in zip(before, bounds, strict=True))
        before = bounds
    whole = [p.set.bounds for p in certificate.model.parameters()]  # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, b in zip(before or [], whole, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.13, 0.5, 0.97])
def test_shorter_moves_stay_inside(share: float, dtype: torch.dtype) -> None:
    x, y = task(20)
    x, model = (10 * x).to(dtype), network(hidden=True).to(dtype)
    epsilon = 0.05
    certificate = bf.certify(model, (x, y), threat=Linf(epsilon), **RECIPE)
    assert certificate.model is not None
    slack = certificate.record["clauses"][0]["changes"][0]["shrinks"]["slack"]
    smaller = with_share(certificate.model, [0], min(1.0, share + slack))
    datasets = poisoned_inputs(x, y, share * epsilon, 40, seed=1)
    members = trained(model, datasets, y.expand(len(datasets), -1))
    for name, parameter in smaller.named_parameters():
        low, high = parameter.set.bounds  # type: ignore[attr-defined]
        assert bool(((low <= members[name]) & (members[name] <= high)).all()), name
    widths = [(p.upper - p.lower).sum() for p in smaller.parameters()]  # type: ignore[attr-defined]
    whole = [(p.upper - p.lower).sum() for p in certificate.model.parameters()]  # type: ignore[attr-defined]
    assert sum(widths) < sum(whole)


def test_every_move_keeps_its_own_slack() -> None:
    """Far from zero a short move is mostly rounding: the other feature, which moves far, has next to none.

    At a share t the rows of a feature hold ``fl(x + d)`` for all ``|d| <= t a``, in fractions.
    """
    x, y = torch.tensor([[3.0, 1000.0], [-1.0, 1000.25], [0.5, 999.5]]), torch.tensor([0, 1, 0])
    first, second = Linf(0.5).on(features=[0]), Linf(6e-4).on(features=[1])
    model = torch.nn.Linear(2, 2)
    for threat in (first & second, second & first):
        certificate = bf.certify(model, (x, y), threat=threat, loss="ce", steps=1, optimizer_options={"lr": 0.01})
        asked, space = levels(certificate), next(iter(certificate.model.parameters())).symbols  # type: ignore[union-attr]
        whole = {n: over_deep_rows(p).form for n, p in certificate.model.named_parameters()}  # type: ignore[union-attr]
        for share in (0.0, 0.06, 0.5, 0.99):
            made = dict(asked.make(round(100 * share)).named_parameters())
            for name, form in whole.items():
                columns = space.columns(form.rows.numbers)
                shorter = made[name].form.generators.abs().sum((1, *range(2, form.generators.dim())))
                for place, (column, row) in enumerate(zip(columns.tolist(), form.generators, strict=True)):
                    if column < 0 or not bool(row.any()):
                        continue
                    amount, values = (0.5, 6e-4)[column], x[:, column]
                    moves = [(values.double() + side * share * amount).float() - values for side in (-1, 1)]
                    of_whole = Linf(amount).deviation(values[:, None], values[:, None], False).generators
                    far = torch.stack(moves).abs().amax() / of_whole.written_out().amax()  # type: ignore[union-attr]
                    assert float(shorter[place]) >= float(far * row.abs().sum()) * (1 - 1e-5), (share, name, column)


@pytest.mark.parametrize("hidden", [False, True])
def test_the_worst_shorter_moves_stay_inside(hidden: bool) -> None:
    """Moves along the gradient of a parameter, so short that there is little besides the linear part."""
    x, y = task(20)
    model, epsilon, share = network(hidden=hidden), 1e-5, 0.5
    certificate = bf.certify(model, (x, y), threat=Linf(epsilon), **RECIPE)
    assert certificate.model is not None
    slack = certificate.record["clauses"][0]["changes"][0]["shrinks"]["slack"]
    smaller = with_share(certificate.model, [0], min(1.0, share + slack))
    observed = x.unsqueeze(0).requires_grad_()
    for name, parameter in trained(model, observed, y.unsqueeze(0)).items():
        low, high = dict(smaller.named_parameters())[name].set.bounds  # type: ignore[attr-defined]
        for place in range(parameter[0].numel()):
            (slope,) = torch.autograd.grad(parameter.flatten()[place], observed, retain_graph=True)
            for side in (-1, 1):
                moved = (observed + side * share * epsilon * slope.sign()).detach()
                found = trained(model, moved, y.unsqueeze(0))[name].flatten()[place]
                assert low.flatten()[place] <= found <= high.flatten()[place]


@pytest.mark.parametrize(
    "threat", [Linf(0.2), L2(0.2), L1(0.2), AtMost(4, Linf(0.5)), Linf(0.1) & AtMost(1, Labels(classes=2))], ids=repr
)
def test_moves_of_a_ball_change_nothing_that_withstands_them(threat: bf.threats.Threat) -> None:
    x, y = task(20)
    model, inputs = network(), points()
    found = bf.certify(model, (x, y), threat=threat, **RECIPE).withstands(inputs, over="epsilon")
    assert found.unit == "epsilon" and len(set(found.value.tolist())) > 3
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(30, *x.shape, generator=generator, dtype=torch.float64)
    norm = {"L2": 2.0, "L1": 1.0}.get(repr(threat)[:2], torch.inf)
    for value in sorted(set(found.value.tolist())):
        if value < 0:
            continue
        moves = random / torch.linalg.vector_norm(random, ord=norm, dim=2, keepdim=True) * value
        if norm == torch.inf:
            moves = random.sign() * value
        if threat.budget == 4:
            moves[:, 4:] = 0
        answers = plain_answers(model, inputs, x + moves * (1 - 1e-12), y.expand(30, -1))
        assert not bool(((answers != found.label).any(0) & (found.value >= value)).any())


def test_radii_by_feature_are_told_as_a_share() -> None:
    x, y = task(20)
    found = bf.certify(network(), (x, y), threat=Tolerance({0: 0.2, 2: "5%"}), **RECIPE).withstands(points())
    assert (found.unit, found.most) == ("share", 1.0)


def test_the_best_of_several_runs_counts() -> None:
    x, y = task(60)
    runs = [bf.certify(network(), (x, y), threat=flips(k), **RECIPE) for k in (1, 4, 12)]
    inputs = points(100)
    each = torch.stack([one.withstands(inputs).value for one in runs])
    together = bf.withstands(runs[::-1], inputs)
    assert bool((together.value == each.amax(0)).all()) and together.most == 12
    truth = (inputs.sum(1) > 0).long()
    curve = runs[0].curve(inputs, truth, *runs[1:])
    at = dict(zip(curve.values, curve.certified, strict=True))
    assert at[1] >= runs[0].accuracy(inputs, truth).certified and at[0] <= curve.nominal
    assert curve.certified == sorted(curve.certified, reverse=True)
    assert curve.as_data()["points"][0]["value"] == 0
    with pytest.raises(ValueError, match="beyond k = 12"):
        bf.curve(runs, inputs, truth, values=[13])
    with pytest.raises(ValueError, match="100 inputs and 3 labels"):
        bf.curve(runs, inputs, truth[:3])


def test_attacks_stand_above_the_certified_accuracy() -> None:
    """What few changes break is broken by more of them; what is broken cannot be certain."""
    x, y = task(60)
    inputs = points(100)
    truth, recipe = (inputs.sum(1) > 0).long(), bf.Recipe(**RECIPE)
    runs = [bf.certify(network(), (x, y), recipe, threat=flips(k)) for k in (2, 6)]
    light = {"attacks": ["random-corners", "hypergradients"], "steps": 1, "restarts": 1, "targets": 4}
    broken = {
        k: bf.attack(network(), (x, y), recipe, threat=flips(k), test=(inputs, truth), **light).broken for k in (6, 2)
    }
    assert bool(broken[6].any())
    curve = bf.curve(runs, inputs, truth, broken=broken)
    assert curve.attacked is not None and {2, 6} <= set(curve.values)
    assert all(low <= high <= curve.nominal for low, high in zip(curve.certified, curve.attacked, strict=True))
    assert curve.attacked == sorted(curve.attacked, reverse=True) and curve.attacked[-1] < curve.nominal
    assert curve.as_data()["points"][-1]["attacked_accuracy"] == curve.attacked[-1]
    certain = curve.withstood.value >= 2
    with pytest.raises(bf.BoundFlowError, match="changed .* predictions that are certain"):
        bf.curve(runs, inputs, truth, broken={2: certain})
    with pytest.raises(ValueError, match="100 inputs, and attacks on 3"):
        bf.curve(runs, inputs, truth, broken={2: certain[:3]})


def test_a_file_answers_as_the_run(tmp_path: Path) -> None:
    x, y = task(40)
    for threat, over in ((flips(5), "k"), (Linf(0.1), "epsilon")):
        certificate = bf.certify(network(hidden=True), (x, y), threat=threat, **RECIPE)
        certificate.save(tmp_path / "certificate")
        again = bf.load(tmp_path / "certificate")
        assert torch.equal(again.withstands(points()).value, certificate.withstands(points(), over=over).value)


def test_runs_of_different_recipes_are_not_combined() -> None:
    x, y = task(20)
    first = bf.certify(network(), (x, y), threat=flips(2), **RECIPE)
    others = {
        "epochs": bf.certify(network(), (x, y), threat=flips(3), **{**RECIPE, "epochs": 5}),
        "data": bf.certify(network(), (x + 1, y), threat=flips(3), **RECIPE),
        "different kinds": bf.certify(network(), (x, y), threat=AtMost(2, Removal()), **RECIPE),
    }
    for word, other in others.items():
        with pytest.raises(bf.DifferentRuns, match=word):
            bf.withstands([first, other], points())
    with pytest.raises(bf.DifferentRuns, match="verified"):
        bf.withstands([first, first.verified([0, 1])], points())
    other = bf.certify(network(), (x, y), threat=flips(3), **RECIPE)
    with torch.no_grad():
        next(other.nominal.parameters())[0, 0] += 1e-15
    with pytest.raises(bf.DifferentRuns, match="last bit"):
        bf.withstands([first, other], points())


KINDS = {  # of threats that must not be combined, and what is asked
    "another radius": ("k", AtMost(2, Linf(0.5)), AtMost(3, Linf(0.01))),
    "behind a run that nothing was done to": ("k", Linf(0.0), AtMost(2, Linf(0.5)), AtMost(3, Linf(0.01))),
    "other samples": ("k", AtMost(2, Removal()), AtMost(3, Removal().on(samples=[0, 1, 2, 3]))),
    "another budget": ("epsilon", AtMost(2, Linf(0.1)), AtMost(1, Linf(0.2))),
    "another norm": ("epsilon", Linf(0.1), L2(0.2)),
    "other features": ("epsilon", Linf(0.1), Linf(0.2).on(features=[0])),
    "features that do not move": ("epsilon", Linf([0.1, 0.1, 0.1]), Linf([0.2, 0.2, 0.0])),
    "shares of other amounts": ("epsilon", Tolerance({0: 0.1, 1: 0.2}), Tolerance({0: 0.2, 1: 0.3})),
    "other columns": ("epsilon", Tolerance({0: 0.1}), Tolerance({1: 0.2})),
    "other labels beside": ("epsilon", Linf(0.1) & flips(1), Linf(0.2) & flips(2)),
}


@pytest.mark.parametrize("case", KINDS)
def test_threats_of_different_kinds_are_not_combined(case: str) -> None:
    over, *threats = KINDS[case]
    x, y = task(8)
    made = [bf.certify(network(), (x, y), threat=threat, **RECIPE) for threat in threats]
    with pytest.raises(bf.DifferentRuns, match="different kinds"):
        bf.withstands(made, points(), over=over)


LEFT = {  # of threats under which something changes even at level 0, and what is asked
    "moves of all beside flips": ("k", Linf(0.5) & flips(2)),
    "flips beside moves": ("epsilon", Linf(0.01) & flips(2)),
    "flips with moves": ("epsilon", AtMost(2, Linf(0.01) & Labels(classes=2))),
}


@pytest.mark.parametrize("case", LEFT)
def test_a_run_that_nothing_was_done_to_says_nothing_beside_other_changes(case: str) -> None:
    """It is certain of answers that the changes that are left at level 0 can turn."""
    over, threat = LEFT[case]
    x, y = task(8)
    runs = [bf.certify(network(), (x, y), threat=one, **RECIPE) for one in (threat, Linf(0.0))]
    for order in (runs, runs[::-1]):
        with pytest.raises(bf.DifferentRuns, match="nothing could be changed in one of these runs"):
            bf.withstands(order, points(), over=over)


def test_no_value_below_zero_is_asked_about() -> None:
    x, y = task(20)
    found = bf.certify(network(), (x, y), threat=flips(2), **RECIPE).withstands(points())
    for value in (-1, float("nan")):
        with pytest.raises(ValueError, match="0 or more"):
            found.certain(value)


def test_a_share_of_nothing_is_not_the_same_radius() -> None:
    """Five per cent of 1 and of 0: a zero that moves by 0.05 is no dataset of this threat."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    threat = Tolerance({0: "5%", 1: "5%"})
    found = bf.certify(network(2), (x, torch.tensor([0, 1, 0, 1])), threat=threat, **RECIPE).withstands(x)
    assert (found.unit, found.most) == ("share", 1.0)
    of_ones = threat.shrinks(torch.ones(4, 2, dtype=torch.float64))
    assert of_ones is not None and of_ones["epsilon"] == pytest.approx(0.05)
    assert threat.shrinks(torch.zeros(4, 2, dtype=torch.float64)) == {"epsilon": 0.0, "slack": 0.0}


def test_radii_that_are_almost_the_same_are_one_and_the_least_of_them() -> None:
    x = torch.ones(4, 3)
    for threat, epsilon in ((Linf([0.1, 0.1005, 0.0]), 0.1), (Linf([0.1, 0.2, 0.0]), None), (Linf(0.0), 0.0)):
        shrinks = threat.shrinks(x)
        assert shrinks is not None and shrinks["epsilon"] == epsilon


def test_threats_that_differ_in_what_is_asked_are_combined() -> None:
    x, y = task(8)
    for over, *threats in (
        ("k", Linf(0.0), AtMost(1, Linf(0.1)), AtMost(2, Linf(0.1))),
        ("epsilon", Linf(0.1), Linf(0.2)),
        ("epsilon", Tolerance({0: 0.1, 1: 0.1}), Tolerance({0: 0.2, 1: 0.2})),
        ("epsilon", Linf([0.1, 0.1 + 1e-9, 0.0]), Linf([0.2, 0.2 + 1e-9, 0.0])),  # as the columns of a table are scaled
        ("epsilon", Linf(0.1).on(features=[0]) & flips(1), Linf(0.2).on(features=[0]) & flips(1)),
    ):
        made = [bf.certify(network(), (x, y), threat=threat, **RECIPE) for threat in threats]  # type: ignore[misc]
        assert [levels(one, over).most for one in made] == sorted({levels(one, over).most for one in made})
        assert bf.withstands(made, points(), over=over).most == max(levels(one, over).most for one in made)


REFUSED = {
    "clip": (Linf(0.1, clip=(-9, 9)), "valid range"),
    "a grid": (Quantised(0.1, 0.5), "grid"),
    "nothing moves": (Linf(0.0), "no smaller threat"),
    "missing values": (Linf(0.1) & Missing((-1.0, 1.0)), "missing values"),
    "labels without a budget": (Labels(classes=2), "radius that shrinks"),
    "two budgets": (AtMost(1, Labels(classes=2)) & AtMost(1, Removal()), "several budgets"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_be_sound_is_refused(case: str) -> None:
    threat, words = REFUSED[case]
    x, y = task(10)
    certificate = bf.certify(network(), (x, y), threat=threat, **RECIPE)
    with pytest.raises(bf.NoSmallerThreat, match=words):
        certificate.withstands(points())


@pytest.mark.parametrize("fields", [{"domain": "interval"}, {"memory": 1.0}], ids=["interval", "memory"])
def test_rows_that_were_not_tracked_answer_at_their_own_threat_alone(fields: dict[str, object]) -> None:
    x, y = task(20)
    runs = [bf.certify(network(), (x, y), threat=flips(k), **RECIPE, **fields) for k in (1, 2)]
    with pytest.raises(bf.NoSmallerThreat, match="not tracked"):
        runs[0].withstands(points())
    with pytest.raises(bf.NoSmallerThreat, match="not tracked"):
        runs[0].curve(points(), torch.zeros(40))
    found = bf.withstands(runs, points())
    certain = [one.predict(points()).certified for one in runs]
    expected = torch.where(certain[1], 2, torch.where(certain[0], 1, -1))
    assert torch.equal(found.value, expected)


def test_replaced_samples_have_no_rows() -> None:
    x, y = task(20)
    certificate = bf.certify(network(), (x, y), threat=AtMost(2, Replacement()), clip_gradients=0.1, **RECIPE)
    with pytest.raises(bf.NoSmallerThreat, match="not tracked"):
        certificate.withstands(points())


def test_questions_that_have_no_answer() -> None:
    x, y = task(20)
    certificate = bf.certify(network(), (x, y), threat=flips(2), **RECIPE)
    with pytest.raises(ValueError, match="over must be"):
        certificate.withstands(points(), over="samples")
    with pytest.raises(ValueError, match="no certificates"):
        bf.withstands([], points())
    del certificate.record["clauses"]
    with pytest.raises(bf.NoSmallerThreat, match="train again"):
        certificate.withstands(points())
    model = torch.nn.Sequential(torch.nn.Linear(3, 1)).double()
    numbers = bf.certify(model, (x, x[:, :1]), threat=Linf(0.1), loss="mse", optimizer_options={"lr": 0.1})
    with pytest.raises(bf.BoundFlowError, match="classes"):
        numbers.withstands(points())


@pytest.mark.parametrize("also", [{"epsilon": 0.5}, {"clip": (0.0, 1.0)}], ids=["epsilon", "clip"])
def test_a_radius_beside_a_threat_to_the_inputs_is_refused(also: dict[str, Any]) -> None:
    """However many certificates are asked: the radius was passed over where there were several, or a vote."""
    x, y = task(20)
    runs = [bf.certify(network(), (x, y), threat=flips(k), **RECIPE) for k in (1, 2)]
    inputs, asked = points(4), {"threat": Linf(0.0), **also}
    vote = bf.Ensemble.of([[runs[0]]], (x, y), [torch.arange(20)])
    for ask in (runs[0].withstands, partial(bf.withstands, runs), vote.predict, vote.withstands):
        with pytest.raises(ValueError, match="not both"):
            ask(inputs, **asked)
    for draw in (runs[0].curve, partial(bf.curve, runs), vote.curve):
        with pytest.raises(ValueError, match="not both"):
            draw(inputs, torch.zeros(4), **asked)


def test_a_void_set_withstands_nothing() -> None:
    x, y = task(20)
    certificate = bf.certify(network(), (x, y), threat=Linf(5.0), loss="ce", epochs=9, optimizer_options={"lr": 1e300})
    assert certificate.void_at_step is not None
    assert set(certificate.withstands(points()).value.tolist()) == {-1.0}


def test_a_run_without_a_threat_answers_for_no_changes() -> None:
    x, y = task(20)
    runs = [bf.certify(network(), (x, y), threat=threat, **RECIPE) for threat in (Linf(0.0), flips(12))]
    alone, together = (bf.withstands(some, points()) for some in (runs[1:], runs))
    assert bool((alone.value == -1).any()) and bool((together.value >= 0).all())
    assert torch.equal(together.value, alone.value.clamp_min(0))


# --- roundings, against exact fractions -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_the_lifted_radius_of_a_shorter_move_is_a_share_of_the_row(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1e-3, 1.0, 1e3, 1e5, 0.0])
    x = (torch.randn(5, 6, generator=generator) * sizes.unsqueeze(1)).to(dtype)
    for amount in (1e-5, 0.01, 0.3, 7.0):
        row = Linf(amount).deviation(x, x, budgeted=False).generators.written_out().amax(0)  # type: ignore[union-attr]
        for share in (0.0, 0.001, 0.3, 0.99, 1.0):
            slack = Linf(amount).shrinks(x)["slack"]  # type: ignore[index]
            factor = Fraction(min(1.0, share + slack))
            shorter = Linf(share * amount).deviation(x, x, budgeted=False).bounds - x
            for wide, bounds in zip(row.flatten().tolist(), shorter.abs().amax(0).flatten().tolist(), strict=True):
                assert Fraction(bounds) <= factor * Fraction(wide) or factor == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_shorter_rows_say_what_they_are_off_by(dtype: torch.dtype) -> None:
    rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(1)).to(dtype) * torch.logspace(-38, 3, 8).to(
        dtype
    )
    for factor in (0.1, 0.7310585, 1.0):
        scaled, lost = bf.rounding.shorter(rows, factor)
        for place in range(8):
            pairs = zip(scaled[:, place].tolist(), rows[:, place].tolist(), strict=True)
            off = sum(abs(Fraction(short) - Fraction(factor) * Fraction(whole)) for short, whole in pairs)
            assert off <= Fraction(float(lost[place]))


# --- what a file says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ("no list", "no list"),
        ([1], "clause"),
        ([{"budget": 0, "changes": []}], "number of samples"),
        ([{"budget": 3, "changes": [{}]}], "change"),
        ([{"budget": 3, "changes": [{"about": "x", "recentred": False, "shrinks": 1}]}], "shrinks"),
        (
            [
                {
                    "budget": 3,
                    "changes": [{"about": "x", "recentred": False, "shrinks": {"epsilon": 1.0, "slack": -1.0}}],
                }
            ],
            "no number",
        ),
        ([{"budget": 7, "changes": []}], "budgets are not those"),
    ],
    ids=["text", "number", "none", "unknown", "shrinks", "negative", "other budget"],
)
def test_a_file_with_another_threat_is_refused(clauses: object, words: str, tmp_path: Path) -> None:
    x, y = task(10)
    certificate = bf.certify(network(), (x, y), threat=flips(3), **RECIPE)
    certificate.record["clauses"] = clauses
    certificate.save(tmp_path / "file")
    with pytest.raises(bf.WrongContent, match=words):
        bf.load(tmp_path / "file")


def test_a_model_in_training_mode_answers_as_in_evaluation() -> None:
    x, y = task(20)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5)).double()
    certificate = bf.certify(model, (x, y), threat=flips(2), **RECIPE)
    inputs = points(400)
    truth, before = (inputs.sum(1) > 0).long(), certificate.withstands(inputs).value
    accuracy = certificate.accuracy(inputs, truth)
    certificate.nominal.train()
    assert certificate.model is not None
    certificate.model.train()
    assert torch.equal(certificate.withstands(inputs).value, before)
    assert certificate.accuracy(inputs, truth) == accuracy


def test_inputs_that_meet_are_refused() -> None:
    class Meeting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x - x.mean(0))

    x, y = task(20)
    certificate = bf.certify(Meeting(), (x, y), threat=flips(2), **RECIPE)
    with pytest.raises(bf.BoundFlowError, match="inputs of a batch meet"):
        certificate.withstands(points())


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_all_budgets_at_once_are_those_of_each(outputs: int) -> None:
    x, y = task(200)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, outputs)).double()
    labels = y.double().unsqueeze(1) if outputs == 1 else (y + (x[:, 0] > 0.5)).clamp_max(outputs - 1)
    threat = AtMost(9, Labels(classes=None if outputs == 1 else outputs))
    loss = "bce" if outputs == 1 else "ce"
    certificate = bf.certify(model, (x, labels), threat=threat, **{**RECIPE, "loss": loss})
    found, asked = certificate.withstands(points(150)), levels(certificate)
    assert len(set(found.value.tolist())) > 3
    for level in range(10):
        certain = asked.at(level).predict(points(150)).certified
        assert bool((certain == (found.value >= level)).all()), level


def test_a_linear_model_is_asked_about_all_budgets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Level after level would answer the same, in as many passes as it takes to halve."""
    levels, ask = [], withstanding._ask

    def counted(found: Any, level: int, inputs: torch.Tensor, *rest: Any) -> None:
        levels.extend([level] * bool(len(inputs)))
        ask(found, level, inputs, *rest)

    monkeypatch.setattr(withstanding, "_ask", counted)
    x, y = task(20)
    torch.manual_seed(0)
    certificate = bf.certify(torch.nn.Linear(3, 2).double(), (x, y), threat=flips(8), **RECIPE)
    found = certificate.withstands(points()).value
    assert levels == [8] and len(set(found.tolist())) > 2


class Divided(torch.nn.Linear):
    """In evaluation mode a quotient whose divisor may be zero, as soon as labels may be others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = super().forward(x)
        return z if self.training else z / (self.weight.sum() - 0.1) ** 3


@pytest.mark.parametrize(("threat", "over"), [(flips(8), "k"), (Linf(0.5), "epsilon")])
def test_what_has_no_bounds_withstands_nothing(threat: bf.threats.Threat, over: str) -> None:
    """`predict` abstains there, and so does this."""
    x, y = task(20)
    torch.manual_seed(0)
    certificate = bf.certify(
        Divided(3, 2).double(), (x, y), threat=threat, **{**RECIPE, "optimizer_options": {"lr": 2.0}}
    )
    assert certificate.void_at_step is None and not certificate.predict(points()).certified.any()
    found = certificate.withstands(points(), over=over).value
    assert float(found.max()) < (8 if over == "k" else 0.5) and bool((found == -1).any())
