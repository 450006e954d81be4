"""The traps that give silently wrong bounds, by name. Each either works or raises the exception that explains it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import boundflow as bf
from boundflow import rounding
from boundflow.sets.set import Set


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
    x = bf.Bounded(Set(torch.stack((nan, nan))))  # only the constructor of the type itself lets this in
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
    alias = layer.weight.detach()
    before = alias.clone()
    bf.lift(layer)
    source += 100
    alias += 100
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


def test_own_rows_on_different_axes() -> None:
    """x_i + x_j: one operand has its samples down, the other across."""
    symbols = bf.Symbols(bf.threats.Linf(0.5))
    x, _ = symbols.lift(torch.zeros(3, 1).double(), torch.zeros(3), torch.arange(3))
    total = x + x.t()
    assert float((total[0, 1] - x[0] - x[1]).spread.max()) < 1e-12
    assert float((total.diagonal() - 2 * x.squeeze(1)).spread.max()) < 1e-12
    for moved in (1.0, -1.0):  # sample 1 up, sample 0 down, and the other way round
        assert bool((total[0, 1] - 2 * x[0]).contains(torch.tensor([moved]).double()).all())


def test_a_product_whose_factors_both_have_own_rows() -> None:
    """x @ x contracts the features of one factor with the samples of the other."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 3, generator=generator).double()
    symbols = bf.Symbols(bf.threats.Linf(0.5))
    lifted, _ = symbols.lift(x, x, torch.arange(3))
    square = lifted @ lifted
    for _ in range(50):
        xi = (torch.rand(3, 3, generator=generator).double() * 2 - 1).sign()
        truth = (x + 0.5 * xi) @ (x + 0.5 * xi)
        assert bool(square.contains(truth).all())
        affine = square.center + (square.generators * xi.reshape(9, 1, 1)).sum(0)
        assert bool(((truth - affine).abs() <= square.radius + 1e-9).all())


def test_own_rows_of_one_sample_spread_over_many_positions() -> None:
    symbols = bf.Symbols(bf.threats.Linf(0.5))
    x, _ = symbols.lift(torch.zeros(1, 2).double(), torch.zeros(1), torch.tensor([7]))
    spread = x + torch.zeros(3, 2).double()
    assert float((spread[0] - spread[2]).spread.max()) < 1e-12
    assert bool(spread.sum(0).contains(torch.full((2,), 1.5).double()).all())


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


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "conv"), reason="this version has no such flag")
def test_convolutions_in_bfloat16_are_refused() -> None:
    x, flags = bf.ball(torch.ones(1, 1, 3), 0.1), torch.backends.mkldnn.conv
    before = flags.fp32_precision
    try:
        flags.fp32_precision = "bf16"
        with pytest.raises(bf.UnsafePrecision, match="convolutions"):
            F.conv1d(x, torch.ones(1, 1, 2))
    finally:
        flags.fp32_precision = before
    F.conv1d(x, torch.ones(1, 1, 2))


def test_bfloat16_and_half_have_no_bounds() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        with pytest.raises(bf.MixedTensors):
            bf.ball(torch.ones(2, dtype=dtype), 0.1)
        x, y = torch.ones(4, 2, dtype=dtype), torch.tensor([0, 1, 0, 1])
        for model, more in (
            (nn.Linear(2, 2), {}),
            (nn.Linear(2, 2).to(dtype), {}),
            (nn.Linear(2, 2), {"dtype": dtype}),
        ):
            with pytest.raises(bf.MixedTensors, match="bounds exist for float32 and float64"):
                bf.certify(model, (x, y), threat=bf.threats.Linf(0.1), loss="ce", progress=False, **more)


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


# --- found by attacking the rules ---------------------------------------------------------------------------------


def holds_truth(result: bf.Bounded, truth: torch.Tensor) -> bool:
    """The real-arithmetic result, approximated in float64, lies in a float32 set."""
    return bool(((result.lower.double() <= truth) & (truth <= result.upper.double())).all())


def test_convolutions_are_not_computed_by_winograd_or_fft() -> None:
    """With oneDNN off, float32 batches of 16 and more go to NNPACK, whose errors are thousands of units."""
    torch.manual_seed(0)
    x, w = torch.randn(16, 3, 16, 16), torch.randn(8, 3, 3, 3)
    x[:, :, ::3, ::3] *= 1e6
    result = F.conv2d(bf.ball(x, 0.0), bf.ball(w, 0.0), padding=1)
    assert holds_truth(result, F.conv2d(x.double(), w.double(), padding=1))
    assert bool(result.contains(F.conv2d(x, w, padding=1)).all())
    image = torch.zeros(16, 1, 28, 28)
    image[:, :, 8:20, 8:20] = 1
    F.conv2d(bf.ball(image, 0.0), bf.ball(w[:, :1], 0.0), padding=1)


def test_spaces_without_a_threat_do_not_share_rows() -> None:
    spaces = []
    for _ in range(2):
        layer, symbols = nn.Linear(1, 1, bias=False).double(), bf.Symbols()
        nn.init.zeros_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        bf.lift(layer, symbols)
        symbols.attach(optimizer)
        layer(bf.ball(torch.zeros(1, 1).double(), 1.0)).sum().backward()
        optimizer.step()
        spaces.append(layer)
    with pytest.raises(bf.MixedSymbols):
        spaces[0].weight - spaces[1].weight
    layer, data = nn.Linear(1, 1), bf.Symbols(bf.threats.Linf(1.0))
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    bf.lift(layer, data)
    bf.Symbols().attach(optimizer)
    layer(data.lift(torch.zeros(1, 1), torch.zeros(1), torch.tensor([0]))[0]).sum().backward()
    with pytest.raises(bf.MixedSymbols, match="attached"):
        optimizer.step()
        layer(data.lift(torch.zeros(1, 1), torch.zeros(1), torch.tensor([0]))[0]).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "function",
    [
        lambda w: F.binary_cross_entropy_with_logits(3 * w, torch.zeros(1).double()),
        lambda w: F.cross_entropy(torch.stack((w, -w), 1), torch.tensor([0])),
        lambda w: torch.amax(torch.stack((w * w, -w)), 0).sum(),
    ],
    ids=["bce", "ce", "amax"],
)
def test_double_backward_is_refused_where_terms_would_be_lost(function) -> None:
    w = bf.ball(torch.tensor([1.0]).double(), 0.0).requires_grad_()
    with pytest.raises(bf.UnsupportedOperator, match="second derivatives"):
        torch.autograd.grad(function(w), w, create_graph=True)


def test_logic_of_different_ranks() -> None:
    a = bf.ball(torch.zeros(2, 2), 1.0) > 0
    b = bf.interval(torch.tensor([-1.0, 1.0]), torch.tensor([1.0, 2.0])) > 0
    assert bool((a & b).upper.all()) and not bool((a & b).lower.any())
    assert (a | b).lower.tolist() == [[False, True], [False, True]]


def test_numbers_as_conditions() -> None:
    x = bf.ball(torch.zeros(1), 1.0)
    assert x.all().lower.item() is False and x.any().lower.item() is False
    with pytest.raises(bf.UnsupportedOperator):
        x.bool()
    assert torch.isfinite(x).all()
    for undecided in (lambda: x[x > 0], lambda: torch.ones(1)[x > 0], lambda: x.__setitem__(x > 0, 0.0)):
        with pytest.raises(bf.Undecided):
            undecided()
    assert x[x > -2].shape == (1,)


def test_the_first_power_is_a_new_tensor() -> None:
    x = bf.interval(torch.tensor([1.0]), torch.tensor([2.0]))
    y = x**1
    y.add_(1)
    assert float(x.lower) == 1.0 and float((x**0).upper) == 1.0
    x.requires_grad_()
    (x**1).sum().backward()
    assert bool(x.grad.contains(torch.ones(1)).all())


def test_layer_norm_backward_of_badly_conditioned_input() -> None:
    for x, g in (
        ([[72082.1328125, 72082.1328125, 72082.140625]], [[0.828956127, -0.0618153773, -0.65428865]]),
        ([[81374.8203125, 81374.828125]], [[0.57353085, -0.08192904]]),
    ):
        x, g = torch.tensor(x), torch.tensor(g)
        w, b = torch.ones(x.shape[1]), torch.zeros(x.shape[1])
        plain, sets = ([v.clone().requires_grad_() for v in (x, w)], [bf.ball(v, 0.0).requires_grad_() for v in (x, w)])
        F.layer_norm(plain[0], x.shape[1:], plain[1], b).backward(g)
        F.layer_norm(sets[0], x.shape[1:], sets[1], b).backward(bf.ball(g, 0.0))
        for inside, value in zip(sets, plain, strict=True):
            assert bool(inside.grad.contains(value.grad).all())


def test_positive_weight_that_cancels() -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        z = torch.cat((torch.tensor([-50.0]), 20 * torch.randn(200))).to(dtype)
        y = torch.cat((torch.ones(1), torch.rand(200).round())).to(dtype)
        for weight in (0.001, 1e-6, 3.0):
            weight = torch.tensor(weight, dtype=dtype)
            plain, bounded = z.clone().requires_grad_(), bf.ball(z, 0.0).requires_grad_()
            values = [
                F.binary_cross_entropy_with_logits(v, y, pos_weight=weight, reduction="none") for v in (plain, bounded)
            ]
            assert bool(values[1].contains(values[0].detach()).all())
            for value in values:
                value.sum().backward()
            assert bool(bounded.grad.contains(plain.grad).all())


def test_softmax_when_the_center_lies_outside_the_interval() -> None:
    """The affine form may leave the interval: slopes must hold on the way from its center, too."""
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        z = torch.randn(1, 3, generator=generator).double() * 3
        xi = torch.rand(1, 3, generator=generator).double() * 2 - 1
        symbols = bf.Symbols(bf.threats.Linf(2.0))
        lifted, _ = symbols.lift(z, z, torch.tensor([0]))
        inside = z + 2 * xi
        narrow = bf.Bounded(Set(torch.stack((inside - 1e-3, inside + 1e-3)), lifted.form, symbols))
        result, truth = torch.softmax(narrow, -1), torch.softmax(inside, -1)
        assert bool(result.contains(truth).all())
        affine = result.center + (result.generators * xi.view(3, 1, 1)).sum(0)
        assert bool(((truth - affine).abs() <= result.radius + 1e-9).all())


def test_charges_are_taken_at_the_largest_value() -> None:
    """Weight decay and lerp that cancel a huge parameter: what plain PyTorch loses is a share of the parameter."""
    for v in torch.linspace(0, 1e9, 50).tolist():
        plain, layer = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        bf.lift(layer)
        with torch.no_grad():
            plain.weight.fill_(v)
            layer.weight.copy_(bf.interval(torch.zeros(1, 1), torch.full((1, 1), 1e9)))
        for model in (plain, layer):
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1.0)
            model(torch.full((1, 1), 1.1)).sum().backward()
            optimizer.step()
        assert bool(layer.weight.contains(plain.weight.detach()).all())
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        upper, end, weight = (torch.rand(1, generator=generator) * s for s in (1e6, 1.0, 2.0))
        x = bf.interval(torch.zeros(1), upper)
        member = upper * torch.rand(1, generator=generator)
        result = torch.lerp(x, bf.ball(end, 0.0), 1 + float(weight))
        assert bool(result.contains(torch.lerp(member, end, 1 + float(weight))).all())


def test_sets_do_not_share_memory_with_plain_tensors() -> None:
    x, number = bf.ball(torch.zeros(2), 0.1), torch.tensor(2.0)
    x.fill_(number)
    number.add_(5)
    assert float(x.lower.max()) <= 2
    layer, upstream = bf.lift(nn.Linear(1, 2, bias=False)), torch.ones(2, 1)
    layer.weight.view(2, 1).backward(upstream)
    upstream.mul_(100)
    assert float(layer.weight.grad.upper.max()) <= 1


def test_numbers_outside_the_normal_range_are_refused() -> None:
    x = bf.ball(torch.tensor([1e38]), 0.0)
    for broken in (
        lambda: x * 1e-42,
        lambda: x * 1e-46,
        lambda: x / 1e39,
        lambda: bf.ball(torch.zeros(1), 1e-46),
        lambda: bf.threats.Linf(1e-50).at_test_time(None, torch.zeros(1)),
    ):
        with pytest.raises(bf.UnsafePrecision):
            broken()


def test_constants_that_are_not_floats() -> None:
    """0.4 and 1 / (1 - p) are not float32 numbers: the real one and the rounded one are both meant."""
    x = bf.ball(torch.tensor([0.4]), 0.0)
    assert (x > 0.4).upper.item() is True
    assert holds_truth(torch.full_like(x, 0.1), torch.tensor([0.1]).double() * 0 + 0.1)
    torch.manual_seed(0)
    dropped = F.dropout(bf.ball(torch.ones(2000), 0.0), 0.1)
    torch.manual_seed(0)
    kept = F.dropout(torch.ones(2000), 0.1) > 0
    assert holds_truth(dropped, kept.double() / 0.9) and bool(dropped.contains(kept / (1 - 0.1)).all())
    clipped, _ = bf.Symbols(bf.threats.Linf(1.0, clip=(0.1, 0.9))).lift(
        torch.tensor([[0.5]]), torch.zeros(1), torch.tensor([0])
    )
    assert float(clipped.lower) <= 0.1 and float(clipped.upper) >= 0.9


def test_what_is_never_negative_stays_so() -> None:
    """Roots and logarithms after squares, absolute values, clamps: rounding must not take them below zero."""
    x = bf.ball(torch.tensor([0.0, 1.0]), 0.0)
    for root in (
        lambda: x.pow(2).mean().sqrt(),
        lambda: (x.relu() / 2).sqrt(),
        lambda: x.abs().sum().sqrt(),
        lambda: (x.relu() * x.abs()).sqrt(),
        lambda: (3 * x.square() + x.abs()).sqrt(),
        lambda: x.clamp_min(0).sqrt(),
        lambda: x.clamp_min(1e-8).log(),
        lambda: torch.where(x > 0.5, x.abs(), x.square()).sqrt(),
    ):
        assert bool(torch.isfinite(root().lower).all())


def test_ordinary_programs() -> None:
    x, layer = bf.ball(torch.ones(3), 0.1), bf.lift(nn.Linear(3, 3))
    assert (x @ torch.ones(3, 2)).shape == (2,) and (x @ layer.weight).shape == (3,)
    assert (torch.ones(3, 3) / (layer.weight + 2)).shape == (3, 3)
    pooled = bf.ball(torch.randn(1, 1, 4, 4), 0.1).requires_grad_()
    F.max_pool2d(pooled, 2).backward(torch.ones(1, 1, 2, 2))
    F.avg_pool2d(pooled, 2).backward(torch.ones(1, 1, 2, 2))
    symbols = bf.Symbols(bf.threats.Linf(0.1))
    targets, _ = symbols.lift(torch.full((3, 1), 0.5), torch.zeros(3), torch.arange(3))
    assert F.binary_cross_entropy_with_logits(torch.ones(3, 1), targets).shape == ()
    put = torch.index_put(torch.zeros(3), (torch.tensor([1]),), x[:1])
    assert bool(put.contains(torch.tensor([0.0, 1.0, 0.0])).all())
    with pytest.raises(bf.UnsupportedOperator):
        F.max_pool2d(pooled, 2, return_indices=True)
    with pytest.raises(bf.MixedTensors):
        x.mean(dtype=torch.float64)
    assert torch.where(x > 0.5, torch.tensor(0.0, dtype=torch.float64), x).dtype is torch.float32


def test_products_of_conditions() -> None:
    """True times true is true, and two undecided conditions may both be false."""
    a, b = (bf.ball(torch.zeros(2), 1.0) > 0 for _ in range(2))
    certain = bf.ball(torch.ones(2), 0.5) > 0
    for product in (a * b, a * certain, torch.isfinite(bf.ball(torch.zeros(2), 1.0)) * a):
        assert product.dtype is torch.bool and not bool(product.lower.any()) and bool(product.upper.all())
    assert bool((certain * certain).lower.all())
    weighted = a * torch.full((2,), 3.0)
    assert float(weighted.lower.max()) <= 0.0 and float(weighted.upper.min()) >= 3.0


@pytest.mark.parametrize(
    "f",
    [
        torch.tanh,
        torch.sigmoid,
        F.softplus,
        F.silu,
        F.gelu,
        F.elu,
        lambda x: F.log_softmax(x, 1),
        lambda x: F.layer_norm(x, [3]),
    ],
    ids=["tanh", "sigmoid", "softplus", "silu", "gelu", "elu", "log softmax", "layer norm"],
)
def test_a_gradient_that_is_a_set_goes_through_plain_functions(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A plain parameter before sets: its own gradient is a set."""
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = bf.ball(torch.ones(4, 3, dtype=torch.float64), 0.1)
    (found,) = torch.autograd.grad((f(x) * weights).sum(), x)
    assert isinstance(found, bf.Bounded)
    for scale in (0.9, 1.0, 1.1):
        (plain,) = torch.autograd.grad((f(x) * scale).sum(), x)
        assert bool(found.contains(plain).all())


@pytest.mark.parametrize(
    "f", [lambda x: F.gelu(x, approximate="tanh"), lambda x: F.elu(x, alpha=-1.0)], ids=["gelu", "elu"]
)
def test_options_are_refused_on_the_way_back_too(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    with pytest.raises(bf.UnsupportedOperator):
        torch.autograd.grad((f(x) * bf.ball(torch.ones(4, 3), 0.1)).sum(), x)
