"""What a budget means, and the conditions without which the support of a threat would be wrong."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from poisons import Data
from pytest import MonkeyPatch
from threat_cases import FEATURES, LOSSES, SAMPLES, THREATS, T, batches, certified, network, observed, with_holes
from torch import Tensor

import boundflow as bf
from boundflow.operators.functions import EXP, RELU, SIGMOID, TANH
from boundflow.rules.unary import Function, range_of, shared_relaxation
from boundflow.sets.clean_state import Excess, OwnRows, Remainder, without_own
from boundflow.sets.factors import Factors
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set
from boundflow.symbols import support
from boundflow.symbols.budgets import Columns, Kind, Part
from boundflow.tensor.bounded import Bounded
from boundflow.training.clipping import clipped_gradients


def share(certificate: bf.Certificate, x: Tensor, **options: object) -> float:
    return certificate.predict(x, **options).certified.double().mean().item()


# --- support functions against brute force --------------------------------------------------------------------------


def brute_force(g: np.ndarray, owners: np.ndarray, parts: np.ndarray, table: list[Part], budgets: list) -> float:
    """The largest ``g . xi`` over all sets of touched samples, from the definition of every set."""

    def term(owner: int, part: int) -> float:
        mine = g[(owners == owner) & (parts == part)]
        if not len(mine):
            return 0.0
        kind = table[part].kind
        return {
            Kind.BOX: np.abs(mine).sum(),
            Kind.BALL: np.sqrt((mine**2).sum()),
            Kind.CROSS: np.abs(mine).max(),
            Kind.SIMPLEX: max(0.0, mine.max()),
        }[kind]

    total = np.abs(g[parts < 0]).sum()
    for clause, budget in enumerate(budgets):
        members = [n for n, part in enumerate(table) if part.clause == clause]
        samples = np.unique(owners[np.isin(parts, members)])
        most = len(samples) if budget is None else min(budget, len(samples))
        total += max(
            sum(term(owner, part) for owner in touched for part in members)
            for touched in itertools.combinations(samples, most)
        )
    return total


@pytest.mark.parametrize("seed", range(20))
def test_supports_against_their_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    budgets = [[None], [2], [None, 2], [1, 2]][seed % 4]
    table = [Part(random.choice(list(Kind)), clause) for clause in range(len(budgets)) for _ in range(2)]
    count = 24
    parts = random.integers(-1, len(table), size=count)
    owners = np.where(parts < 0, -1, random.integers(0, 5, size=count))
    columns = Columns(owners, parts, table, budgets, torch.device("cpu"))
    elements = random.normal(size=(7, count)) * random.integers(0, 2, size=(7, count))
    down, up = columns.reach(torch.from_numpy(elements))
    for row, low, high in zip(elements, down.tolist(), up.tolist(), strict=True):
        for value, bound in ((row, high), (-row, low)):
            exact = brute_force(value, owners, parts, table, budgets)
            assert exact <= bound <= exact * (1 + 1e-12) + 1e-150


def test_one_sided_removal_with_negative_rows() -> None:
    """A removal weight s in [0, 1] with row -2 reaches down by 2 and not up; the k largest are taken for each side."""
    columns = Columns(np.array([0, 1, 2]), np.zeros(3, int), [Part(Kind.SIMPLEX, 0)], [2], torch.device("cpu"))
    down, up = columns.reach(torch.tensor([[-2.0, -3.0, 1.0]], dtype=torch.float64))
    assert 5.0 <= float(down) < 5.0 + 1e-12 and 1.0 <= float(up) < 1.0 + 1e-12


def test_a_joint_reduction_holds_opposite_corners() -> None:
    """Rows (1, 0) and (0, 1) of two state scalars must not become (1, 1): (1, -1) is a member."""
    space = bf.Symbols(T.Linf(1.0), order=1)
    model = nn.Linear(1, 1).double()
    bf.lift(model, space)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rows = space.fresh(2)
    for parameter, row in zip(model.parameters(), torch.eye(2, dtype=torch.float64), strict=True):
        center = torch.zeros(parameter.shape, dtype=torch.float64)
        form = Form(center, row.view(2, *parameter.shape), torch.zeros_like(center), rows)
        with torch.no_grad():
            parameter.copy_(bf.Bounded(Set(torch.stack((center - 1, center + 1)), form, space)))
    space.reduce(optimizer)
    difference = model.weight.detach().flatten() - model.bias.detach()
    assert float(difference.upper) >= 2 and float(difference.lower) <= -2


def test_a_tensor_from_before_a_reduction_still_means_what_it_meant() -> None:
    """Rows of an older expansion count as a box: the difference with today's parameters holds every member."""
    data = observed("bce", torch.float64)
    space = bf.Symbols(T.AtMost(2, T.Linf(0.3)), order=2)
    model = bf.lift(network(1, torch.float64), space)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    space.attach(optimizer)
    kept = []
    for _ in range(3):
        x, y = space.lift(data.x, data.y.double().unsqueeze(1), torch.arange(SAMPLES))
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()
        kept.append(model[0].weight.detach().clone())
    moved = kept[2] - kept[0]
    random = np.random.default_rng(0)
    for _ in range(20):
        poisoned = data.x.clone()
        touched = random.permutation(SAMPLES)[:2]
        poisoned[touched] += 0.3 * torch.from_numpy(random.choice([-1.0, 1.0], size=(2, FEATURES)))
        plain = network(1, torch.float64)
        sgd, seen = torch.optim.SGD(plain.parameters(), lr=0.3), []
        for _ in range(3):
            sgd.zero_grad()
            F.binary_cross_entropy_with_logits(plain(poisoned)[:, 0], data.y.double()).backward()
            sgd.step()
            seen.append(plain[0].weight.detach().clone())
        assert bool(moved.contains(seen[2] - seen[0]).all())


def poisoned_twice(
    threat: bf.threats.Threat, move: float, index: Tensor, flip: bool = False, attach: bool = True
) -> None:
    """Two steps of an own loop on a batch in which samples occur more than once, against every touched sample."""
    data = observed("bce", torch.float64)
    targets = data.y.double().unsqueeze(1)
    space = bf.Symbols(threat, order=2)
    model = bf.lift(network(1, torch.float64), space)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if attach:
        space.attach(optimizer)
    for _ in range(2):
        x, y = space.lift(data.x[index], targets[index], index)
        if flip:  # an augmentation of the lifted batch: columns in reverse for every other position
            turn = (torch.arange(len(index)) % 2 == 0)[:, None]
            x = torch.where(turn, x.flip(1), x)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()
    for touched in range(SAMPLES):
        for sign in (-1.0, 1.0):
            poisoned = data.x.clone()
            poisoned[touched] += sign * move
            plain = network(1, torch.float64)
            sgd = torch.optim.SGD(plain.parameters(), lr=0.5)
            for _ in range(2):
                inputs = poisoned[index]
                if flip:
                    inputs = torch.where((torch.arange(len(index)) % 2 == 0)[:, None], inputs.flip(1), inputs)
                sgd.zero_grad()
                F.binary_cross_entropy_with_logits(plain(inputs), targets[index]).backward()
                sgd.step()
            for bound, value in zip(model.parameters(), plain.parameters(), strict=True):
                assert bool(bound.contains(value.detach()).all())


def test_a_sample_twice_in_one_batch() -> None:
    """It is one sample: its positions count together, and once against the budget."""
    index = torch.tensor([0, 1, 1, 1, 2, 5, 5, 7])
    poisoned_twice(T.AtMost(1, T.Linf(0.5)), 0.5, index)


def test_written_out_and_own_rows_of_one_sample() -> None:
    """Without a reduction, parameters carry a sample's rows written out beside its own: one owner, one term."""
    poisoned_twice(T.AtMost(1, T.Linf(0.5)), 0.5, torch.arange(6), attach=False)
    threat = T.AtMost(1, T.Linf(1.0))
    space = bf.Symbols(threat)
    x = torch.zeros(2, 1, dtype=torch.float64)
    lifted, _ = space.lift(x, x, torch.arange(2))
    total = lifted.sum(0, keepdim=True)  # written out: x_0 + x_1
    product = lifted @ torch.ones(1, 1, dtype=torch.float64) * 1.0
    model = torch.nn.Linear(1, 1, bias=False).double()
    bf.lift(model, space)
    with torch.no_grad():
        model.weight.copy_(total + 1)
    both = torch.mm(lifted + 2, model.weight.detach().t())  # (x_i + 2) (x_0 + x_1 + 1), of which one x is 1
    assert float(product.upper.max()) >= 1.0
    assert bool((both.upper >= 6.0).all()), "x_i = 1 makes 3 times 2"


def test_flips_of_a_lifted_batch() -> None:
    """Symbols follow the raw values through an augmentation that differs from sample to sample."""
    poisoned_twice(T.AtMost(1, T.Linf(0.5)), 0.5, torch.arange(SAMPLES), flip=True)


def test_lifting_augmented_copies_is_refused() -> None:
    """One symbol cannot stand for a raw value and for its flipped copy."""
    data = observed("bce", torch.float64)
    space = bf.Symbols(T.Linf(0.1))
    index = torch.arange(SAMPLES)
    space.lift(data.x, data.y, index)
    with pytest.raises(bf.MixedSymbols, match="augment"):
        space.lift(data.x.flip(1), data.y, index)


def test_a_clipped_pixel_keeps_its_observed_value() -> None:
    """Under a budget, a pixel at 0 is at 0 unless its sample is touched, and then it only goes up."""
    x = torch.zeros(4, 3, dtype=torch.float64)
    lifted, _, _ = T.AtMost(1, T.Linf(0.5, clip=(0, 1))).lift(bf.Symbols(T.Linf(1.0)), x, x, np.arange(4))
    assert bool((lifted.center == 0).all()) and bool((lifted.lower == 0).all()) and bool((lifted.upper >= 0.5).all())
    assert bool((lifted.set.clean.bounds == 0).all())
    threat = T.AtMost(1, T.Linf(0.5, clip=(0, 1)))
    total = threat.lift(bf.Symbols(threat), x, x, np.arange(4)).inputs.sum()
    assert 1.5 <= float(total.upper) < 1.5 + 1e-9, "three pixels of one sample"
    every = T.Linf(0.5, clip=(0, 1))
    total = every.lift(bf.Symbols(every), x, x, np.arange(4)).inputs.sum()
    assert float(total.upper) >= 6.0 and float(total.lower) >= -1e-9, "recentred where all are touched"


def test_poisoned_floats_at_the_edge_of_the_ball() -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([0.1, 0.3, 1e-8, 12345.678], dtype=dtype).unsqueeze(1)
        for threat in (T.Linf(0.1), T.AtMost(1, T.Linf(0.1)), T.Tolerance({0: 0.1})):
            lifted = threat.lift(bf.Symbols(threat), x, x, np.arange(4)).inputs
            for direction in (-1, 1):
                edge = (x.double() + direction * 0.1).to(dtype)
                assert bool(lifted.contains(edge).all())
        point = torch.full((1, 64), 12345.678, dtype=dtype)
        for threat, amount in ((T.L2(0.1), 0.1 / 8), (T.L1(6.4), 0.1)):
            edge = (point.double() + amount).to(dtype)  # rounded in every feature, all the same way
            total = threat.lift(bf.Symbols(threat), point, point, np.arange(1)).inputs.double().sum()
            assert float(total.lower) <= float(edge.double().sum()) <= float(total.upper)


def test_class_weights_with_flipped_labels() -> None:
    """PyTorch divides a mean over class numbers by the weights of the labels, which a flip changes: refused.

    Over class probabilities it divides by the number of samples, whatever the weights: that is covered.
    """
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    labels = torch.tensor([0, 1, 2])
    threat = T.AtMost(1, T.Labels())
    space = bf.Symbols(threat)
    torch.manual_seed(0)
    plain = nn.Linear(2, 3).double()
    inputs = torch.randn(3, 2, dtype=torch.float64)
    model = bf.lift(copy.deepcopy(plain), space)
    _, y = space.lift(inputs, F.one_hot(labels, 3).double(), torch.arange(3))
    F.cross_entropy(model(inputs), y, weight=weight).backward()
    for position, label in itertools.product(range(3), range(3)):
        flipped = labels.clone()
        flipped[position] = label
        plain.zero_grad()
        F.cross_entropy(plain(inputs), F.one_hot(flipped, 3).double(), weight=weight).backward()
        assert bool(model.weight.grad.contains(plain.weight.grad).all())
    with pytest.raises(bf.UnsupportedOperator, match="class probabilities"):
        F.cross_entropy(model(inputs), bf.Bounded(Set(torch.stack((labels * 0, labels)))), weight=weight)


def test_removal_leaves_the_divisor() -> None:
    """Weight 0 in its slot: the mean over what is left, which divides by fewer, is another algorithm."""
    data = observed("mse", torch.float64)
    model = nn.Linear(FEATURES, 1).double()
    threat = T.AtMost(1, T.Removal())
    options = {"epochs": 1, "optimizer_options": {"lr": 0.1}, "model": model}
    certificate = certified(threat, "mse", data, "zonotope", **options)
    gone = data.x[1:]
    slot, left = (nn.Linear(FEATURES, 1).double() for _ in range(2))
    for plain, divisor in ((slot, SAMPLES), (left, SAMPLES - 1)):
        plain.load_state_dict(model.state_dict())
        (((plain(gone)[:, 0] - data.y[1:]) ** 2).sum() / divisor).backward()
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter -= 0.1 * parameter.grad
    bounds = list(certificate.model.parameters())

    def inside(plain: nn.Module) -> bool:
        return all(bool(b.contains(v.detach()).all()) for b, v in zip(bounds, plain.parameters(), strict=True))

    assert inside(slot) and not inside(left)


def test_supports_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A support is computed for a few elements at a time, never for a few of the rows of an owner."""
    data = observed("ce", torch.float64)
    threat = T.AtMost(2, T.Linf(0.2) & T.Labels())
    whole = certified(threat, "ce", data, "zonotope")
    monkeypatch.setattr(support, "SUPPORT_CHUNK", 1)
    pieces = certified(threat, "ce", data, "zonotope")
    for first, second in zip(whole.model.parameters(), pieces.model.parameters(), strict=True):
        assert torch.allclose(first.set.bounds, second.set.bounds, rtol=1e-9, atol=1e-12)


def test_what_pieces_add_is_taken_together() -> None:
    """The worst samples of a batch may all lie in its last piece: the k largest of all pieces, not of each."""
    random = np.random.default_rng(0)
    owners = [np.array([0, 1, 2]), np.array([3, 0, 4])]  # sample 0 occurs in both
    parts, beyond, more = [], [], []
    for number, numbers in enumerate(owners):
        beyond.append(random.integers(0, 9, size=(2, 3, 4)) * 1.0 + 10 * number)
        more.append(random.integers(0, 9, size=(2, 3, 4)) * 1.0 + 10 * number)
        interval = torch.stack((torch.full((4,), -1.0), torch.full((4,), 1.0))).double()
        radius = torch.full((4,), 0.5, dtype=torch.float64)
        tensors = torch.from_numpy(beyond[-1]), radius, torch.from_numpy(more[-1])
        parts.append(Excess(Samples(numbers, 2), interval, *tensors))
    joined = Excess.joined(parts, 0.0)

    def worst(excess: np.ndarray) -> np.ndarray:
        by_owner = np.zeros((5, 4))
        np.add.at(by_owner, np.concatenate(owners), excess)
        return np.sort(by_owner, 0)[-2:].sum(0)

    low, high = (worst(np.concatenate([piece[end] for piece in beyond])) for end in (0, 1))
    lower, upper = joined.bounds().numpy()
    assert np.all(lower <= -2 - low) and np.allclose(lower, -2 - low)
    assert np.all(upper >= 2 + high) and np.allclose(upper, 2 + high)
    down, up = (worst(np.concatenate([piece[end] for piece in more])) for end in (0, 1))
    middle, radius = (part.numpy() for part in joined.errors())
    assert np.all(middle - radius <= -1 - down) and np.allclose(middle - radius, -1 - down)
    assert np.all(middle + radius >= 1 + up) and np.allclose(middle + radius, 1 + up)
    assert np.allclose(joined.total_radius().numpy(), 1 + np.maximum(down, up))


def test_a_settled_excess_is_the_same_sum() -> None:
    """Errors that were already added up keep their middle when more is asked of them."""
    samples = Samples(np.arange(3), 2)
    interval, beyond = torch.tensor([[-1.0], [1.0]]).double(), torch.zeros(2, 3, 1, dtype=torch.float64)
    more = torch.tensor([[0.0, 1.0, 0.0], [5.0, 3.0, 4.0]]).double().unsqueeze(-1)
    excess = Excess(samples, interval, beyond, torch.tensor([0.5]).double(), more)
    settled = excess.settled()
    for made in (excess, settled, Excess.beside([settled, settled])):
        middle, radius = made.errors()
        assert torch.allclose(middle, torch.full_like(middle, 4.0)) and torch.allclose(
            radius, 5.5 * torch.ones_like(radius)
        )


def test_a_move_is_measured_from_the_far_end_of_the_clean_interval() -> None:
    """The form of the clean sample may lie anywhere in its interval, and the touched sample anywhere in its own."""
    touched, inner = (torch.tensor(ends, dtype=torch.float64).view(2, 1, 1) for ends in ([-1.0, 3.0], [0.0, 2.0]))
    more, far = torch.full((1, 1), 100.0, dtype=torch.float64), torch.full((1, 1, 1), 7.0, dtype=torch.float64)
    own = OwnRows(torch.cat((far, far)), [(Kind.BOX, [0])])
    moved = without_own(touched, inner, more, own, 3.0 * torch.ones(1, 1).double(), terms=1)
    assert bool((moved >= 3.0).all()) and torch.allclose(moved, torch.full_like(moved, 3.0))
    assert own.rows.flatten().tolist() == [0.0, 7.0], "only what is 0 for a clean sample is cleared"
    short = OwnRows(0.01 * torch.cat((far, far)), [(Kind.BOX, [0])])
    assert without_own(touched, inner, 0.001 * more, short, torch.ones(1, 1).double(), terms=1).flatten().tolist() == [
        0.1,
        0.1,
    ]
    assert bool((short.rows > 0).all()), "rows that reach less far than the move stay"


def test_own_rows_that_were_written_out_are_not_cleared() -> None:
    """A product with the mean of the batch has a sample's own part among all other rows: it is in the form of a sum."""
    count, epsilon = 400, 6.0
    threat = T.AtMost(1, T.Linf(epsilon))
    space, x = bf.Symbols(threat), torch.ones(count, 1, dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return torch.tanh(x * x.mean(0) - 0.6).t() @ x

    with torch.no_grad():
        lifted, _, _ = threat.lift(space, x, torch.zeros(count).double(), torch.arange(count))
        form = f(lifted).form.dense
        owners, _ = space.owners_and_parts(form.rows.numbers)
        row = int(np.flatnonzero(owners == 3)[0])
        for symbol in (-1.0, -0.5, 0.5, 1.0):
            moved = x.clone()
            moved[3] += epsilon * symbol
            off = f(moved) - form.center - symbol * form.generators[row]
            assert float(off.abs()) <= float(form.radius)


def test_clean_is_the_sample_as_observed_and_everything_else_as_it_is() -> None:
    """The weight has seen the sample: their moves cancel, and what is clean lies outside the touched set."""
    threat = T.AtMost(1, T.Linf(0.1))
    space, x = bf.Symbols(threat, order=50), torch.ones(4, 1, dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    bf.lift(model, space)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    space.attach(optimizer)
    lifted, _, _ = threat.lift(space, x, torch.zeros(4).double(), torch.arange(4))
    only_first = torch.tensor([[1.0], [0.0], [0.0], [0.0]]).double()
    ((model(lifted) - model.weight * 1.0) * only_first).sum().backward()
    optimizer.step()  # the weight is 2 - x of the first sample
    with torch.no_grad():
        output = lifted @ model.weight.t() - 1.0
        square = output * (output * 1.0)
        fourth = square * (square * 1.0)
    for made, power in ((output, 1), (square, 2), (fourth, 4)):
        assert made.set.clean is not None and made.set.clean.radius is not None
        for symbol in (-1.0, 1.0):
            value = (-0.1 * symbol) ** power  # of the observed sample with the weight of a run where it was moved
            low, high = made.set.clean.bounds[:, 0, 0].tolist()
            assert low <= value <= high
        assert bool((made.form.radius >= made.set.clean.radius).all())


# --- what a budget means --------------------------------------------------------------------------------------------


def test_a_budget_counts_for_the_whole_run() -> None:
    """Five samples over twenty epochs of small batches certify more than five in every batch would."""
    data = observed("bce", torch.float64)
    model = nn.Linear(FEATURES, 1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    options = {"epochs": 20, "batch_size": 6, "optimizer_options": {"lr": 0.05}, "order": 4, "model": model}
    threat = T.AtMost(5, T.Labels())
    run = certified(threat, "bce", data, "zonotope", **options)
    per_batch = certified(threat, "bce", data, "zonotope", memory=0, **options)
    every = certified(T.Labels(), "bce", data, "zonotope", **options)
    assert not run.record["not_tracked"] and "in every batch" in " ".join(per_batch.record["not_tracked"])
    shares = [share(certificate, data.x) for certificate in (run, per_batch, every)]
    assert shares[0] > shares[1] >= shares[2], shares


def test_fewer_touched_samples_never_certify_less() -> None:
    data = observed("bce", torch.float64)
    widths = []
    for k in (1, 2, 4, 8, SAMPLES):
        certificate = certified(T.AtMost(k, T.Linf(0.1)), "bce", data, "zonotope")
        widths.append(sum(float((p.upper - p.lower).sum()) for p in certificate.model.parameters()))
    assert widths == sorted(widths)


HOLES = [[-1.0, 1.0], [-1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
WIDE = [[-90.0, 90.0], [-90.0, 90.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
# name -> (a weak threat, a strong one)
STRENGTHS = {
    "linf": (T.Linf(0.01), T.Linf(2.0)),
    "linf, clipped": (T.Linf(0.01, clip=(0, 1)), T.Linf(1.0, clip=(0, 1))),
    "l2": (T.L2(0.01), T.L2(4.0)),
    "l1": (T.L1(0.01), T.L1(6.0)),
    "labels": (T.AtMost(1, T.Labels()), T.AtMost(16, T.Labels())),
    "labels, hinge": (T.AtMost(1, T.Labels()), T.AtMost(16, T.Labels())),
    "labels of three classes": (T.AtMost(1, T.Labels()), T.AtMost(20, T.Labels())),
    "removal": (T.AtMost(1, T.Removal()), T.AtMost(24, T.Removal())),
    "linf of a few": (T.AtMost(1, T.Linf(0.2)), T.AtMost(16, T.Linf(3.0))),
    "l2 of a few": (T.AtMost(1, T.L2(0.2)), T.AtMost(16, T.L2(5.0))),
    "l1 of a few": (T.AtMost(1, T.L1(0.2)), T.AtMost(16, T.L1(8.0))),
    "features and labels of a few": (T.AtMost(1, T.Linf(0.05) & T.Labels()), T.AtMost(20, T.Linf(0.3) & T.Labels())),
    "all features, a few labels, a few gone": (
        T.Linf(0.01) & T.AtMost(1, T.Labels()) & T.AtMost(1, T.Removal()),
        T.Linf(1.0) & T.AtMost(8, T.Labels()) & T.AtMost(8, T.Removal()),
    ),
    "tolerance": (T.Tolerance({0: 0.01, 1: "1%"}), T.Tolerance({0: 4.0, 1: "400%"})),
    "missing": (T.Missing(HOLES), T.Missing(WIDE)),
    "categories": (T.AtMost(1, T.Categories([[2, 3, 4]])), T.Categories([[2, 3, 4]]) & T.Linf(2.0)),
    "quantised": (T.Quantised(0.01, 0.125).on(features=[0, 1]), T.Quantised(3.0, 0.125).on(features=[0, 1])),
    "an untrusted source": (T.Linf(0.1).on(samples=[1, 4]), T.Linf(5.0).on(samples=np.arange(SAMPLES) % 2 == 0)),
}


def trusted_start(task: str, data: Data) -> nn.Module:
    """A model that saw a little clean data first."""
    model = network(3 if task == "ce" else 1, torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        LOSSES[task](model(torch.nan_to_num(data.x)), data.y, data.weights).mean().backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", STRENGTHS)
def test_a_strong_attack_loses_the_certificate(name: str) -> None:
    _, _, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    data = data if prepare is None else prepare(data)
    options = {"epochs": 6, "optimizer_options": {"lr": 0.2}, "model": trusted_start(task, data)}
    if name == "removal":  # with no data at all, a trusted start stays what it is
        options = {"epochs": 10, "optimizer_options": {"lr": 0.3}}
    clean = torch.nan_to_num(data.x, nan=0.0)
    kept, lost = (share(certified(threat, task, data, "zonotope", **options), clean) for threat in STRENGTHS[name])
    assert lost == 0.0, lost
    assert kept > 0.3, kept


def test_strong_targets_make_the_outputs_wide() -> None:
    data = observed("mse", torch.float64)
    weak, strong = (certified(T.AtMost(2, T.Labels(e)), "mse", data, "zonotope").predict(data.x) for e in (0.1, 3.0))
    assert float(strong.width.mean()) > 10 * float(weak.width.mean())


def test_strong_replacements_lose_the_certificate() -> None:
    data = observed("bce", torch.float64)
    options = {"epochs": 4, "optimizer_options": {"lr": 0.5}, "clip_gradients": 0.5}
    shares = [
        share(certified(T.AtMost(k, T.Replacement()), "bce", data, "zonotope", **options), data.x) for k in (1, 12)
    ]
    assert shares[0] > 0.2 and shares[1] == 0.0


# --- threats to test inputs -----------------------------------------------------------------------------------------


def test_threats_to_test_inputs() -> None:
    """Triggers and balls on test inputs, against drawn inputs and poisoned trainings; and lost when strong."""
    data = observed("bce", torch.float64)
    options = {"epochs": 4, "optimizer_options": {"lr": 0.2}, "model": trusted_start("bce", data)}
    certificate = certified(T.AtMost(1, T.Labels()), "bce", data, "zonotope", **options)
    random = np.random.default_rng(3)
    x = data.x.clamp(-2, 2)
    cases = {
        "trigger": (
            T.Trigger([0], -2.0, 2.0),
            lambda: torch.where(torch.arange(FEATURES) == 0, torch.from_numpy(random.uniform(-2, 2, size=x.shape)), x),
        ),
        "l2": (T.L2(0.3), lambda: x + 0.3 * F.normalize(torch.from_numpy(random.normal(size=x.shape))) * (1 - 1e-9)),
        "linf": (
            T.Linf(0.2),
            lambda: x + 0.2 * torch.from_numpy(random.choice([-1.0, 1.0], size=x.shape)) * (1 - 1e-9),
        ),
        "category": (
            T.Categories([[2, 3, 4]]),
            lambda: torch.cat(
                (x[:, :2], torch.eye(3, dtype=x.dtype)[torch.from_numpy(random.integers(0, 3, len(x)))]), 1
            ),
        ),
    }
    for name, (threat, draw) in cases.items():
        answers = certificate.predict(x, threat=threat)
        assert float(answers.certified.double().mean()) > 0.2 or name == "trigger"
        for _ in range(20):
            with torch.no_grad():
                outputs = certificate.nominal(draw())
            assert bool(((answers.lower <= outputs) & (outputs <= answers.upper)).all()), name
    assert share(certificate, x, threat=T.L2(5.0)) == 0.0
    assert share(certificate, x, threat=T.Trigger([0, 1], -50.0, 50.0)) == 0.0
    holes = with_holes(data).x
    assert 0 < share(certificate, holes, threat=T.Missing([-0.3, 0.3])) <= 1
    with pytest.raises(ValueError, match="NaN"):
        certificate.predict(holes)
    for wrong in (T.AtMost(1, T.Linf(0.1)), T.Labels(), T.Linf(0.1).on(samples=[1])):
        with pytest.raises(ValueError):
            certificate.predict(x, threat=wrong)
    with pytest.raises(ValueError, match="not both"):
        certificate.predict(x, epsilon=0.1, threat=T.L2(0.1))


def test_rows_of_a_test_input_tighten_its_answer() -> None:
    data = observed("bce", torch.float64)
    certificate = certified(T.Linf(0.01), "bce", data, "zonotope", epochs=8)
    tracked = certificate.predict(data.x, epsilon=0.05)
    boxed = certificate.model(T.Linf(0.05).at_test_time(None, data.x))
    assert bool((tracked.lower >= boxed.lower - 1e-12).all())
    assert float((tracked.upper - tracked.lower).mean()) < 0.95 * float((boxed.upper - boxed.lower).mean())


def test_a_saved_certificate_remembers_its_budget(tmp_path) -> None:
    data = observed("ce", torch.float64)
    certificate = certified(T.AtMost(2, T.Linf(0.2) & T.Labels()), "ce", data, "zonotope")
    before = certificate.predict(data.x)
    certificate.save(tmp_path / "a")
    loaded = bf.load(tmp_path / "a")
    after = loaded.predict(data.x)
    assert torch.allclose(before.margin, after.margin, rtol=1e-9) and torch.equal(before.certified, after.certified)
    loaded.save(tmp_path / "b")
    assert bf.load(tmp_path / "b").predict(data.x).certified.equal(before.certified)


# --- mistakes -------------------------------------------------------------------------------------------------------


def test_threats_that_make_no_sense() -> None:
    data = observed("bce", torch.float64)
    x, y = data.x, data.y
    for message, make in {
        "not negative": lambda: T.Linf(-0.1),
        "increasing": lambda: T.Linf(0.1, clip=(1, 0)),
        "at least 1": lambda: T.AtMost(0, T.Labels()),
        "whole number": lambda: T.AtMost(1.5, T.Labels()),
        "budget inside": lambda: T.AtMost(2, T.AtMost(1, T.Labels())),
        "no clean state": lambda: T.AtMost(2, T.Missing([0.0, 1.0])),
        "do not add up": lambda: T.Labels() & T.Labels(),
        "columns=": lambda: T.Tolerance({"age": 1.0}),
        "there are": lambda: T.Tolerance({"age": 1.0}, columns=["height"]),
        "pair": lambda: T.Missing([1.0, 0.0]),
        "two columns": lambda: T.Categories([[3]]),
        "step": lambda: T.Quantised(0.1, 0.0),
        "exceeds the data": lambda: certified(T.AtMost(SAMPLES + 1, T.Labels()), "bce", data, "zonotope"),
        "samples up to": lambda: certified(T.Linf(0.1).on(samples=[SAMPLES]), "bce", data, "zonotope"),
        "mask over 3 samples": lambda: certified(T.Linf(0.1).on(samples=[True] * 3), "bce", data, "zonotope"),
        f"samples up to {SAMPLES}": lambda: certified(T.Removal().on(samples=[SAMPLES]), "bce", data, "zonotope"),
        "Missing": lambda: certified(T.Linf(0.1), "bce", with_holes(data), "zonotope"),
        "one-hot": lambda: certified(T.Categories([[0, 1]]), "bce", data, "zonotope"),
        "columns": lambda: certified(T.Tolerance({9: 0.1}), "bce", data, "zonotope"),
        "regression": lambda: T.Labels().lift(None, x, torch.full((SAMPLES, 1), 0.5), np.arange(SAMPLES)),
        "classes=10": lambda: T.Labels().lift(None, x, y, np.arange(SAMPLES)),
        "from 0 to 1": lambda: T.Labels(classes=2).lift(None, x, y + 1, np.arange(SAMPLES)),
    }.items():
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError):
        T.Linf(0.1) & 3  # type: ignore[operator]


def test_threats_say_what_they_are() -> None:
    """What a certificate records can be read, and built again."""
    for threat, *_ in THREATS.values():
        names = {**vars(bf.threats), "array": np.array}
        again = eval(repr(threat), names)
        assert repr(again) == repr(threat)


def test_every_batch_is_drawn_as_certify_draws_it() -> None:
    seen: list[Tensor] = []

    class Watched(T.Linf):
        def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> object:
            seen.append(values)
            return super().deviation(values, raw, budgeted)

    data = observed("bce", torch.float64)
    certified(Watched(0.1), "bce", data, "interval", epochs=2, batch_size=10)
    for drawn, index in zip(seen[-6:], batches(10, 2), strict=True):
        assert torch.equal(drawn, data.x[index])


# --- found by looking for holes ---------------------------------------------------------------------------------------


def test_a_valid_range_does_not_shorten_a_ball() -> None:
    """(0.5, 0.5) is within 0.8 of (1, 1), though each feature can only move by 0.5: the sum must reach 2."""
    x = torch.full((1, 2), 0.5, dtype=torch.float64)
    for threat in (T.L2(0.8, clip=(0, 1)), T.L1(1.1, clip=(0, 1)), T.AtMost(1, T.L2(0.8, clip=(0, 1)))):
        total = threat.lift(bf.Symbols(threat), x, x, np.arange(1)).inputs.sum()
        assert float(total.upper) >= 2.0 and float(total.lower) <= 0.0


class Centered(nn.Module):
    """A layer that lets samples meet."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Meeting(nn.Sequential):
    """Samples meet in the network's own code, before its last layer, where no layer shows it."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self[0](x))
        return self[-1](hidden - hidden.mean(0))


class Neighbours(nn.Module):
    """Samples meet in groups of three: the halves of a batch do not show it."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x[torch.arange(len(x)) // 3 * 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda first, head: nn.Sequential(first, nn.Tanh(), nn.Dropout(0.5), head),
        lambda first, head: nn.Sequential(first, nn.Tanh(), Centered(), head),
        lambda first, head: nn.Sequential(first, nn.Tanh(), Neighbours(), head),
        Meeting,
    ],
    ids=["masks", "means", "neighbours", "in its own code"],
)
def test_batches_that_cannot_be_taken_apart_are_not(make: Callable[..., nn.Sequential]) -> None:
    """Masks are drawn for a batch, and a layer may mix samples, though a head of zeros hides it at first."""
    data = observed("bce", torch.float64)
    torch.manual_seed(0)
    model = make(nn.Linear(FEATURES, 4), nn.Linear(4, 1)).double()
    with torch.no_grad():
        model[-1].weight.zero_()
    certificate = certified(T.Linf(1e-6), "bce", data, "zonotope", model=model, memory=40_000)
    for bound, value in zip(certificate.model.parameters(), certificate.nominal.parameters(), strict=True):
        assert bool(bound.contains(value.detach()).all())


@pytest.mark.parametrize("options", [{"domain": "interval"}, {"domain": "zonotope", "memory": 0}])
def test_softmax_over_the_samples(options: dict) -> None:
    """It mixes positions, so nothing is known of what a position is where its own sample was left alone."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.score, self.value = nn.Linear(FEATURES, 1), nn.Linear(FEATURES, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.score(x).t(), -1).t() * self.value(x) * len(x)

    data = observed("mse", torch.float64)
    model = Attention().double()
    recipe = {"loss": "mse", "optimizer_options": {"lr": 0.05}, "epochs": 1}
    certificate = bf.certify(model, (data.x, data.y), threat=T.AtMost(1, T.Linf(0.5)), **recipe, **options)
    for touched in range(SAMPLES):
        for sign in (-0.5, 0.5):
            plain, x = copy.deepcopy(model), data.x.clone()
            x[touched] += sign
            F.mse_loss(plain(x), data.y.unsqueeze(1)).backward()
            with torch.no_grad():
                for bound, value in zip(certificate.model.parameters(), plain.parameters(), strict=True):
                    assert bool(bound.contains(value - 0.05 * value.grad).all())


def test_a_mix_of_positions_forgets_what_clean_samples_are() -> None:
    """One touched sample changes the softmax at the positions of all others."""
    known = torch.zeros(2, 1, 3, dtype=torch.float64)
    touched = known + torch.tensor([-1.0, 1.0], dtype=torch.float64)[:, None, None]
    along = SampleAxis(-1, Samples(np.arange(3), 1))
    x = Bounded(Set(touched, clean=Remainder(known, None), along=along))
    moved = torch.softmax(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), -1)
    assert bool(Bounded(torch.softmax(x, -1).set.untouched).contains(moved).all())


def test_own_rows_of_one_batch_beside_the_clean_state_of_another() -> None:
    space = bf.Symbols(T.AtMost(1, T.Linf(0.5)))
    values = torch.zeros(3, 2, dtype=torch.float64)
    lifted, _ = space.lift(values, torch.zeros(3), torch.arange(3))
    clean, others = Remainder(lifted.set.bounds, lifted.form.radius), SampleAxis(-2, Samples(np.arange(3, 6), 1))
    assert lifted.form.rows.batch is not None and lifted.set.clean is not None
    assert Set(lifted.set.bounds, lifted.form, space, clean=clean, along=others).clean is None
    assert Set(lifted.set.bounds, lifted.form, space, clean=clean, along=lifted.set.along).clean is clean


@pytest.mark.parametrize("threat", [T.Linf(0.05), T.AtMost(2, T.Linf(0.05) & T.Labels())], ids=["all", "budget"])
def test_a_product_by_its_factors_reaches_as_far_as_the_product(threat: T.Threat, monkeypatch: MonkeyPatch) -> None:
    """Two ways to the same coefficients over the deep rows; which one is taken depends on sizes alone."""
    data, widths, used = observed("bce", torch.float64), [], []
    for pay in (False, True):
        monkeypatch.setattr(Factors, "pay", lambda factors, expansion, pay=pay: used.append(pay) or pay)
        certificate = certified(threat, "bce", data, "zonotope")
        outputs = certificate.predict(data.x, epsilon=0.02)
        bounds = [parameter.set.bounds for parameter in certificate.model.parameters()]
        widths.append(torch.cat([x.flatten() for x in (*bounds, outputs.lower, outputs.upper)]))
    assert {True, False} == set(used), "a product went each way"
    assert torch.allclose(*widths, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", [RELU, TANH, SIGMOID, EXP], ids=lambda function: function.name)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("together", [2**17, 0], ids=["together", "one by one"])
def test_a_line_for_touched_and_clean_samples_holds_for_both(
    function: Function, seed: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boundflow.rules.unary.STATES_TOGETHER", together)
    random = torch.Generator().manual_seed(seed)
    ends = 3 * torch.randn(4, 40, 3, dtype=torch.float64, generator=random)
    ends[:, :5] *= 1e-3
    low, high = ends.amin(0), ends.amax(0)
    inner = ends[1:3].sort(0).values
    inner = torch.where(torch.arange(40)[:, None] % 3 == 0, inner[:1], inner)  # some are points when clean
    touched = torch.stack((low, high))
    states = [(bounds, range_of(function, bounds)) for bounds in (touched, inner)]
    slope, mu, *errors = shared_relaxation(function, *states, SampleAxis(-2, Samples(np.arange(40), 3)))
    for (bounds, _), error in zip(states, errors, strict=True):
        for share in torch.linspace(0, 1, 101, dtype=torch.float64):
            x = (bounds[0] + share * (bounds[1] - bounds[0])).clamp(bounds[0], bounds[1])
            assert bool(((function.f(x) - slope * x - mu).abs() <= error).all())


def test_changed_targets_need_not_add_up_to_one() -> None:
    threat = T.AtMost(1, T.Labels())
    space = bf.Symbols(threat)
    torch.manual_seed(0)
    plain = nn.Linear(2, 3).double()
    model = bf.lift(copy.deepcopy(plain), space)
    inputs, labels = torch.randn(3, 2, dtype=torch.float64), torch.tensor([0, 1, 2])
    _, y = space.lift(inputs, F.one_hot(labels, 3).double(), torch.arange(3))
    mask = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
    y.mul_(mask)
    F.cross_entropy(model(inputs), y).backward()
    F.cross_entropy(plain(inputs), F.one_hot(labels, 3).double() * mask).backward()
    assert bool(model.weight.grad.contains(plain.weight.grad).all())


def test_two_batches_along_one_axis_or_two() -> None:
    """What is clean for the samples of one batch says nothing about those of another."""
    threat = T.AtMost(1, T.Linf(1.0))
    space = bf.Symbols(threat)
    x = torch.zeros(3, 3, dtype=torch.float64)
    first, _ = space.lift(x, x, torch.arange(3))
    second, _ = space.lift(x, x, torch.arange(3, 6))
    assert float((first + second).sum().upper) >= 3.0
    assert float((first + second.t()).sum().upper) >= 3.0
    weighted = (first + 1) * torch.ones(3, 3, dtype=torch.float64) + (second.t() + 1)
    for touched in (0, 4):
        a, b = x.clone(), x.clone()
        (a if touched < 3 else b)[touched % 3] += 1.0
        value = (a + 1) + (b.t() + 1)
        product = value @ value
        assert bool((weighted @ weighted).contains(product).all())


def test_a_replaced_sample_that_overflows_counts_as_nothing() -> None:
    data = observed("bce", torch.float64)
    model = nn.Linear(FEATURES, 1).double()
    options = {"epochs": 1, "optimizer_options": {"lr": 0.2}, "clip_gradients": 0.5, "model": model}
    certificate = certified(T.AtMost(1, T.Replacement()), "bce", data, "zonotope", **options)
    huge = data.x.clone()
    huge[2] = 1.5e308 * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    poisoned = certified(T.Linf(0.0), "bce", Data(huge, data.y, data.weights), "interval", **options).nominal
    for bound, value in zip(certificate.model.parameters(), poisoned.parameters(), strict=True):
        assert bool(bound.contains(value.detach()).all())


def test_records_and_restrictions_mean_what_they_say() -> None:
    assert repr(T.Labels(epsilon=0.0)) == "Labels(epsilon=0.0)"
    with pytest.raises(ValueError, match="two tolerances"):
        T.Tolerance({"a": 5.0, 0: "1%"}, columns=["a", "b"])
    assert T.Linf(0.1).on(samples=[1, 2]).on(samples=[2, 3]).samples.tolist() == [2]
    lifted = T.Linf(0.1).on(features=[0, 1]).on(features=[1]).lift(None, torch.zeros(1, 3), torch.zeros(1), [0]).inputs
    assert (lifted.upper > 0).tolist() == [[False, True, False]]
    with pytest.raises(ValueError, match="counted from 0"):  # else the last of five columns would have two
        T.Tolerance({4: 5.0, -1: 0.1})


def test_a_hole_in_a_sample_that_is_not_named_is_not_filled() -> None:
    """The middle of the range would be taken for the value that was observed."""
    data = with_holes(observed("bce", torch.float64))
    holes = torch.isnan(data.x).any(1).nonzero()[:, 0]
    with pytest.raises(ValueError, match=f"{int(torch.isnan(data.x[holes[-1]]).sum())} values of the data are NaN"):
        certified(T.Missing([-1.0, 1.0]).on(samples=holes[:-1]), "bce", data, "zonotope")
    assert certified(T.Missing([-1.0, 1.0]).on(samples=holes), "bce", data, "zonotope").model is not None
    lifted = T.Missing([-1.0, 1.0]).on(samples=holes[:-1]).lift(None, data.x, data.y, np.arange(SAMPLES)).inputs
    assert bool(torch.isnan(lifted.upper).any(1).nonzero() == holes[-1])


@pytest.mark.parametrize("budget", ["none", "two"])
def test_the_record_counts_replaced_samples_alone(budget: str) -> None:
    replaced = T.Replacement().on(samples=[1, 2, 3])
    threat = (T.AtMost(2, replaced) if budget == "two" else replaced) & T.AtMost(4, T.Labels())
    record = certified(threat, "bce", observed("bce", torch.float64), "zonotope", clip_gradients=0.1).record
    said = "at most 2 samples" if budget == "two" else "all samples that the threat names"
    assert record["not_tracked"] == [f"replaced gradients have no rows: {said} in every batch"]


def _clipped_training(model: nn.Module, x: Tensor, y: Tensor, norm: float, steps: int) -> nn.Module:
    """Plain PyTorch: the gradient of every sample clipped, then their mean, with learning rate 0.5."""
    plain = copy.deepcopy(model)
    for _ in range(steps):
        total = [torch.zeros_like(parameter) for parameter in plain.parameters()]
        for one in range(len(x)):
            plain.zero_grad()
            F.binary_cross_entropy_with_logits(plain(x[one : one + 1]), y[one : one + 1, None].double()).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), norm)
            for kept, parameter in zip(total, plain.parameters(), strict=True):
                kept += parameter.grad
        with torch.no_grad():
            for kept, parameter in zip(total, plain.parameters(), strict=True):
                parameter -= 0.5 * kept / len(x)
    return plain


def test_a_sample_replaced_by_something_far_away() -> None:
    """From the second step on gradients have rows, and what replaces a sample must be in their radius too."""
    torch.manual_seed(0)
    x = torch.randn(12, 2, dtype=torch.float64)
    y, model = (x[:, 0] > 0).long(), nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    recipe = {"loss": "bce", "optimizer_options": {"lr": 0.5}, "epochs": 3, "clip_gradients": 0.3}
    certificate = bf.certify(model, (x, y), threat=T.AtMost(1, T.Replacement()), **recipe)
    for place, size, label in itertools.product(range(0, 12, 3), (5.0, -5.0), (0, 1)):
        poisoned, labels = x.clone(), y.clone()
        poisoned[place], labels[place] = size * torch.tensor([1.0, -1.0]), label
        plain = _clipped_training(model, poisoned, labels, 0.3, 3)
        for bound, value in zip(certificate.model.parameters(), plain.parameters(), strict=True):
            assert bool(bound.contains(value.detach()).all())


def test_a_gradient_that_overflows_counts_as_zero() -> None:
    """Features can be so large that no norm bounds their gradient: plain training leaves such a sample out."""
    x = torch.tensor([[1.0], [1e200], [-2.0]], dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()

    def backward(one: Tensor) -> Tensor:
        loss = (model(x[one]) ** 2).sum()
        loss.backward()
        return loss.detach()

    with torch.no_grad():
        model.weight.fill_(1.0)
    clipped_gradients(model, torch.arange(3), backward, 0.5, None)
    assert model.weight.grad is not None and abs(float(model.weight.grad) - 2 * 0.5 / 3) < 1e-6


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("k", [1, 3])
def test_intervals_of_all_layers_count_the_budget(activation: type[nn.Module], k: int) -> None:
    """After one step a parameter has moved by at most the k largest changes of its gradient, of any samples.

    Those of the first layer come through a product with the second; it must keep where samples were left alone.
    """
    torch.manual_seed(0)
    x, y = torch.randn(60, 4, dtype=torch.float64), torch.randint(0, 2, (60, 1)).double()
    model = nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 1)).double()

    def gradients(y: Tensor) -> list[Tensor]:
        losses = F.binary_cross_entropy_with_logits(model(x), y, reduction="none").flatten() / len(x)
        found = [torch.autograd.grad(loss, [*model.parameters()], retain_graph=True) for loss in losses]
        return [torch.stack(parts) for parts in zip(*found, strict=True)]

    changes = [flipped - clean for clean, flipped in zip(gradients(y), gradients(1 - y), strict=True)]
    threat = bf.threats.AtMost(k, bf.threats.Labels())
    made = bf.certify(model, (x, y), threat=threat, loss="bce", optimizer_options={"lr": 1.0}, domain="interval")
    assert made.model is not None
    for bounds, change in zip(made.model.parameters(), changes, strict=True):
        most = sum(change.mul(sign).clamp_min(0).topk(k, 0).values.sum(0) for sign in (1, -1))
        assert isinstance(bounds, Bounded) and torch.allclose(bounds.upper - bounds.lower, most, rtol=0, atol=1e-12)
