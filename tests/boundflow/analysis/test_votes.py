"""The certified vote: the knapsack against all subsets of members, and the whole against all poisoned datasets."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
import torch
from flips import RECIPE, flips, network, plain_answers, points, task, trained

import boundflow as bf
from boundflow.analysis.ensemble import budgets_of, partition
from boundflow.analysis.votes import counted, first, withstood
from boundflow.threats import AtMost, Labels, Linf, Removal, Replacement


def overtaken(votes: list[int], costs: list[int], classes: int) -> int:
    """The least cost of another first class: every set of members is tried, with every way they could vote."""
    winner = int(first(counted(torch.tensor([votes]), classes)))
    least = sum(costs) + 1
    for changed in itertools.product(range(classes), repeat=len(votes)):
        cost = sum(cost for cost, old, new in zip(costs, votes, changed, strict=True) if old != new)
        counts = [changed.count(label) for label in range(classes)]
        if counts.index(max(counts)) != winner:
            least = min(least, cost)
    return least


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_the_knapsack_is_solved_exactly(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    for _ in range(25):
        members = int(torch.randint(1, 7 if classes < 4 else 6, (1,), generator=generator))
        votes = torch.randint(classes, (1, members), generator=generator)
        stands = torch.randint(-1, 6, (1, members), generator=generator)
        least = overtaken(votes[0].tolist(), (stands[0] + 1).tolist(), classes)
        assert int(withstood(votes, stands, classes)) == least - 1


def test_many_votes_at_once_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    votes = torch.randint(5, (50, 12), generator=generator)
    stands = torch.randint(-1, 30, (50, 12), generator=generator)
    whole = withstood(votes, stands, 5)
    monkeypatch.setattr("boundflow.analysis.votes.STATES", 1000)
    assert torch.equal(whole, withstood(votes, stands, 5))
    with pytest.raises(ValueError, match="-1"):
        withstood(votes, stands - 1, 5)


def test_counting_members_is_deep_partition_aggregation() -> None:
    from fullcert.baselines import dpa

    votes = torch.randint(4, (300, 11), generator=torch.Generator().manual_seed(1))
    counts = counted(votes, 4)
    assert torch.equal(first(counts), dpa.first(counts))
    assert torch.equal(withstood(votes, torch.zeros_like(votes), 4), dpa.certified_parts(counts))


def test_no_dataset_with_as_many_flips_changes_a_vote_that_withstands_them() -> None:
    x, y = task(12)
    model, inputs = network(), points(30)
    ensemble = bf.Ensemble.certify(model, (x, y), members=3, threat=flips(3), **RECIPE)
    vote = ensemble.predict(inputs)
    assert len(set(vote.withstood.tolist())) > 2
    for count in range(4):
        which = list(itertools.combinations(range(12), count))
        labels = y.repeat(len(which), 1)
        for row, flipped in enumerate(which):
            labels[row, list(flipped)] = 1 - labels[row, list(flipped)]
        members = [
            plain_answers(model, inputs, x[part].expand(len(which), len(part), -1), labels[:, part])
            for part in partition(12, 3)
        ]
        answers = torch.stack([first(counted(torch.stack(one, 1), 2)) for one in zip(*members, strict=True)])
        changed = (answers != vote.label).any(0)
        assert not bool((changed & vote.certified(count)).any())
    assert bool((vote.withstood >= vote.by_members).all()), "what members withstand is worth more than members"


@pytest.mark.parametrize("told", ["field", "recipe"])
def test_samples_take_their_weights_to_their_member(told: str) -> None:
    (x, y), counts = task(12), torch.linspace(0, 3, 12, dtype=torch.float64)
    fields = {**RECIPE, "sample_weights": counts}
    fields = fields if told == "field" else {"recipe": bf.Recipe(**fields)}
    model = network()
    ensemble = bf.Ensemble.certify(model, (x, y), members=3, threat=flips(1), **fields)
    for part, (certificate, *_) in zip(partition(12, 3), ensemble.members, strict=True):
        plain = trained(model, x[part][None], y[part][None], counts[part][None])
        for name, value in certificate.nominal.named_parameters():
            assert torch.allclose(plain[name][0], value.detach(), rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="sample_weights must be 12"):
        bf.Ensemble.certify(model, (x, y), members=3, threat=flips(1), **{**fields, "sample_weights": counts[:4]})


def test_removals_of_samples() -> None:
    x, y = task(9)
    model, inputs = network(), points(30)
    ensemble = bf.Ensemble.certify(model, (x, y), members=3, threat=AtMost(2, Removal()), **RECIPE)
    vote = ensemble.predict(inputs)
    for count in range(3):
        which = list(itertools.combinations(range(9), count))
        weights = torch.ones(len(which), 9, dtype=torch.float64)
        for row, gone in enumerate(which):
            weights[row, list(gone)] = 0
        members = [
            plain_answers(
                model,
                inputs,
                x[part].expand(len(which), len(part), -1),
                y[part].expand(len(which), -1),
                weights[:, part],
            )
            for part in partition(9, 3)
        ]
        answers = torch.stack([first(counted(torch.stack(one, 1), 2)) for one in zip(*members, strict=True)])
        assert not bool(((answers != vote.label).any(0) & vote.certified(count)).any())


def test_replaced_samples_count_at_the_budgets_of_their_runs() -> None:
    x, y = task(40)
    threat = AtMost(4, Replacement())
    ensemble = bf.Ensemble.certify(network(), (x, y), members=4, threat=threat, clip_gradients=0.05, **RECIPE)
    vote = ensemble.predict(points())
    assert set(vote.stands.flatten().tolist()) <= {-1, 0, 1, 4} and bool((vote.stands == 4).any())


def test_saved_and_read_again(tmp_path: Path) -> None:
    x, y = task(20)
    ensemble = bf.Ensemble.certify(network(), (x, y), members=2, threat=flips(2), budgets=[2], **RECIPE)
    ensemble.save(str(tmp_path / "votes"))
    again = bf.Ensemble.load(tmp_path / "votes")
    inputs = points()
    assert torch.equal(again.withstands(inputs).value, ensemble.withstands(inputs).value)
    truth = (inputs.sum(1) > 0).long()
    curve = again.curve(inputs, truth)
    assert curve.certified[-1] == 0 or curve.values[-1] == max(again.withstands(inputs).value)
    assert (again.samples, again.withstands(inputs).most) == (20, 20)


def test_a_vote_withstands_no_more_changes_than_there_are_samples() -> None:
    """Members stand every change of their part: costs add up to more than all samples, where the curve ends."""
    x, y = task(4)
    model = network()
    with torch.no_grad():
        model[0].weight.copy_(10 * torch.tensor([[-1.0], [1.0]]))
    recipe = {**RECIPE, "optimizer_options": {"lr": 1e-6}}
    ensemble = bf.Ensemble.certify(model, (x, y), members=2, threat=flips(2), **recipe)
    inputs = points()
    found = ensemble.withstands(inputs)
    assert bool((ensemble.predict(inputs).stands == 2).any()) and float(found.value.max()) == found.most == 4
    assert ensemble.curve(inputs, (inputs.sum(1) > 0).long()).values[-1] == 4


@pytest.mark.parametrize("damage", ["twice", "elsewhere", "other data", "fewer", "no list", "nothing", "format"])
def test_a_folder_that_was_changed_is_refused(damage: str, tmp_path: Path) -> None:
    x, y = task(20)
    bf.Ensemble.certify(network(), (x, y), members=2, threat=flips(1), **RECIPE).save(tmp_path)
    path = tmp_path / "ensemble.json"
    listed = json.loads(path.read_text())
    if damage == "twice":
        listed["members"][1] = listed["members"][0]
    elif damage == "elsewhere":
        listed["members"][1]["files"] = ["../certificate.safetensors"]
    elif damage == "other data":
        files = [entry["files"][0] for entry in listed["members"]]
        (tmp_path / files[0]).write_bytes((tmp_path / files[1]).read_bytes())
    elif damage == "fewer":
        del listed["members"][1]
    elif damage == "format":
        listed["format"] = 99
    path.write_text("[" if damage == "no list" else json.dumps(listed))
    if damage == "nothing":
        path.unlink()
    with pytest.raises(bf.BoundFlowError, match=re.escape(str(tmp_path))):
        bf.Ensemble.load(tmp_path)


def test_budgets_are_geometric() -> None:
    assert budgets_of(flips(1)) == [0, 1] and budgets_of(flips(16)) == [0, 1, 4, 16]
    assert budgets_of(flips(20)) == [0, 1, 4, 16, 20]
    assert budgets_of(flips(9), [8, 2, 2]) == [2, 8]


def test_ensembles_that_cannot_be() -> None:
    x, y = task(20)
    for threat, words in ((Linf(0.1), "AtMost"), (AtMost(1, Labels(classes=2).on(samples=[3])), "their own part")):
        with pytest.raises(ValueError, match=words):
            bf.Ensemble.certify(network(), (x, y), members=2, threat=threat, **RECIPE)
    for members in (0, 21, True):
        with pytest.raises(ValueError, match="members must be"):
            bf.Ensemble.certify(network(), (x, y), members=members, threat=flips(1), **RECIPE)
    with pytest.raises(ValueError, match="budgets must be"):
        bf.Ensemble.certify(network(), (x, y), members=2, threat=flips(1), budgets=[-1], **RECIPE)
    with pytest.raises(ValueError, match="needs members"):
        bf.Ensemble([])
    certificate = bf.certify(network(), (x, y), threat=Linf(0.1), **RECIPE)
    with pytest.raises(bf.BoundFlowError, match="one budget"):
        bf.Ensemble([[certificate]])


def test_members_that_know_of_more_classes_than_the_first() -> None:
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, parts = (x[:, 0] > 0).long(), [torch.arange(part, 12, 3) for part in range(3)]
    members = []
    for part, outputs in zip(parts, (2, 3, 3), strict=True):
        model = torch.nn.Linear(3, outputs).double()
        with torch.no_grad():
            model.bias.copy_(100.0 * torch.arange(outputs))  # the last class, whatever the input is
        members.append([bf.certify(model, (x[part], y[part]), threat=flips(1), loss="ce", progress=False)])
    vote = bf.Ensemble.of(members, (x, y), parts).predict(x)
    assert vote.classes == 3 and vote.label.tolist() == [2] * 12
    assert vote.members.tolist() == [[1, 2, 2]] * 12
