"""The traps that give silently wrong bounds, by name. Each either works or raises the exception that explains it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import boundflow as bf
from boundflow import rounding


def small_set(shape: tuple = (2, 3), radius: float = 0.1) -> bf.Bounded:
    return bf.ball(torch.arange(float(torch.Size(shape).numel())).view(shape), radius)


# --- aliases --------------------------------------------------------------------------------------------------------


def test_in_place_on_a_view_makes_the_base_stale() -> None:
    y = small_set()
    with torch.no_grad():
        y[:, 0].mul_(0)
    with pytest.raises(bf.StaleAlias):
        y + 1
    with pytest.raises(bf.StaleAlias):
        _ = y.lower


def test_in_place_on_the_base_makes_views_stale() -> None:
    y = small_set()
    view = y.view(-1)
    with torch.no_grad():
        y.mul_(2)
    assert float(y.upper.max()) > 10
    with pytest.raises(bf.StaleAlias):
        view + 1


def test_in_place_on_a_detached_alias() -> None:
    p = nn.Parameter(small_set())
    with torch.no_grad():
        p.detach().mul_(2)
    with pytest.raises(bf.StaleAlias):
        p + 1


def test_data_is_refused() -> None:
    p = nn.Parameter(small_set())
    with pytest.raises(bf.StaleAlias):
        _ = p.data
    with pytest.raises(bf.StaleAlias):
        p.data = small_set()


def test_inference_mode_is_refused() -> None:
    x = small_set()
    with torch.inference_mode(), pytest.raises(bf.UnsupportedOperator):
        x + 1


def test_repeated_in_place_updates_stay_fresh() -> None:
    p = small_set()
    with torch.no_grad():
        for _ in range(5):
            p.mul_(0.5).add_(1.0).clamp_(-10, 10)
    assert bool(p.contains(p.center).all())


def test_plain_plus_equals_bounded_is_refused() -> None:
    total = torch.zeros(2, 3)
    with pytest.raises(bf.PlainTarget, match="total = total"):
        total += small_set()
    with pytest.raises(bf.PlainTarget):
        total.copy_(small_set())
    with pytest.raises(bf.PlainTarget):
        total[0] = small_set((3,))


def test_plain_optimizer_state_does_not_swallow_a_set() -> None:
    """Momentum that was filled before lifting is plain; adding a bounded gradient to it must not lose the bounds."""
    layer = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    bf.lift(layer)
    layer(bf.ball(torch.ones(2, 3), 0.1)).sum().backward()
    with pytest.raises(bf.PlainTarget):
        optimizer.step()


# --- gradients ------------------------------------------------------------------------------------------------------


def test_plain_then_bounded_backward_into_one_leaf() -> None:
    layer = bf.lift(nn.Linear(3, 1).double())
    x = torch.ones(2, 3, dtype=torch.float64)
    layer(x).sum().backward()
    assert isinstance(layer.weight.grad, bf.Bounded)
    layer(bf.ball(x, 0.1)).sum().backward()
    assert isinstance(layer.weight.grad, bf.Bounded)
    for total in (3.8, 4.0, 4.2):
        assert bool(layer.weight.grad.contains(torch.full((1, 3), total, dtype=torch.float64)).all())
    layer.weight.sum().backward()
    assert isinstance(layer.weight.grad, bf.Bounded)
    assert bool(layer.weight.grad.contains(torch.full((1, 3), 5.2, dtype=torch.float64)).all())


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: F.binary_cross_entropy_with_logits(z[:, 0], y.double()),
        lambda z, y: F.cross_entropy(z, y),
        lambda z, y: F.mse_loss(z[:, 0], y.double()),
        lambda z, y: bf.losses.hinge(z[:, 0], y),
    ],
    ids=["bce", "ce", "mse", "hinge"],
)
def test_scaled_losses_scale_their_gradients(loss) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    plain = nn.Linear(3, 2).double()
    bounded = bf.lift(copy.deepcopy(plain))
    (10 * loss(plain(x), y)).backward()
    (10 * loss(bounded(bf.ball(x, 0.01)), y)).backward()
    assert bool(bounded.weight.grad.contains(plain.weight.grad).all())
    assert float((bounded.weight.grad.center - plain.weight.grad).abs().max()) < 1


def test_optimizer_built_before_lift_still_holds_the_parameters() -> None:
    layer = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    bf.lift(layer)
    assert optimizer.param_groups[0]["params"][0] is layer.weight
    layer(bf.ball(torch.ones(2, 3), 0.1)).sum().backward()
    optimizer.step()
    assert float(layer.weight.spread.min()) > 0.01


def test_a_graph_kept_across_a_reduction_raises() -> None:
    symbols = bf.Symbols(bf.threats.Linf(0.1), order=1)
    layer = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    bf.lift(layer, symbols)
    symbols.attach(optimizer)
    x, _ = symbols.lift(torch.randn(3, 2), torch.zeros(3), torch.arange(3))
    loss = layer(x).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_of_max_pooling_ignore_the_indices_of_the_center() -> None:
    """Two overlapping candidates: each may get the whole gradient or none of it."""
    x = bf.interval(torch.tensor([[[[0.0, 0.5, -9.0, -9.0]]]]), torch.tensor([[[[1.0, 0.6, -8.0, -8.5]]]]))
    x.requires_grad_()
    F.max_pool2d(x, (1, 2)).sum().backward()
    for received in ([1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]):
        assert bool(x.grad.contains(torch.tensor([[[received]]])).all())
    assert float(x.grad.lower.min()) > -1e-6 and float(x.grad.upper.max()) < 1 + 1e-5
    certain = bf.interval(torch.tensor([[[[0.0, 2.0]]]]), torch.tensor([[[[1.0, 3.0]]]])).requires_grad_()
    F.max_pool2d(certain, (1, 2)).sum().backward()
    assert bool(certain.grad.contains(torch.tensor([[[[0.0, 1.0]]]])).all()) and float(certain.grad.spread.max()) < 1e-5


def test_nan_never_decides_a_gate() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    x = bf.Bounded(torch.stack((nan, nan)))  # only the constructor of the type itself lets this in
    condition = x > 0
    assert condition.lower.tolist() == [False, True] and condition.upper.tolist() == [True, True]
    assert (x <= 0).upper.tolist() == [True, False] and (x == 0).lower.tolist() == [False, False]
    grad = torch.ops.aten.threshold_backward(bf.ball(torch.ones(2), 0.0), x, 0)
    assert grad.lower.tolist() == [0, 1] and grad.upper.tolist() == [1, 1]


# --- identity of sets -----------------------------------------------------------------------------------------------


def test_two_balls_that_share_storage_are_not_a_square() -> None:
    storage = torch.zeros(3)
    x, y = bf.ball(storage, 1.0), bf.ball(storage, 1.0)
    assert float((x * y).lower.max()) <= -1.0 and float((x * x).lower.min()) == 0.0
    state = torch.zeros_like(x)
    with torch.no_grad():
        assert float(state.clone().addcmul_(x, y).lower.max()) <= -1.0
        assert float(state.clone().addcmul_(x, x).lower.min()) == 0.0
        assert float(torch.addcmul(state, x, x.detach()).lower.max()) <= -1.0


def test_a_set_does_not_follow_the_tensor_it_was_made_from() -> None:
    source = torch.zeros(2)
    ball, interval = bf.ball(source, 1.0), bf.interval(source, source + 1)
    layer = nn.Linear(2, 1)
    weight = layer.weight
    before = weight.detach().clone()
    bf.lift(layer)
    source += 100
    assert float(ball.upper.max()) < 2 and float(interval.upper.max()) <= 1 and torch.equal(layer.weight.center, before)


def test_deepcopy_then_mixing_keeps_the_symbols() -> None:
    symbols = bf.Symbols(bf.threats.Linf(0.1))
    layer = bf.lift(nn.Linear(2, 1).double(), symbols)
    x, _ = symbols.lift(torch.zeros(3, 2).double(), torch.zeros(3), torch.arange(3))
    other = copy.deepcopy(layer)
    with torch.no_grad():
        difference = layer(x) - other(x)
    assert float(difference.spread.max()) < 1e-12  # the same attacker moved both
    copied = copy.deepcopy(x)
    assert float((copied - x).spread.max()) < 1e-12


def test_symbols_of_two_spaces_do_not_mix() -> None:
    first, second = (bf.Symbols(bf.threats.Linf(0.1)) for _ in range(2))
    x, y = torch.zeros(3, 2), torch.zeros(3)
    with pytest.raises(bf.MixedSymbols):
        first.lift(x, y, torch.arange(3))[0] + second.lift(x, y, torch.arange(3))[0]


def test_rows_are_matched_by_symbol_not_by_position() -> None:
    symbols = bf.Symbols(bf.threats.Linf(0.5))
    x = torch.zeros(2, 1, dtype=torch.float64)
    first, _ = symbols.lift(x, x, torch.tensor([0, 1]))
    second, _ = symbols.lift(x, x, torch.tensor([1, 2]))
    assert float((first[1] - second[0]).spread.max()) < 1e-12  # both are sample 1
    assert float((first[0] - second[0]).spread.max()) > 0.9  # samples 0 and 1


def test_one_sample_twice_in_a_batch_is_moved_once() -> None:
    symbols = bf.Symbols(bf.threats.Linf(0.5))
    x, _ = symbols.lift(torch.zeros(2, 1).double(), torch.zeros(2), torch.tensor([4, 4]))
    assert float((x[0] - x[1]).spread.max()) < 1e-12


def test_a_sample_lifted_with_other_values_is_refused() -> None:
    """An augmented copy is another function of the raw value: lift the raw data, then augment the set."""
    symbols = bf.Symbols(bf.threats.Linf(0.5))
    symbols.lift(torch.zeros(1, 2), torch.zeros(1), torch.tensor([3]))
    with pytest.raises(bf.MixedSymbols, match="augment"):
        symbols.lift(torch.ones(1, 2), torch.zeros(1), torch.tensor([3]))


def test_a_reduction_keeps_correlated_scalars_apart() -> None:
    """(1, 0) xi_1 + (0, 1) xi_2 must not become (1, 1) xi: the set must still contain (1, -1)."""
    symbols = bf.Symbols(bf.threats.Linf(1.0), order=1)
    p, q = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
    module = nn.ParameterList([p, q])
    bf.lift(module, symbols)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    symbols.attach(optimizer)
    for parameter in module:
        parameter.grad = bf.ball(torch.zeros(1, dtype=torch.float64), 1.0)
    optimizer.step()
    with torch.no_grad():
        assert bool((module[0] - module[1]).contains(torch.tensor([2.0], dtype=torch.float64)).all())
        assert bool((module[0] + module[1]).contains(torch.tensor([2.0], dtype=torch.float64)).all())


# --- precision ------------------------------------------------------------------------------------------------------


def test_double_and_float_convert_the_inner_tensors() -> None:
    layer = bf.lift(nn.Linear(3, 2))
    layer(bf.ball(torch.ones(2, 3), 0.1)).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    kept = layer.weight.lower.clone(), layer.weight.upper.clone()
    layer.double()
    assert layer.weight.dtype is layer.weight.lower.dtype is torch.float64
    assert torch.equal(layer.weight.lower, kept[0].double())
    layer.to(torch.float32)
    assert layer.weight.dtype is layer.weight.center.dtype is torch.float32
    assert bool((layer.weight.lower <= kept[0]).all()) and bool((kept[1] <= layer.weight.upper).all())
    with pytest.raises(bf.MixedTensors):
        layer.half()


def test_soft_labels_do_not_make_the_loss_monotone() -> None:
    """The smallest binary cross entropy of a soft label is inside the interval, not at an end."""
    z, y = bf.interval(torch.tensor([-3.0]).double(), torch.tensor([3.0]).double()), torch.tensor([0.3]).double()
    loss = F.binary_cross_entropy_with_logits(z, y)
    inner = F.binary_cross_entropy_with_logits(torch.logit(y), y)
    assert float(loss.lower) <= float(inner) < float(loss.lower) + 1e-8
    bounded = F.binary_cross_entropy_with_logits(
        torch.tensor([0.5]), bf.interval(torch.tensor([0.0]), torch.tensor([1.0]))
    )
    for label in (0.0, 0.5, 1.0):
        assert bool(bounded.contains(F.binary_cross_entropy_with_logits(torch.tensor([0.5]), torch.tensor([label]))))


def test_reduced_precision_flags_are_refused() -> None:
    x = bf.ball(torch.ones(2, 2), 0.1)
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("high", "medium"):
            torch.set_float32_matmul_precision(precision)
            with pytest.raises(bf.UnsafePrecision):
                x @ x
        assert (x.double() @ x.double()).dtype is torch.float64
    finally:
        torch.set_float32_matmul_precision(before)
    x @ x


def test_bfloat16_and_half_have_no_bounds() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        with pytest.raises(bf.MixedTensors):
            bf.ball(torch.ones(2, dtype=dtype), 0.1)


def test_flushed_subnormals_are_refused() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        with pytest.raises(bf.UnsafePrecision):
            bf.lift(nn.Linear(1, 1))
    finally:
        torch.set_flush_denormal(False)


def test_rounding_is_off_only_by_an_explicit_word() -> None:
    assert rounding.mode() == "outward"
    x = torch.tensor([0.1, 0.2, 0.3])
    with rounding.nearest():
        assert rounding.mode() == "nearest"
        assert float((bf.ball(x, 0.0) * 3).spread.max()) == 0
    assert rounding.mode() == "outward"
    assert float((bf.ball(x, 0.0) * 3).spread.min()) > 0


def test_float32_products_without_allowance_exclude_the_truth() -> None:
    """Why rounding is part of every rule: at radius zero the plain float32 product is almost never the true one."""
    torch.manual_seed(0)
    a, b = torch.randn(20, 50), torch.randn(50, 20)
    truth = a.double() @ b.double()
    with rounding.nearest():
        blind = bf.ball(a, 0.0) @ bf.ball(b, 0.0)
    sound = bf.ball(a, 0.0) @ bf.ball(b, 0.0)
    missed = ~((blind.lower.double() <= truth) & (truth <= blind.upper.double()))
    assert float(missed.double().mean()) > 0.9
    assert bool(((sound.lower.double() <= truth) & (truth <= sound.upper.double())).all())
    assert bool(sound.contains(a @ b).all())
