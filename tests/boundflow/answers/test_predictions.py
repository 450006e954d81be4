"""Answers of a certificate: ends of products by the signs of test inputs, and inputs answered for in parts."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import rounding
from boundflow.answers.cuts import Boxes, _halved, middles
from boundflow.answers.prediction import leads
from boundflow.rules import ends_of_products
from boundflow.symbols.rows import Batch, Rows
from boundflow.tensor.bounded import Bounded
from boundflow.threats import Linf


def lifted(bounds: Tensor, symbols: bf.Symbols) -> Bounded:
    """Inputs in boxes, with rows of their own."""
    return Boxes(bounds).at_test_time(symbols, rounding.middle(bounds)[0])


# --- ends of products -----------------------------------------------------------------------------------------------


def test_columns_that_move_together() -> None:
    """(3 + x) b1 + (3 - x) b2 with both weights in [1, 2]: 6 at least and 12 at most, wherever x is in [-1, 1]."""
    symbols = bf.Symbols()
    x = lifted(torch.tensor([[[-1.0]], [[1.0]]], dtype=torch.float64), symbols)
    columns = torch.cat((3 + x, 3 - x), 1)
    product = columns @ bf.interval(torch.ones(2, 1).double(), 2 * torch.ones(2, 1).double())
    assert 6 - 1e-9 < product.lower.item() <= 6 and 12 <= product.upper.item() < 12 + 1e-9
    below = -columns @ bf.interval(torch.ones(2, 1).double(), 2 * torch.ones(2, 1).double())
    assert -12 - 1e-9 < below.lower.item() <= -12 and -6 <= below.upper.item() < -6 + 1e-9


@pytest.mark.parametrize("best", range(3))
@pytest.mark.parametrize("classes", [2, 3])
def test_leads_are_those_of_differences_with_all_other_classes(best: int, classes: int) -> None:
    """All logits move together by one, so each class is ahead by what it is ahead by: its intervals overlap."""
    best = min(best, classes - 1)
    symbols = bf.Symbols()
    x = lifted(torch.tensor([[[-1.0]], [[1.0]]], dtype=torch.float64), symbols)
    ahead = torch.tensor([[0.25, 0.125, 0.5]], dtype=torch.float64)[:, :classes]
    ahead[0, best] = 1.0
    found = leads(x + ahead)[0, best].item()
    assert 0 <= 1 - ahead[0, torch.arange(classes) != best].max().item() - found < 1e-9


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends by sign are computed even where they gain little."""
    monkeypatch.setattr(ends_of_products, "WORTH_ENDS", -1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(12))
def test_products_hold_every_input_and_every_weight(seed: int, dtype: torch.dtype, always: None) -> None:
    """Columns of one sign, of the other, and of none, with corners of the weights and inputs of the box."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)

    symbols, center = bf.Symbols(), draw(4, 2)
    radius = 0.3 * draw(4, 2).abs()
    matrix, offset = draw(2, 5), torch.tensor([3.0, -3.0, 0.0, 0.3, -0.3], dtype=dtype)
    bounds = torch.stack((center - radius, center + radius))
    weight, width = draw(5, 3), 0.5 * draw(5, 3).abs()
    ends, shift = torch.stack((weight - width, weight + width)), draw(3)
    bias = bf.interval(shift - 0.1, shift + 0.1)
    product = torch.addmm(bias, torch.tanh(lifted(bounds, symbols) @ matrix + offset), bf.interval(*ends))
    for corner in itertools.product((0, 1), repeat=2):
        x = torch.stack([bounds[end, :, feature] for feature, end in enumerate(corner)], 1)
        for _ in range(40):
            inside = torch.rand(4, 2, generator=random, dtype=torch.float64).round(decimals=1).to(dtype)
            points = torch.where(inside < 0.5, x, (bounds[0] + inside * (bounds[1] - bounds[0])).clamp(*bounds))
            chosen = torch.where(draw(5, 3) > 0, ends[0], ends[1])
            moved = torch.where(draw(3) > 0, bias.lower, bias.upper)
            columns = torch.tanh(points @ matrix + offset)
            assert bool(product.contains(torch.addmm(moved, columns, chosen)).all())
            signs = torch.where(columns.unsqueeze(-1) > 0, *ends), torch.where(columns.unsqueeze(-1) > 0, *ends.flip(0))
            for worst in signs:  # the ends themselves, sample by sample
                found = torch.stack([torch.addmm(moved, columns[i : i + 1], worst[i])[0] for i in range(4)])
                assert bool(product.contains(found).all())


def test_the_ends_of_a_product_round(always: None) -> None:
    """A thousand terms, one of which can move a little: plain sums in any order lie within the ends."""
    random = torch.Generator().manual_seed(0)
    values, weight = torch.rand(1, 1000, generator=random) + 0.5, torch.rand(1000, 1, generator=random) + 0.5
    bounds, ends = torch.stack((values, values)), torch.stack((weight, weight))
    bounds[1, 0, 0], ends[1, 0, 0] = bounds[1, 0, 0] + 1e-6, ends[1, 0, 0] + 1e-6
    product = lifted(bounds, bf.Symbols()) @ bf.interval(*ends)
    assert bool(product.contains((values.double() @ weight.double()).float()).all())
    for _ in range(50):
        order = torch.randperm(1000, generator=random)
        total = torch.zeros(())
        for term in values[0, order] * weight[order, 0]:
            total = total + term
        assert bool(product.contains(total.view(1, 1)).all())
    assert product.upper.item() - product.lower.item() < 1


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_poisoned_trainings_and_moved_inputs(activation: type[nn.Module], domain: str, outputs: int) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=random, dtype=torch.float64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long() * (outputs > 1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), activation(), nn.Linear(6, outputs)).double()
    options = {"loss": "bce" if outputs == 1 else "ce", "optimizer_options": {"lr": 0.3}, "epochs": 3}
    certificate = bf.certify(model, (x, y), threat=Linf(0.02), domain=domain, **options)
    answers = [certificate.predict(x, epsilon=0.7, cuts=cuts) for cuts in (0, 1, 4)]
    for _ in range(40):
        poisoned = x + 0.02 * torch.randn(x.shape, generator=random, dtype=torch.float64).sign()
        plain = copy.deepcopy(model)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
        for _ in range(3):
            optimizer.zero_grad()
            logits = plain(poisoned)
            if outputs == 1:
                nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y.double()).backward()
            else:
                nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
        moved = x + 0.7 * (2 * torch.rand(x.shape, generator=random, dtype=torch.float64) - 1)
        with torch.no_grad():
            logits = plain(moved.clamp(x - 0.7, x + 0.7))
        label = (logits[:, 0] > 0).long() if outputs == 1 else logits.argmax(1)
        for answer in answers:
            assert bool(((answer.lower <= logits) & (logits <= answer.upper)).all())
            assert bool((label == answer.label)[answer.certified].all())
    for looser, tighter in itertools.pairwise(answers):
        assert bool((tighter.lower >= looser.lower).all()) and bool((tighter.upper <= looser.upper).all())
        assert bool((tighter.margin >= looser.margin).all())
        assert bool((tighter.certified | ~looser.certified).all())
    assert bool(answers[0].certified.all()) or bool((answers[2].margin > answers[0].margin).any())


# --- inputs in parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_halves_cover_the_box(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    low = torch.randn(20, 3, 2, generator=random)
    bounds = torch.stack(
        (low, low + torch.rand(20, 3, 2, generator=random) * (torch.arange(20) % 4 > 0)[:, None, None])
    )
    gradient = torch.randn(20, 3, 2, generator=random) * (torch.arange(20) % 3 > 0)[:, None, None]
    gradient[1] = torch.nan
    halves = _halved(bounds, gradient)
    assert halves.shape == (2, 40, 3, 2)
    lower, upper = halves[:, :20], halves[:, 20:]
    assert torch.equal(torch.minimum(lower[0], upper[0]), bounds[0])
    assert torch.equal(torch.maximum(lower[1], upper[1]), bounds[1])
    for _ in range(50):
        point = bounds[0] + torch.rand(20, 3, 2, generator=random) * (bounds[1] - bounds[0])
        point = point.clamp(*bounds)
        inside = [((half[0] <= point) & (point <= half[1])).flatten(1).all(1) for half in (lower, upper)]
        assert bool((inside[0] | inside[1]).all())


def fixed(second: float, head: list[float], bias: float) -> bf.Certificate:
    """A certificate of one plain model, head . (relu(u), relu(second u)) + bias with u = x1 - 3 x2."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -3.0], [second, -3 * second]]))
        model[2].weight.copy_(torch.tensor([head]))
        model[2].bias.fill_(bias)
    return bf.Certificate(bf.lift(copy.deepcopy(model), bf.Symbols()).eval(), model, {"input_shape": [2]})


def kinked(bias: float) -> bf.Certificate:
    """relu(u) - 0.9 relu(0.9 u) + bias, from bias to bias + 0.76 on [-1, 1]^2: its kinks cancel, its errors do not."""
    return fixed(0.9, [1.0, -0.9], bias)


def distance(bias: float) -> bf.Certificate:
    """|u| + bias."""
    return fixed(-1.0, [1.0, 1.0], bias)


def test_cuts_decide_what_one_box_cannot() -> None:
    certificate, x = kinked(0.2), torch.zeros(1, 2)
    assert not bool(certificate.predict(x, epsilon=1.0).certified)
    answer = certificate.predict(x, epsilon=1.0, cuts=8)
    assert bool(answer.certified) and answer.label.item() == 1 and 0 < answer.margin.item() <= 0.2
    assert answer.lower.item() <= 0.2 and answer.upper.item() >= 0.96


@pytest.mark.parametrize("cuts", [1, 5, 12])
def test_no_cut_certifies_what_an_input_in_the_box_disproves(cuts: int) -> None:
    """|x1 - 3 x2| - 0.001 is negative on a thin strip through the middle and positive nearly everywhere."""
    certificate = distance(-1e-3)
    x = torch.tensor([[0.0, 0.0], [0.3, 0.0], [1.0, 0.1], [5.0, 0.0]])
    answer = certificate.predict(x, epsilon=0.4, cuts=cuts)
    assert answer.certified.tolist() == [False, False, False, True]
    assert bool((answer.margin[:3] <= 0).all()) and bool((answer.lower[:3, 0] <= -1e-3).all())


def test_cuts_of_regression_narrow_the_bounds() -> None:
    certificate, x = kinked(0.0), torch.zeros(1, 2)
    certificate.record["task"] = "regression"
    widths = [certificate.predict(x, epsilon=1.0, cuts=cuts).width.item() for cuts in (0, 2, 6)]
    assert widths[0] > widths[1] > widths[2] >= 0.76 and widths[2] < 1.5


def test_other_threats_to_inputs_are_cut_as_well() -> None:
    certificate, x = kinked(0.2), torch.zeros(2, 2)
    for threat in (bf.threats.L2(1.0), bf.threats.L1(1.0), Linf([1.0, 0.0]), Linf(1.0, clip=(0.0, 1.0))):
        answer = certificate.predict(x, threat=threat, cuts=8)
        assert bool(answer.certified.all()) and bool((answer.label == 1).all())
    assert not bool(kinked(-0.2).predict(x, threat=bf.threats.L2(1.0), cuts=8).certified.any())


def test_cuts_where_nothing_can_be_cut() -> None:
    certificate, x = distance(-0.2), torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    alone, cut = certificate.predict(x), certificate.predict(x, cuts=3)  # points
    for name in ("label", "certified", "lower", "upper", "margin"):
        assert torch.equal(getattr(alone, name), getattr(cut, name))
    void = bf.Certificate(None, certificate.nominal, {"input_shape": [2], "void_at_step": 1})
    assert not bool(void.predict(x, epsilon=0.1, cuts=3).certified.any())


class Inverse(nn.Module):
    """1 / x, of which nothing is known on a box around 0."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return 1 / (x @ self.scale)


class Centred(nn.Module):
    """An input minus the mean of its batch: inputs meet."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0, keepdim=True)) @ self.scale


class Halving(nn.Module):
    """x / 2, written over x."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.5) @ self.scale


def of_one_model(model: nn.Module, task: str = "classification") -> bf.Certificate:
    """A certificate of one plain model of one feature."""
    lifted = bf.lift(copy.deepcopy(model), bf.Symbols()).eval()
    return bf.Certificate(lifted, model.eval(), {"input_shape": [1], "task": task})


@pytest.mark.parametrize("chunk", [1, 256])
@pytest.mark.parametrize("cuts", [0, 1, 4])
def test_parts_of_which_nothing_is_known_beside_others(chunk: int, cuts: int) -> None:
    """1 / x on [-0.5, 1.5] and on [2, 4]: parts with 0 have no bounds, the others do, and both fit together."""
    x = torch.tensor([[0.5], [3.0]], dtype=torch.float64)
    answer = of_one_model(Inverse(), "regression").predict(x, epsilon=1.0, cuts=cuts, chunk=chunk)
    assert answer.certified.tolist() == [False, chunk == 1]
    assert answer.width[0].item() == torch.inf and answer.lower[0].item() == -torch.inf
    assert answer.lower[1].item() <= 0.25 and answer.upper[1].item() >= 0.5
    labels = of_one_model(Inverse()).predict(x, epsilon=1.0, cuts=cuts, chunk=chunk)
    assert not bool(labels.certified[0]) and (chunk > 1 or bool(labels.certified[1]))


def test_boxes_as_large_as_floats_go() -> None:
    """The sum of two ends overflows, their middle does not; and a box that overflows itself certifies nothing."""
    largest, step = torch.finfo(torch.float32).max, 2.0**-149
    ends = [[0.6 * largest, 0.9 * largest], [-largest, largest], [3 * step, 3 * step], [step, 2 * step], [-1.0, 2.0]]
    bounds = torch.tensor(ends).T.unsqueeze(2).contiguous()
    middle = middles(bounds)
    assert bool(torch.isfinite(middle).all()) and bool(((bounds[0] <= middle) & (middle <= bounds[1])).all())
    certificate = of_one_model(nn.Linear(1, 2))
    for epsilon in (1e38, 3e38):
        answer = certificate.predict(torch.tensor([[2.3e38], [0.0]]), epsilon=epsilon, cuts=2)
        assert not bool(answer.certified.any()) and len(answer) == 2


def test_inputs_that_meet_are_not_cut() -> None:
    """Parts have other neighbours than their inputs: the middle of three moves by 4/3, not by the 1 that parts show."""
    certificate, x = of_one_model(Centred()), torch.tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64)
    moved = x + torch.tensor([[-1.0], [1.0], [-1.0]], dtype=torch.float64)
    answer = certificate.predict(x, epsilon=1.0)
    with torch.no_grad():
        assert bool((certificate.nominal(moved) <= answer.upper).all())
    for inputs in (x, x[:1], 0 * x):
        with pytest.raises(bf.BoundFlowError, match="lets the inputs of a batch meet"):
            certificate.predict(inputs, epsilon=1.0, cuts=1)
    with pytest.raises(bf.BoundFlowError, match="use cuts=0 and chunk=3"):
        certificate.predict(x, epsilon=1.0, chunk=2)


@pytest.mark.parametrize("cuts", [0, 2])
def test_a_network_that_writes_into_its_inputs(cuts: int) -> None:
    x = torch.tensor([[2.0], [0.1]], dtype=torch.float64)
    answer = of_one_model(Halving()).predict(x, epsilon=0.5, cuts=cuts)
    assert x.flatten().tolist() == [2.0, 0.1]
    assert answer.certified.tolist() == [True, False] and 0.7 < answer.margin[0].item() <= 0.75
    assert answer.lower[0].item() <= 0.75 and answer.upper[0].item() >= 1.25
    of_one_model(Halving()).accuracy(x, [1, 1], epsilon=0.5, cuts=cuts)
    assert x.flatten().tolist() == [2.0, 0.1]


@pytest.mark.parametrize("threat", [Linf(0.01), bf.threats.AtMost(2, bf.threats.Labels())], ids=["all", "budget"])
def test_copies_of_a_certificate_answer_alike(threat: bf.threats.Threat) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 2, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    certificate = bf.certify(model, (x, (x[:, 0] > 0).long()), threat=threat, loss="bce", epochs=2)
    answer = certificate.predict(x, epsilon=0.05, cuts=2)
    for again in (copy.deepcopy(certificate), pickle.loads(pickle.dumps(certificate))):
        assert torch.equal(again.predict(x, epsilon=0.05, cuts=2).lower, answer.lower)


def test_answers_are_told_chunk_by_chunk() -> None:
    told: list[tuple[int, int]] = []
    distance(0.0).predict(torch.zeros(5, 2), chunk=2, tell=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]


def test_no_chunk_at_all() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        distance(0.0).predict(torch.zeros(1, 2), chunk=0)


@pytest.mark.parametrize("cuts", [-1, 17, 1.5, True, None, "3", float("nan"), float("inf")])
def test_cuts_that_make_no_sense(cuts: float) -> None:
    with pytest.raises(ValueError, match="cuts must be a whole number from 0 to 16"):
        distance(0.0).predict(torch.zeros(1, 2), cuts=cuts)


@pytest.mark.parametrize("loaded", [False, True])
def test_answers_leave_nothing_behind(loaded: bool, tmp_path: Path) -> None:
    """Inputs in parts have thousands of symbols, and nobody asks for them again: a certificate does not grow."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    options = {"loss": "mse", "optimizer_options": {"lr": 0.1}, "epochs": 2}
    certificate = bf.certify(model, (x, x[:, :1]), threat=Linf(0.01), **options)
    if loaded:
        certificate.save(tmp_path / "certificate")
        certificate = bf.load(tmp_path / "certificate")
    assert certificate.model is not None
    first = next(certificate.model.parameters())
    assert isinstance(first, Bounded) and first.symbols is not None
    symbols, rows = first.symbols, first.form.rows

    def handed_out() -> tuple[int, ...]:
        ledgers = symbols._ledger, symbols._looking
        return (*(ledger.registry.count for ledger in ledgers), *(ledger.own for ledger in ledgers), len(symbols.table))

    before = handed_out()
    answers = [certificate.predict(x, epsilon=0.5, cuts=3, chunk=4) for _ in range(2)]
    gc.collect()
    assert handed_out() == before
    kept = (*rows._unions.values(), *rows._meets, *rows._positions)
    assert not any(other.batch is not None and other.batch.guests for other in kept if isinstance(other, Rows))
    assert not any(other.guests for other in kept if isinstance(other, Batch))
    for name in ("label", "certified", "lower", "upper", "width"):
        assert torch.equal(*(getattr(answer, name) for answer in answers))


def test_nothing_of_a_run_waits_for_the_garbage_collector() -> None:
    """Rows are the largest tensors there are: with what holds them gone, they are."""

    def run() -> None:
        model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)).double()
        x = torch.randn(60, 6, dtype=torch.float64)
        recipe = bf.Recipe(loss="ce", optimizer_options={"lr": 0.5}, epochs=3, order=6, memory=3e7)
        threat = bf.threats.AtMost(5, Linf(0.01))
        certificate = bf.certify(model, (x, (x[:, 0] > 0).long()), recipe, threat=threat, progress=False)
        assert len(pickle.loads(pickle.dumps(certificate)).predict(x).label) == len(x)

    def held() -> int:
        tensors = (one for one in gc.get_objects() if type(one) is Tensor)
        return sum({one.data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())

    run()
    gc.collect()
    before = held()
    gc.disable()
    try:
        run()
        assert held() <= before
    finally:
        gc.enable()
