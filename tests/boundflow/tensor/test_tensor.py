"""Bounded behaves as a tensor: shape, conversion, copies, indexing, printing; and says clearly what it will not do."""

from __future__ import annotations

import copy
import io
import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn as nn

import boundflow as bf
from boundflow.rules.operand_properties import same_kind
from boundflow.sets.set import Check, concretised

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture
def x() -> bf.Bounded:
    return bf.ball(torch.arange(6.0).view(2, 3), 0.25)


def test_it_is_a_tensor(x: bf.Bounded) -> None:
    assert isinstance(x, torch.Tensor) and x.shape == (2, 3) and x.dim() == 2 and x.numel() == 6 and len(x) == 2
    assert x.dtype is torch.float32 and x.device.type == "cpu" and not x.requires_grad
    assert torch.equal(x.center, torch.arange(6.0).view(2, 3))
    assert bool((x.radius >= 0.25).all()) and bool((x.radius < 0.2501).all())
    assert x.generators.shape == (0, 2, 3)
    assert bool((x.lower <= x.center - 0.25).all()) and bool((x.center + 0.25 <= x.upper).all())
    assert bool((x.spread >= 0.25).all())


def test_making_sets() -> None:
    interval = bf.interval(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0]))
    assert interval.lower.tolist() == [0, 1] and interval.upper.tolist() == [2, 1]
    assert bf.interval(0, 1).dtype is torch.get_default_dtype()
    point = bf.ball(torch.tensor([1 / 3]), 0.0)
    assert torch.equal(point.lower, point.upper)
    assert bf.ball(torch.zeros(2, 3), torch.tensor([0.1, 0.2, 0.3])).radius[1, 2] >= 0.3
    with pytest.raises(bf.CrossedBounds):
        bf.interval(torch.tensor([1.0]), torch.tensor([0.0]))
    for radius in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="radius"):
            bf.ball(torch.zeros(2), radius)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(bf.VoidBounds):
            bf.ball(torch.tensor([bad]), 0.1)
        with pytest.raises(bf.VoidBounds):
            bf.interval(torch.tensor([0.0]), torch.tensor([bad]))
    with pytest.raises(bf.MixedTensors):
        bf.interval(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    with pytest.raises(bf.MixedTensors):
        bf.ball(point, 0.1)


@pytest.mark.parametrize("check", Check)
def test_what_is_looked_at_where_a_set_is_made(check: Check) -> None:
    """Ends that are in order may overflow, alone or in a sum that does not say so; a form may miss its interval."""
    largest = torch.finfo(torch.float32).max
    for bad in ([[0.0], [math.inf]], [[-math.inf], [math.inf]], [[math.nan], [0.0]]):
        with pytest.raises(bf.VoidBounds) if check is not Check.NOTHING else nullcontext():
            concretised("test", torch.tensor(bad), None, None, check=check)
    concretised(
        "test", torch.tensor([[0.4, 0.4], [0.5, 0.5]]) * largest, None, None, check=check
    )  # their sum is infinite
    symbols = bf.Symbols(bf.threats.Linf(0.1))
    form = symbols.lift(torch.zeros(1, 1), torch.zeros(1), torch.arange(1))[0].form.dense
    with pytest.raises(bf.CrossedBounds):
        concretised("test", torch.tensor([[[1.0]], [[2.0]]]), form, symbols, check=check)


def test_whole_numbers_that_a_dtype_does_not_hold() -> None:
    x = bf.ball(torch.zeros(2), 0.1)
    for number in (3.0, 255.0, 2.0**24 + 1, 2.0**30 + 7):
        made = torch.full_like(x, number)
        assert bool((made.lower.double() <= number).all()) and bool((made.upper.double() >= number).all())


@pytest.mark.parametrize("each", [False, True], ids=["one radius", "a radius each"])
def test_a_float_at_the_edge_of_the_ball_is_inside(each: bool) -> None:
    """``x + epsilon`` rounds to a float that may be further than epsilon away in real arithmetic."""
    torch.manual_seed(0)
    x = torch.randn(10_000)
    for epsilon in (1e-3, 0.1, 1e-7, 3.3):
        ball = bf.ball(x, torch.full_like(x, epsilon) if each else epsilon)
        assert bool(ball.contains(x + epsilon).all()) and bool(ball.contains(x - epsilon).all())
        radius = torch.tensor(epsilon).double() if each else epsilon  # a tensor means the number that it holds
        assert bool((ball.upper.double() >= x.double() + radius).all())


def test_printing_is_short(x: bf.Bounded) -> None:
    text = repr(x)
    assert "Bounded(shape=(2, 3)" in text and "width" in text and len(text) < 120
    assert "[" in repr(x.sum()) and "rows" not in text
    symbols = bf.Symbols(bf.threats.Linf(0.1))
    assert "rows=2" in repr(symbols.lift(torch.zeros(2, 2), torch.zeros(2), torch.arange(2))[0])
    assert "undecided=1" in repr(x > 0) and "float64" in repr(x.double()) and str(x) == text
    assert "requires_grad" in repr(nn.Parameter(x)) and "Linf(0.1)" in repr(symbols)
    assert repr(x[:0]).startswith("Bounded(shape=(0, 3)")
    view = x[0]
    with torch.no_grad():
        x.mul_(2)
    assert "stale" in repr(view)


def test_indexing_and_broadcasting(x: bf.Bounded) -> None:
    assert x[0, 1].shape == () and x[:, 1:].shape == (2, 2) and x[..., None].shape == (2, 3, 1)
    assert x[torch.tensor([1, 0])].shape == (2, 3) and x[x.center > 2].shape == (3,)
    assert (x + torch.ones(3)).shape == (2, 3) and (x.unsqueeze(0) * x.unsqueeze(1)).shape == (2, 2, 3)
    assert [row.shape for row in x] == [(3,), (3,)]
    assert (2 * x - 1 / (x + 3)).shape == (2, 3) and (x @ x.T).shape == (2, 2) and x.flatten().shape == (6,)
    with torch.no_grad():
        y = x.clone()
        y[0] = torch.zeros(3)
        y[1, 2] = bf.ball(torch.tensor(7.0), 0.5)
    assert float(y.upper[0].abs().max()) == 0 and float(y.upper[1, 2]) >= 7.5


def test_indexed_assignment_is_differentiable() -> None:
    y = 2 * (leaf := bf.ball(torch.zeros(2, 3), 0.1).requires_grad_())
    y[0, :2] = 3 * leaf[1, :2]
    y.sum().backward()
    assert bool(leaf.grad.contains(torch.tensor([[0.0, 0.0, 2.0], [5.0, 5.0, 2.0]])).all())


def test_copies(x: bf.Bounded) -> None:
    layer = bf.lift(nn.Linear(3, 2))
    layer(x).sum().backward()
    copied = copy.deepcopy(layer)
    assert isinstance(copied.weight, nn.Parameter) and copied.weight.requires_grad and copied.weight is not layer.weight
    assert isinstance(copied.weight.grad, bf.Bounded)
    torch.optim.SGD(copied.parameters(), lr=0.1).step()
    assert float(layer.weight.spread.max()) == 0 < float(copied.weight.spread.max())
    with pytest.raises(bf.BoundFlowError):
        copy.deepcopy(layer(x))


def test_state_dict_and_back(x: bf.Bounded) -> None:
    layer = bf.lift(nn.Linear(3, 2))
    layer(x).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    state = copy.deepcopy(layer.state_dict())
    other = bf.lift(nn.Linear(3, 2))
    other.load_state_dict(state)
    assert torch.equal(other.weight.lower, layer.weight.lower) and torch.equal(other.weight.upper, layer.weight.upper)
    plain = nn.Linear(3, 2)
    other.load_state_dict(plain.state_dict())
    assert torch.equal(other.weight.center, plain.weight.detach()) and float(other.weight.spread.max()) == 0
    with pytest.raises(RuntimeError, match="plain tensor"):
        plain.load_state_dict(state)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert torch.equal(loaded["weight"].lower, state["weight"].lower)


def test_centers_brings_a_plain_module_back(x: bf.Bounded) -> None:
    layer = bf.lift(nn.Linear(3, 2))
    before = layer.weight.center.clone()
    bf.centers(layer)
    assert type(layer.weight) is nn.Parameter and torch.equal(layer.weight.detach(), before)
    assert not isinstance(layer(torch.ones(1, 3)), bf.Bounded)
    with pytest.raises(bf.BoundFlowError, match="bounded already"):
        bf.lift(bf.lift(layer))


def test_no_grad_and_requires_grad(x: bf.Bounded) -> None:
    layer = bf.lift(nn.Linear(3, 2))
    with torch.no_grad():
        assert not layer(x).requires_grad
    assert layer(x).requires_grad
    leaf = bf.ball(torch.ones(3), 0.1).requires_grad_()
    (leaf * leaf).sum().backward()
    assert bool(leaf.grad.contains(torch.full((3,), 2.0)).all())
    (grad,) = torch.autograd.grad(layer(x).sum(), layer.weight)
    assert isinstance(grad, bf.Bounded)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_and_devices(device: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device, dtype)
    layer = bf.lift(copy.deepcopy(plain))
    x = torch.randn(5, 3, device=device, dtype=dtype)
    for model, inputs in ((plain, x), (layer, bf.ball(x, 1e-3))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    for bounded, parameter in zip(layer.parameters(), plain.parameters(), strict=True):
        assert bounded.device.type == device and bounded.dtype is dtype
        assert bool(bounded.contains(parameter.detach()).all())


def test_questions_with_one_answer(x: bf.Bounded) -> None:
    with pytest.raises(bf.Undecided, match="center"):
        x.sum().item()
    with pytest.raises(bf.Undecided):
        float(x.sum())
    assert bf.ball(torch.tensor(2.0), 0.0).item() == 2.0
    assert bool(x[1, 0] > 1) and not bool(x[0, 0] > 1) and bool(x[1, 1])
    with pytest.raises(bf.Undecided):
        bool(x[0, 0] > 0)
    with pytest.raises(bf.Undecided):
        bool(x[0, 0])
    best = 100.0
    if x.sum() < best:
        best = x.sum().upper.item()
    assert best < 100
    for read in (lambda: x.numpy(), lambda: x.tolist(), lambda: torch.Tensor.__array__(x)):
        with pytest.raises(bf.Undecided):
            read()


def test_unknown_operators_raise_with_their_name(x: bf.Bounded) -> None:
    with pytest.raises(bf.UnsupportedOperator, match=r"aten\.erfinv.*docs/extending.md"):
        torch.erfinv(x)
    with pytest.raises(bf.UnsupportedOperator, match="amax"):
        x.max(dim=1)
    with pytest.raises(bf.UnsupportedOperator, match="training mode"):
        nn.BatchNorm1d(3)(x)
    with pytest.raises(NotImplementedError):
        torch.svd(x)
    for refused in (
        lambda: nn.functional.gelu(x, approximate="tanh"),
        lambda: nn.functional.conv_transpose1d(x.view(1, 2, 3), torch.ones(2, 1, 2)),
        lambda: x**0.3,
        lambda: nn.functional.multi_margin_loss(x, torch.tensor([0, 1]), p=2),
        lambda: nn.functional.cross_entropy(x, torch.tensor([0, 1]), size_average=True),
        lambda: x.clamp(2, 1),
        lambda: nn.functional.pad(x, (1, 1), value=2.0),
        lambda: nn.functional.elu(x, -1.0),
        lambda: torch.linalg.vector_norm(x, 3),
        lambda: nn.functional.dropout(x, 0.5, True, inplace=True),
    ):
        with pytest.raises(bf.UnsupportedOperator):
            refused()


def test_outside_the_domain(x: bf.Bounded) -> None:
    for broken in (
        lambda: torch.log(x),
        lambda: torch.sqrt(x - 1),
        lambda: 1 / x,
        lambda: x / x,
        lambda: torch.rsqrt(x),
    ):
        with pytest.raises(bf.VoidBounds):
            broken()
    with pytest.raises(bf.VoidBounds):
        x / 0.0


def test_mixed_dtypes_and_devices(x: bf.Bounded) -> None:
    for mixed in (
        lambda: x + torch.ones(3, dtype=torch.float64),
        lambda: x * x.double(),
        lambda: x @ torch.ones(3, 1).double(),
    ):
        with pytest.raises(bf.MixedTensors):
            mixed()
    assert (x + torch.tensor(1.0, dtype=torch.float64)).dtype is torch.float32  # 0-dimensional, as in PyTorch
    assert (x * torch.tensor([1, 2, 3])).dtype is torch.float32
    with pytest.raises(bf.MixedTensors):
        same_kind(x.set, torch.empty(3, device="meta"))


def test_targets_are_checked(x: bf.Bounded) -> None:
    with pytest.raises(ValueError, match="classes"):
        nn.functional.cross_entropy(x, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="shape"):
        nn.functional.binary_cross_entropy_with_logits(x, torch.ones(2))
    with pytest.raises(ValueError, match="shape"):
        bf.losses.hinge(x, torch.ones(2))


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_blow_up_is_reported_with_its_step(domain: str) -> None:
    """Infinite bounds raise as what they are, not as NaN, and say after how many steps."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 2), torch.randn(6, 1)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    symbols = bf.Symbols(bf.threats.Linf(1.0), order=2) if domain == "zonotope" else None
    bf.lift(model, symbols)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    if symbols is not None:
        symbols.attach(optimizer)
    with pytest.raises(bf.VoidBounds, match=r"after \d+ optimizer steps") as caught:
        for _ in range(60):
            inputs = bf.ball(x, 1.0) if symbols is None else symbols.lift(x, y, torch.arange(6))[0]
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), y).backward()
            optimizer.step()
    assert caught.value.step is not None and 0 < caught.value.step < 60


def test_bad_threats() -> None:
    for bad in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="epsilon"):
            bf.threats.Linf(bad)
    with pytest.raises(ValueError, match="clip"):
        bf.threats.Linf(0.1, clip=(1, 0))
    with pytest.raises(ValueError, match="order"):
        bf.Symbols(bf.threats.Linf(0.1), order=0)
    symbols = bf.Symbols(bf.threats.Linf(0.1, clip=(0, 1)))
    with pytest.raises(ValueError, match="valid range"):
        symbols.lift(torch.full((1, 2), 2.0), torch.zeros(1), torch.tensor([0]))
    with pytest.raises(ValueError, match="index"):
        symbols.lift(torch.zeros(2, 2), torch.zeros(2), torch.tensor([0]))
    lifted, _ = symbols.lift(torch.tensor([[0.0, 0.95]]), torch.zeros(1), torch.tensor([0]))
    assert float(lifted.lower.min()) >= 0 and float(lifted.upper.max()) <= 1
    with pytest.raises(bf.MixedSymbols, match="no threat"):
        bf.Symbols().lift(torch.zeros(1), torch.zeros(1), torch.tensor([0]))
