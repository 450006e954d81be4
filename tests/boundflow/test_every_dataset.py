"""All analyses against plain trainings on every dataset that a threat allows, in problems so small that all are listed.

With BOUNDFLOW_THOROUGH=1 there are 25 problems of each kind instead of one, and more datasets; `-s` shows counts.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import every_dataset as plain
import numpy as np
import pytest
import torch
from small_problems import ATTACKS, HOLES, RANGE, Problem
from torch import Tensor

import boundflow as bf
from boundflow.threats import L1, L2, AtMost, Linf, Threat
from boundflow.threats.base import Both

THOROUGH = bool(os.environ.get("BOUNDFLOW_THOROUGH"))
NUMBERS = range(25) if THOROUGH else range(1)
MOST = 4000 if THOROUGH else 120
COUNTS: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def counts() -> Iterator[None]:
    yield
    print("\n" + "\n".join(f"{count:9,d}  {what}" for what, count in sorted(COUNTS.items())))


@lru_cache(maxsize=len(ATTACKS))
def drawn(name: str, number: int) -> Problem:
    made = Problem(name, number, MOST)
    COUNTS["problems"] += 1
    COUNTS["datasets trained"] += len(made.answers)
    return made


def of(*, counted: bool = False, moves: bool = False, numbers: bool = False, holes: bool | None = None) -> list[str]:
    """The kinds of threats with these properties."""
    return [
        name
        for name, attack in ATTACKS.items()
        if (attack.counted is not None or not counted)
        and (attack.moves or not moves)
        and attack.numbers == numbers
        and (holes is None or bool(attack.holes) == holes)
    ]


def tracked(names: list[str]) -> list[str]:
    return [name for name in names if not ATTACKS[name].replaces]


def never_changes(certain: Tensor, label: Tensor, answers: Tensor) -> bool:
    """Whether no training answers otherwise where an analysis is certain."""
    COUNTS["certain answers compared with every training"] += int(certain.sum())
    return not bool(((answers != label).flatten(0, -2).any(0) & certain).any())


every_number = pytest.mark.parametrize("number", NUMBERS)


# --- predictions ------------------------------------------------------------------------------------------------------


@every_number
@pytest.mark.parametrize("name", of())
def test_no_dataset_changes_what_is_certified(name: str, number: int) -> None:
    """Labels, outputs, the lead of every class, and accuracies."""
    problem = drawn(name, number)
    found, outputs = problem.certificate.predict(problem.inputs), problem.outputs
    assert never_changes(found.certified, found.label, problem.answers), problem
    assert bool(((found.lower <= outputs) & (outputs <= found.upper)).all()), problem
    assert found.lead is not None
    ends = torch.cat((-outputs, outputs), -1) if outputs.shape[-1] == 1 else outputs
    for label in range(ends.shape[-1]):
        others = [other for other in range(ends.shape[-1]) if other != label]
        ahead = (
            outputs[..., 0] * (2 * label - 1)
            if outputs.shape[-1] == 1
            else (ends[..., label] - ends[..., others].amax(-1))
        )
        assert bool((found.lead[:, label] <= ahead.amin(0) + 1e-6 * ahead.abs().amax()).all()), problem
    accuracy = problem.certificate.accuracy(problem.inputs, problem.truth)
    assert accuracy.certified <= float((problem.answers == problem.truth).all(0).double().mean())
    assert accuracy.certified == float((found.certified & (found.label == problem.truth)).double().mean())
    assert accuracy.robustness == float(found.certified.double().mean())
    plain_answers = plain.answered(problem.certificate.nominal(problem.inputs))
    assert accuracy.nominal == float((plain_answers == problem.truth).double().mean())


def moved(x: Tensor, threat: Threat) -> Iterator[Tensor]:
    """Inputs at the corners of a threat to them, and within it."""
    epsilon = float(threat.epsilon) * (1 - 1e-6)  # type: ignore[attr-defined]
    random = torch.Generator().manual_seed(0)
    directions = [*torch.eye(x.shape[1], dtype=x.dtype), *-torch.eye(x.shape[1], dtype=x.dtype)]
    directions += [torch.tensor(signs, dtype=x.dtype) for signs in itertools.product((-1, 0, 1), repeat=x.shape[1])]
    directions += [2 * torch.rand(x.shape, generator=random, dtype=torch.float64).to(x.dtype) - 1 for _ in range(4)]
    norm = {Linf: torch.inf, L2: 2.0, L1: 1.0}[type(threat)]  # type: ignore[index]
    for way in directions:
        length = torch.linalg.vector_norm(way.expand_as(x), ord=norm, dim=1, keepdim=True).clamp_min(1.0)
        yield x + epsilon * way / length


@every_number
@pytest.mark.parametrize("cuts", [0, 2])
@pytest.mark.parametrize("change", [Linf, L2, L1])
@pytest.mark.parametrize("name", ["labels", "box of a few", "removal"])
def test_no_dataset_and_no_move_of_the_input_change_what_is_certified(
    name: str, change: type, cuts: int, number: int
) -> None:
    problem = drawn(name, number)
    threat = change((0.02, 0.1, 0.3)[number % 3])
    answers = torch.stack(
        [plain.answered(plain.outputs(problem.model, problem.trained, x)) for x in moved(problem.inputs, threat)]
    )
    found = problem.certificate.predict(problem.inputs, threat=threat, cuts=cuts)
    assert never_changes(found.certified, found.label, answers), problem
    before = problem.certificate.predict(problem.inputs, threat=threat)
    assert bool((found.certified | ~before.certified).all()) and torch.equal(found.label, before.label), problem
    withstood = bf.withstands([problem.certificate], problem.inputs, threat=threat, over="k")
    for k in range(problem.k + 1):
        few = answers[:, problem.touched <= k]
        assert never_changes(withstood.certain(k), withstood.label, few), problem


# --- what predictions withstand ---------------------------------------------------------------------------------------


@every_number
@pytest.mark.parametrize("name", of(counted=True))
def test_no_dataset_with_so_many_changes_changes_what_withstands_them(name: str, number: int) -> None:
    """By one certificate, by one for each budget, and by their curve, whose attacked accuracy is the very truth."""
    problem = drawn(name, number)
    certified = problem.certificate.predict(problem.inputs).certified
    alone = len(problem.certificate.record["clauses"]) == 1
    others = [problem.certified(problem.threat(k)) for k in range(1, problem.k)]
    others += [problem.certified(Linf(0.0))] if alone else []
    each = [bf.withstands([one], problem.inputs, over="k") for one in (problem.certificate, *others)]
    together = bf.withstands([*others, problem.certificate], problem.inputs, over="k")
    assert torch.equal(together.value, torch.stack([found.value for found in each]).amax(0)), problem
    assert bool((each[0].certain(problem.k) == certified).all()), problem
    broken = {k: (problem.answers[problem.touched <= k] != together.label).any(0) for k in range(problem.k + 1)}
    for found in (*each, together):
        for k in range(int(found.most) + 1):
            COUNTS["answers that withstand something"] += int(found.certain(k).sum())
            assert not bool((broken[k] & found.certain(k)).any()), problem
    curve = bf.curve([problem.certificate, *others], problem.inputs, problem.truth, broken=broken, over="k")
    assert curve.attacked is not None and curve.values[0] == 0 and {*range(problem.k + 1)} <= {*curve.values}
    right = together.label == problem.truth
    for place, k in enumerate(curve.values):
        assert curve.certified[place] == float((right & (together.value >= k)).double().mean())
        assert curve.robustness[place] == float((together.value >= k).double().mean())
        assert curve.attacked[place] == float((right & ~broken[int(k)]).double().mean()) >= curve.certified[place]
    assert curve.certified == sorted(curve.certified, reverse=True) and curve.nominal == float(right.double().mean())
    short = bf.curve([problem.certificate, *others], problem.inputs, problem.truth, over="k")
    reached = {0, *together.value[together.value >= 0].tolist()}
    assert short.values == sorted({*reached, min(problem.k, max(reached) + 1)}) and short.attacked is None
    assert short.certified == [curve.certified[curve.values.index(k)] for k in short.values]


@every_number
@pytest.mark.parametrize("name", of(moves=True))
def test_no_dataset_of_shorter_moves_changes_what_withstands_them(name: str, number: int) -> None:
    problem = drawn(name, number)
    runs = [problem.certificate, problem.certified(problem.threat(epsilon=problem.epsilon / 3))]
    if all(change["shrinks"] for clause in runs[0].record["clauses"] for change in clause["changes"]):
        runs.append(problem.certified(Linf(0.0)))
    for found in (
        bf.withstands(runs[:1], problem.inputs, over="epsilon"),
        bf.withstands(runs, problem.inputs, over="epsilon"),
    ):
        assert (found.unit, found.most) == ("epsilon", problem.epsilon)
        values = sorted(set(found.value[found.value >= 0].tolist()))
        for value in values if THOROUGH else values[-3:]:
            data = problem.every(epsilon=value)
            COUNTS["datasets trained"] += len(data.x)
            assert never_changes(found.certain(value), found.label, problem.answers_of(data)), (value, problem)


# --- rows that somebody has checked -----------------------------------------------------------------------------------


def subsets(problem: Problem, most: int) -> list[list[int]]:
    """Sets of samples: all of one and of two, or some of them."""
    found = [list(s) for count in (1, 2, 3) for s in itertools.combinations(range(problem.samples), count)]
    return [found[place] for place in problem.random.permutation(len(found))[:most]]


@every_number
@pytest.mark.parametrize("name", tracked(of(holes=False)))
def test_no_dataset_that_leaves_verified_samples_alone_changes_an_answer(
    name: str, number: int, tmp_path: Path
) -> None:
    """Also what answers withstand then, and from a file, and verified in two steps."""
    problem = drawn(name, number)
    certificate, before = problem.certificate, problem.certificate.predict(problem.inputs)
    certificate.save(tmp_path / "all")
    for samples in subsets(problem, 60 if THOROUGH else 3):
        COUNTS["sets of verified samples"] += 1
        kept = problem.datasets.left_alone(samples, problem.of_attackers())
        found = certificate.verified(samples)
        bf.load(tmp_path / "all").verified(samples[:1]).save(tmp_path / "some")
        read = bf.load(tmp_path / "some").verified(samples[1:])
        for one in (found, read):
            answers = one.predict(problem.inputs)
            assert never_changes(answers.certified, answers.label, problem.answers[kept]), (samples, problem)
            assert bool((answers.certified | ~before.certified).all()), (samples, problem)
            assert one.record["verified"] == sorted(samples)
        if problem.attack.counted is not None:
            withstood = found.withstands(problem.inputs, over="k")
            for k in range(problem.k + 1):
                few = problem.answers[kept & (problem.touched <= k)]
                assert never_changes(withstood.certain(k), withstood.label, few), (samples, problem)


@every_number
@pytest.mark.parametrize("fill", ["nothing", "some", "all"])
@pytest.mark.parametrize("name", of(holes=True))
def test_no_dataset_with_what_was_filled_in_changes_an_answer(name: str, fill: str, number: int) -> None:
    problem = drawn(name, number)
    cells, holes, before = problem.x.clone(), torch.isnan(problem.x), problem.certificate.predict(problem.inputs)
    for sample, columns in HOLES[problem.attack.holes]:
        hot = torch.eye(3, dtype=problem.dtype)[number % 3]
        cells[sample, columns] = hot if len(columns) == 3 else (*RANGE, 0.7 * RANGE[0] + 0.3 * RANGE[1])[number % 3]
    if fill == "some":
        cells[2] = problem.x[2]
    for samples in [[0, 1, 2], *subsets(problem, 40 if THOROUGH else 3)]:
        COUNTS["sets of verified samples"] += 1
        kept = problem.datasets.left_alone(samples, problem.of_attackers())
        for sample in samples if fill != "nothing" else ():
            known = holes[sample] & ~torch.isnan(cells[sample])
            kept &= (problem.datasets.x[:, sample, known] == cells[sample, known].double()).all(1)
        assert bool(kept.any()) or not THOROUGH
        found = problem.certificate.verified(samples, None if fill == "nothing" else cells[samples])
        answers = found.predict(problem.inputs)
        assert never_changes(answers.certified, answers.label, problem.answers[kept]), (samples, problem)
        assert bool((answers.certified | ~before.certified).all()), (samples, problem)


# --- audits -----------------------------------------------------------------------------------------------------------


def about_others(threat: Threat, samples: np.ndarray) -> Threat:
    """The same threat to these samples only."""
    if isinstance(threat, Both):
        first, second = (about_others(part, samples) for part in threat.parts)
        return first & second
    if isinstance(threat, AtMost):
        return AtMost(threat.k, about_others(threat.threat, samples))
    chosen = samples if getattr(threat, "samples", None) is None else np.intersect1d(samples, threat.samples)  # type: ignore[attr-defined]
    return threat.on(samples=chosen)  # type: ignore[attr-defined, no-any-return]


@every_number
@pytest.mark.parametrize("budget", [1, 2])
@pytest.mark.parametrize("name", tracked(of(holes=False)))
def test_what_a_list_settles_is_settled(name: str, budget: int, number: int) -> None:
    """Against every dataset in which the chosen samples are as recorded, and every set of so many samples.

    A run of its own in which nobody may touch them answers the same labels. It need not be certain of each of them: its
    sets are other sets and are relaxed at other slopes, so it settles more in most problems and less in some.
    """
    problem = drawn(name, number)
    certificate, x = problem.certificate, problem.inputs
    before, found = certificate.predict(x), certificate.audit(x, budget=budget)
    chosen, settles = found.checklist.samples, found.checklist.settles
    assert found.inputs.tolist() == np.flatnonzero(~before.certified.numpy()).tolist()
    assert (found.asked, found.certain) == (len(x), int(before.certified.sum()))
    assert len(chosen) == len(set(chosen.tolist())) <= budget and not (found.checklist.forecast and len(chosen))
    after = certificate.verified(chosen).predict(x)
    if len(found):
        assert np.flatnonzero((after.certified & ~before.certified).numpy()).tolist() == settles.tolist()
    kept = problem.datasets.left_alone(chosen.tolist(), problem.of_attackers())
    assert never_changes(after.certified, after.label, problem.answers[kept]), problem
    COUNTS["audits"] += 1
    COUNTS["predictions that lists settle"] += len(settles)
    if len(chosen):
        others = np.setdiff1d(np.arange(problem.samples), chosen)
        anew = problem.certified(about_others(problem.threat(), others)).predict(x)
        assert torch.equal(anew.label, after.label), problem
        assert never_changes(anew.certified, anew.label, problem.answers[kept]), problem
        COUNTS["settled by a list, and by no run of its own"] += int((after.certified & ~anew.certified).sum())
        COUNTS["settled by a run of its own, and by no list"] += int((anew.certified & ~after.certified).sum())
    if THOROUGH:
        pairs = itertools.combinations(range(problem.samples), budget)
        best = [certificate.verified(list(s)).predict(x).certified & ~before.certified for s in pairs]
        COUNTS["predictions that the best sets settle"] += int(max(settled.sum() for settled in best))
        COUNTS["audits that are not the best"] += len(settles) < max(int(settled.sum()) for settled in best)


def alone(certificate: bf.Certificate, x: Tensor, label: Tensor, samples: list[int]) -> Tensor:
    """How far below its center the lead of each label is bounded, or how wide a regression is, if these are checked."""
    found = certificate.verified(samples).predict(x)
    if found.lead is None:
        return (found.upper - found.lower)[:, 0].double()
    return -found.lead.gather(1, label[:, None])[:, 0].double()


def one_step(name: str, number: int) -> Problem:
    """The problem with one step of a linear network and moves that are short: next to nothing is lost."""
    made = Problem(name, number)
    made.classes, made.epsilon = 2, 1e-5
    made.plan = made.plan._replace(steps=1, lr=0.05, momentum=0.0, batch_size=None)
    made.plan = made.plan if made.attack.numbers else made.plan._replace(loss="bce")
    made.dtype, made.x = torch.float64, made.x.double()
    made.model = torch.nn.Sequential(torch.nn.Linear(made.features, 1)).double()
    made.y = made.y.double() if made.attack.numbers else made.y.clamp_max(1)
    return made


@every_number
@pytest.mark.parametrize("name", [n for n in tracked([*of(holes=False), *of(numbers=True)]) if "categories" not in n])
def test_a_term_is_what_one_sample_alone_takes_off(name: str, number: int) -> None:
    """All others are checked, and it is the only one that is left."""
    problem = one_step(name, number)
    certificate, x, every = problem.certificate, problem.inputs, list(range(problem.samples))
    found, label = certificate.audit(x, every=True), plain.answered(certificate.nominal(x))
    assert found.inputs.tolist() == list(range(len(x)))
    whole, none = (alone(certificate, x, label, samples) for samples in ([], every))
    near = {"rtol": 1e-3, "atol": 1e-10}
    assert np.allclose(found.owned, whole - none, **near), problem
    if not problem.attack.numbers:
        assert found.label.tolist() == label.tolist() and found.rival.tolist() == (1 - label).tolist()
        assert np.allclose(found.margin, -whole, **near), problem
    budgets = [clause["budget"] for clause in certificate.record["clauses"]]
    if len(budgets) > 1:
        return
    terms = torch.stack([alone(certificate, x, label, [i for i in every if i != s]) - none for s in every], 1)
    COUNTS["terms of samples"] += terms.numel()
    largest = terms.topk(min(budgets[0] or problem.samples, problem.samples), 1)
    told = np.zeros(terms.shape)
    np.put_along_axis(told, found.leading, found.terms, 1)
    counted = torch.zeros_like(terms).scatter(1, largest.indices, largest.values)
    if problem.attack.numbers and budgets[0] is not None:  # downwards other samples may be the largest than upwards
        assert (told.sum(1) >= counted.sum(1).numpy() * (1 - 1e-3) - near["atol"]).all(), problem
        return
    assert np.allclose(told.sum(1), counted.sum(1), **near) and np.allclose(told.max(1), counted.amax(1), **near), (
        problem
    )
    apart = terms.sort(1).values.diff(dim=1).amin(1) > 1e-3 * terms.amax(1)
    assert np.allclose(told[apart], counted[apart], **near), problem
    totals = dict(zip(found.samples.tolist(), found.totals.tolist(), strict=True))
    assert np.allclose([totals.get(sample, 0.0) for sample in every], told.sum(0), **near), problem


@every_number
@pytest.mark.parametrize("name", of(numbers=True))
def test_no_dataset_leaves_the_bounds_of_a_regression(name: str, number: int) -> None:
    """With and without verified samples; and how wide a list says that predictions become."""
    problem = drawn(name, number)
    certificate, x, outputs = problem.certificate, problem.inputs, problem.outputs
    found = certificate.predict(x)
    assert bool(((found.lower <= outputs) & (outputs <= found.upper)).all()), problem
    for samples in subsets(problem, 20 if THOROUGH else 3):
        kept = problem.datasets.left_alone(samples, problem.of_attackers())
        after = certificate.verified(samples).predict(x)
        assert bool(((after.lower <= outputs[kept]) & (outputs[kept] <= after.upper)).all()), (samples, problem)
    audit = certificate.audit(x, budget=2)
    after = certificate.verified(audit.checklist.samples).predict(x)
    widths = [float(answers.width.double().mean()) for answers in (found, after)]
    assert [audit.checklist.width_before, audit.checklist.width_after] == widths and widths[1] <= widths[0]
    wide = (found.upper - found.lower)[:, 0]
    assert torch.allclose(torch.from_numpy(audit.reach), wide, rtol=1e-5, atol=0)


# --- votes ------------------------------------------------------------------------------------------------------------

VOTING = [
    name
    for name in of(counted=True, holes=False)
    if name not in ("labels of some", "one feature of some", "box, and a few labels")
]


@every_number
@pytest.mark.parametrize("name", VOTING)
def test_no_dataset_with_so_many_changes_changes_a_vote(name: str, number: int) -> None:
    """What it takes to make a member answer each class is found by training it on every dataset of its part."""
    problem, members = drawn(name, number), 2 + number % 2
    parts = [list(range(member, problem.samples, members)) for member in range(members)]
    k = min(problem.k, *map(len, parts))
    data, recipe = (problem.x, problem.y), problem.recipe
    ensemble = bf.Ensemble.certify(problem.model, data, members=members, threat=problem.threat(k), **recipe)
    vote = ensemble.predict(problem.inputs)
    costs: list[list[dict[int, int]]] = []  # of each member and input: the fewest changes for each class
    for part in parts:
        every = problem.every(rows=part, k=min(3, len(part)))
        touched, answers = every.touched[:, 0].sum(1), problem.answers_of(every)
        COUNTS["datasets trained"] += len(answers)
        least = [{int(c): int(touched[column == c].min()) for c in column.unique()} for column in answers.T]
        costs.append(least)
    classes = max(2, problem.outputs.shape[-1])
    for place in range(len(problem.inputs)):
        for way in itertools.product(*(member[place].items() for member in costs)):
            counts = [sum(answer == c for answer, _ in way) for c in range(classes)]
            if counts.index(max(counts)) != int(vote.label[place]):
                COUNTS["ways to change a vote"] += 1
                assert int(vote.withstood[place]) < sum(cost for _, cost in way), problem
    found, curve = ensemble.withstands(problem.inputs), ensemble.curve(problem.inputs, problem.truth)
    assert torch.equal(found.value, vote.withstood) and bool((found.value <= problem.samples).all())
    assert bool((vote.by_members <= vote.withstood).all()) and bool((vote.by_members < members).all())
    for value, certified in zip(curve.values, curve.certified, strict=True):
        assert certified == float(((vote.withstood >= value) & (vote.label == problem.truth)).double().mean())
