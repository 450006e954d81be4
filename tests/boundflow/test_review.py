"""Programs that once were refused, or whose certificates once were wrong: each is small and ordinary."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import boundflow as bf
from boundflow.threats import Linf
from boundflow.training.recipe import LOSSES, Recipe

RECIPE: dict[str, Any] = {"loss": "bce", "optimizer_options": {"lr": 0.1}, "epochs": 2, "batch_size": 4}
DOMAINS = ["interval", "zonotope"]


def data(samples: int = 8, *shape: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(samples, *(shape or (3,)), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x.flatten(1)[:, 0] > 0).long()


def trained_plainly(model: nn.Module, x: Tensor, y: Tensor, recipe: Recipe) -> nn.Module:
    """As certify trains, in plain PyTorch, with the numbers of the generator of the process."""
    model = copy.deepcopy(model).train()
    optimizer = recipe.optimizer([p for p in model.parameters() if p.requires_grad], **recipe.optimizer_options)
    for number, index in enumerate(recipe.batches(len(x), x.device)):
        torch.manual_seed(1_000_003 * recipe.seed + number)
        optimizer.zero_grad()
        LOSSES[recipe.loss](model(x[index]), y[index].to(x).unsqueeze(1)).backward()
        optimizer.step()
    return model.eval()


def assert_holds(model: nn.Module, x: Tensor, y: Tensor, domain: str, epsilon: float = 0.02, **fields: Any) -> None:
    """Certify, and hold poisoned plain runs against parameters and answers."""
    recipe = Recipe(**{**RECIPE, "domain": domain, **fields})
    certificate = bf.certify(model, (x, y), recipe, threat=Linf(epsilon), progress=False)
    answer = certificate.predict(x)
    generator = torch.Generator().manual_seed(1)
    for number in range(5):
        signs = torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
        plain = trained_plainly(model, x + 0.999 * epsilon * signs * (number > 0), y, recipe)
        outputs = plain(x).detach()
        assert bool(((answer.lower <= outputs) & (outputs <= answer.upper)).all())
        bf.check(plain, certificate.model)


def convolutions(*between: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 2, 2), nn.ReLU(), *between, nn.Flatten(), nn.Linear(18, 1)).double()


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("layer", [nn.Dropout, nn.Dropout2d])
def test_masks_between_convolutions(layer: type[nn.Module], domain: str) -> None:
    assert_holds(convolutions(layer(0.3)), *data(8, 2, 4, 4), domain)
    assert_holds(convolutions(layer(0.3)), *data(8, 2, 4, 4), domain, memory=1e3)


def test_an_answer_within_an_answer_has_symbols_of_its_own() -> None:
    threat, x = Linf(0.1), torch.zeros(4, 2, dtype=torch.float64)
    symbols = bf.Symbols(threat)
    model = bf.lift(nn.Linear(2, 1).double(), symbols)
    child = symbols.child(threat)
    outer, inner = threat.at_test_time(child, x), threat.at_test_time(child.child(threat), x)
    assert float((outer - inner).upper.min()) >= 0.2
    assert float((outer - 2 * outer + inner).upper.min()) >= 0.2
    assert model(inner).shape == (4, 1)


def test_threats_that_are_younger_than_an_answer_do_not_meet_it() -> None:
    x = torch.zeros(1, 2, dtype=torch.float64)
    symbols = bf.Symbols(Linf(0.1))
    child = symbols.child(bf.threats.L2(0.1))
    of_child, younger = bf.threats.L2(0.1).at_test_time(child, x), Linf(0.5).at_test_time(symbols, x)
    for meet in (lambda: (of_child + younger).sum(), lambda: (younger @ younger.T * of_child).sum()):
        with pytest.raises(bf.MixedSymbols, match="younger"):
            meet()
    assert float((of_child + of_child).upper.max()) >= 0.2
    grandchild = child.child(Linf(0.2))
    with pytest.raises(bf.MixedSymbols, match="younger"):
        (Linf(0.2).at_test_time(grandchild, x) + younger).sum()
    assert float((Linf(0.2).at_test_time(grandchild, x) + of_child).upper.max()) >= 0.3


class Around(nn.Module):
    """A small network with something before its last layer; ``initial`` and ``between`` are what a test replaces."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = (nn.Linear(*sizes, dtype=torch.float64) for sizes in ((3, 4), (4, 1)))
        self.initial()

    def initial(self) -> None: ...

    def between(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(torch.tanh(self.first(x))))


class NoiseComputedAgain(Around):
    def between(self, x: Tensor) -> Tensor:
        def noisy(x: Tensor) -> Tensor:
            return torch.tanh(x + (torch.randn_like(x) if self.training else 0.0))

        return checkpoint(noisy, x, use_reentrant=False)


@pytest.mark.parametrize("domain", DOMAINS)
def test_numbers_that_are_drawn_again_in_the_backward_pass_are_refused(domain: str) -> None:
    with pytest.raises(bf.UnsupportedProgram, match="backward pass"):
        assert_holds(NoiseComputedAgain(), *data(), domain)


class LateDropout(Around):
    """Draws from the third step on."""

    def initial(self) -> None:
        self.steps = 0

    def between(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return F.dropout(x, 0.5, self.training) if self.steps > 2 else x


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_forward_pass_may_begin_to_draw_later(domain: str) -> None:
    assert_holds(LateDropout(), *data(), domain)


class AlwaysDropout(Around):
    def between(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


def test_draws_in_evaluation_mode_are_refused_before_training() -> None:
    with pytest.raises(bf.UnsupportedProgram, match="evaluation mode"):
        assert_holds(AlwaysDropout(), *data(), "interval")


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("where", ["inputs", "model", "both"])
def test_images_and_networks_with_channels_last(where: str, domain: str) -> None:
    x, y = data(8, 2, 4, 4)
    x = x.to(memory_format=torch.channels_last) if where != "model" else x
    for model in (nn.Sequential(nn.Dropout(0.3), convolutions()), convolutions(nn.Dropout(0.3), nn.Dropout2d(0.2))):
        model = model.to(memory_format=torch.channels_last) if where != "inputs" else model
        assert_holds(model, x, y, domain)
        assert_holds(model, x, y, domain, memory=1e3)


def test_sets_have_the_order_of_memory_of_the_plain_tensor_they_are_made_from() -> None:
    plain = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    lifted = bf.Symbols(Linf(0.1)).lift(plain, torch.zeros(2), torch.arange(2))[0]
    for made in (bf.ball(plain, 0.1), bf.interval(plain, plain + 1), lifted):
        assert made.stride() == plain.stride()
    layer = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    assert bf.lift(copy.deepcopy(layer)).weight.stride() == layer.weight.stride()
    assert bf.ball(torch.zeros(1, 3).expand(4, 3), 0.1).stride() == (3, 1)


class CounterBesideCode(Around):
    """State in an object that cannot be pickled, since code stands beside it."""

    def initial(self) -> None:
        self.held = {"count": 0, "scale": lambda count: 1 + 0.5 * count}

    def between(self, x: Tensor) -> Tensor:
        self.held["count"] += self.training
        return x * self.held["scale"](self.held["count"])


class OwnGenerator(Around):
    def initial(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def between(self, x: Tensor) -> Tensor:
        noise = torch.rand(x.shape, generator=self.generator, dtype=x.dtype) if self.training else 1.0
        return x * noise


@pytest.mark.parametrize("model", [CounterBesideCode, OwnGenerator])
def test_state_in_objects_is_noticed(model: type[Around], tmp_path: Path) -> None:
    x, y = data()
    assert_holds(model(), x, y, "zonotope")
    assert_holds(model(), x, y, "interval", memory=1e3)
    options = {**RECIPE, "threat": Linf(0.02), "progress": False, "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(bf.BoundFlowError, match="a file without code cannot hold"):
        bf.certify(model(), (x, y), **options)


class Counting(torch.optim.SGD):
    """Ever shorter steps, counted in an attribute."""

    count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        for group in self.param_groups:
            group["lr"] = 0.5 / self.count
        return super().step(closure)


class CountingInState(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        kept = self.state["of all parameters"]
        kept["count"] = kept.get("count", 0) + 1
        for group in self.param_groups:
            group["lr"] = 0.5 / kept["count"]
        return super().step(closure)


class CountingInList(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["seen"] = [*group.get("seen", ()), 1.0]
            group["lr"] = 0.5 / len(group["seen"])
        return super().step(closure)


@pytest.mark.parametrize("optimizer", [Counting, CountingInState, CountingInList])
def test_optimizers_that_keep_what_no_checkpoint_holds_are_refused(
    optimizer: type[torch.optim.Optimizer], tmp_path: Path
) -> None:
    x, y = data()
    options = {**RECIPE, "optimizer": optimizer, "threat": Linf(0.02), "progress": False}
    bf.certify(Around(), (x, y), **options)
    with pytest.raises(bf.BoundFlowError, match="a checkpoint does not hold"):
        bf.certify(Around(), (x, y), **options, checkpoint=tmp_path / "checkpoint")


class OneMemory(Around):
    def initial(self) -> None:
        self.register_buffer("seen", self.last.weight.detach())

    def between(self, x: Tensor) -> Tensor:
        return x * self.seen


class OneMemoryInAList(OneMemory):
    def initial(self) -> None:
        self.seen = [self.last.weight.detach()[:, 1:]]

    def between(self, x: Tensor) -> Tensor:
        return x * self.seen[0].sum()


class NotCopied(nn.Linear):
    def __deepcopy__(self, memo: Any) -> NotCopied:
        return self


def test_models_whose_copy_would_train_otherwise_are_refused() -> None:
    x, y = data()
    for model in (OneMemory(), OneMemoryInAList()):
        with pytest.raises(bf.UnsupportedProgram, match="one memory"):
            assert_holds(model, x, y, "interval")
    shared = nn.Sequential(NotCopied(3, 1, dtype=torch.float64))
    with pytest.raises(bf.UnsupportedProgram, match="__deepcopy__"):
        assert_holds(shared, x, y, "interval")
    assert not isinstance(shared[0].weight, bf.Bounded)
    tied = Around()
    tied.again = tied.first  # one and the same tensor under two names stays so in a copy
    vector = nn.utils.parameters_to_vector(tied.parameters())
    nn.utils.vector_to_parameters(vector.detach(), tied.parameters())  # one memory, and nothing overlaps
    assert_holds(tied, x, y, "interval")


def test_a_set_made_with_roundings_switched_off_does_not_switch_them_off_for_a_run() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(300, 50), torch.randn(4, 300)
    with bf.rounding.nearest():
        lifted = bf.lift(copy.deepcopy(layer))
    inputs = bf.Symbols(Linf(0.0)).lift(x, torch.zeros(4), torch.arange(4))[0]
    found, exact = lifted(inputs), layer.double()(x.double())
    assert bool(((found.lower.double() <= exact) & (exact <= found.upper.double())).all())


class Attention(Around):
    def initial(self) -> None:
        self.attention = nn.MultiheadAttention(2, 1, dropout=0.3, batch_first=True, dtype=torch.float64)

    def between(self, x: Tensor) -> Tensor:
        x = x.reshape(len(x), 2, 2)
        return self.attention(x, x, x)[0].reshape(len(x), 4)


class AlphaDropout(Around):
    def between(self, x: Tensor) -> Tensor:
        return F.feature_alpha_dropout(F.alpha_dropout(x, 0.3, self.training), 0.2, self.training)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("model", [Attention, AlphaDropout])
def test_masks_that_are_drawn_inside_other_functions(model: type[Around], domain: str) -> None:
    assert_holds(model(), *data(), domain)
    assert_holds(model(), *data(), domain, memory=1e3)


class Unused(Around):
    def initial(self) -> None:
        self.unused = nn.Linear(2, 2, dtype=torch.float64)


@pytest.mark.parametrize("domain", DOMAINS)
def test_clipped_gradients_with_a_parameter_that_is_not_used(domain: str) -> None:
    x, y = data()
    options = {**RECIPE, "domain": domain, "clip_gradients": 1.0, "progress": False}
    for threat in (Linf(0.02), bf.threats.AtMost(1, bf.threats.Replacement())):
        certificate = bf.certify(Unused(), (x, y), threat=threat, **options)
        assert torch.equal(certificate.model.unused.weight.lower, Unused().unused.weight)
        bf.check(certificate.nominal, certificate.model)


class LateBuffer(Around):
    """Scaled by the first batch, in a buffer that is not there before."""

    def between(self, x: Tensor) -> Tensor:
        if self.training and not hasattr(self, "scale"):
            self.register_buffer("scale", x.detach().abs().mean(0) + 1)
        return x / self.scale if hasattr(self, "scale") else x


class GrowingBuffer(Around):
    def initial(self) -> None:
        self.register_buffer("seen", torch.zeros(1, 4, dtype=torch.float64), persistent=False)

    def between(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = torch.cat((self.seen, x.detach().mean(0, keepdim=True)))
        return x - self.seen.mean(0)


class BufferThatGoes(Around):
    def initial(self) -> None:
        self.register_buffer("scale", torch.full((4,), 3.0, dtype=torch.float64))

    def between(self, x: Tensor) -> Tensor:
        x = x if self.scale is None else x * self.scale
        self.scale = None if self.training else self.scale
        return x


class AttributeThatGoes(Around):
    def initial(self) -> None:
        self.first_time = True

    def between(self, x: Tensor) -> Tensor:
        if self.training and hasattr(self, "first_time"):
            del self.first_time
            x = 4 * x
        return x


@pytest.mark.parametrize("model", [LateBuffer, GrowingBuffer, BufferThatGoes, AttributeThatGoes])
def test_state_that_comes_and_goes_is_resumed(model: type[Around], tmp_path: Path) -> None:
    x, y = data()

    def stop(step: bf.Step) -> None:
        if step.number == 2:
            raise KeyboardInterrupt

    options = {**RECIPE, "threat": Linf(0.02), "progress": False}
    whole = bf.certify(model(), (x, y), **options)
    with pytest.raises(KeyboardInterrupt):
        bf.certify(model(), (x, y), **options, callbacks=[stop], checkpoint=tmp_path / "checkpoint", checkpoint_every=0)
    for _ in range(2):  # the second time the run has ended
        resumed = bf.certify(model(), (x, y), **options, checkpoint=tmp_path / "checkpoint", resume=True)
        for one, other in zip(whole.nominal.parameters(), resumed.nominal.parameters(), strict=True):
            assert torch.equal(one, other)
        for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
            assert torch.equal(one.lower, other.lower) and torch.equal(one.upper, other.upper)
    assert_holds(model(), x, y, "zonotope")


class Seeding(Around):
    """The same mask at every step, from the generator of the process."""

    forked = False

    def between(self, x: Tensor) -> Tensor:
        with torch.random.fork_rng(enabled=self.forked):
            if self.training:
                torch.manual_seed(5)
                x = x * torch.rand(4, dtype=x.dtype)
        return x


class SeedingInAFork(Seeding):
    forked = True


@pytest.mark.parametrize("model", [Seeding, SeedingInAFork])
def test_a_forward_pass_that_seeds_the_process_is_refused(model: type[Around]) -> None:
    with pytest.raises(bf.UnsupportedProgram, match="seed"):
        assert_holds(model(), *data(), "zonotope")


# --- clean states: what a tensor is where its own sample was left alone ----------------------------------------------


BUDGET = bf.threats.AtMost(1, Linf(0.1))
SPACES = {
    "none": lambda: None,
    "without rows": lambda: bf.Symbols(BUDGET, tracks=False),
    "rows": lambda: bf.Symbols(BUDGET),
}


def moved(x: Tensor) -> list[Tensor]:
    """Every sample moved as far as it can be."""
    found = []
    for sample in range(len(x)):
        found.append(x.clone())
        found[-1][sample] += 0.1
    return found


def transposed_bias(x: Tensor) -> Tensor:
    return torch.addmm(x.sum(1, keepdim=True).expand(6, 6).T, x, torch.ones(3, 6, dtype=torch.float64))


def bias_of_a_convolution(x: Tensor) -> Tensor:
    return F.conv1d(x.unsqueeze(1), torch.ones(6, 1, 3, dtype=torch.float64), x.sum(1)).flatten(1)


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
@pytest.mark.parametrize("program", [transposed_bias, bias_of_a_convolution])
def test_a_bias_with_the_samples_along_another_axis(program: Any, space: Any) -> None:
    """Where its own sample was left alone, a row still has what other samples did to the bias."""
    x = torch.zeros(6, 3, dtype=torch.float64)
    lifted = BUDGET.lift(space(), x, torch.zeros(6, dtype=torch.long), torch.arange(6)).inputs
    total = program(lifted).sum(0)
    for poisoned in moved(x):
        assert bool(total.contains(program(poisoned).sum(0)).all())


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
@pytest.mark.parametrize("fill", [False, True], ids=["where", "masked_fill"])
def test_one_sample_that_a_condition_repeats(fill: bool, space: Any) -> None:
    """The one sample of a batch in several rows: a budget of one is spent on all of them."""
    mask, x = torch.arange(15).view(5, 3) % 4 != 3, torch.zeros(1, 3, dtype=torch.float64)
    lifted = BUDGET.lift(space(), x, torch.zeros(1, dtype=torch.long), torch.arange(1)).inputs

    def masked(x: Tensor) -> Tensor:
        return x.masked_fill(~mask, 0.5) if fill else torch.where(mask, x, torch.full((3,), 0.5, dtype=x.dtype))

    for program in (lambda z: z.sum(0), lambda z: z.T @ torch.ones(5, 2, dtype=z.dtype), torch.mean):
        found = program(masked(lifted))
        assert bool(found.contains(program(masked(x + 0.1))).all()) and bool(found.contains(program(masked(x))).all())


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_bias_that_is_a_plain_number(domain: str) -> None:
    class Offset(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([[0.1], [-0.2], [0.3]], dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(torch.tensor(0.3, dtype=torch.float64), x, self.weight)

    x, y = data()
    certificate = bf.certify(Offset(), (x, y), **RECIPE, domain=domain, threat=Linf(0.01))
    trained = trained_plainly(Offset(), x + 0.009, y, Recipe(**RECIPE, domain=domain))
    assert certificate.model is not None
    assert bool(certificate.model.weight.contains(trained.weight.detach()).all())  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("domain", DOMAINS)
def test_budgets_with_roundings_switched_off(domain: str) -> None:
    """Ends that differ in their last digits are no empty set."""
    x, y = data(6)
    with bf.rounding.nearest():
        certificate = bf.certify(
            nn.Linear(3, 2).double(),
            (x, y),
            loss="ce",
            epochs=2,
            domain=domain,
            threat=bf.threats.AtMost(1, Linf(0.02)),
        )
    assert certificate.void_at_step is None


def test_a_plain_gradient_that_is_not_finite() -> None:
    x = bf.ball(torch.ones(2), 0.1).requires_grad_()
    with pytest.raises(bf.VoidBounds):
        torch.relu(x).backward(torch.tensor([1.0, float("inf")]))


# --- ordinary PyTorch that was refused without a name, or lost something ----------------------------------------------


@pytest.mark.parametrize("shape", [(4,), ()], ids=["tensor", "number"])
def test_the_gradient_of_a_plain_tensor_that_is_assigned(shape: tuple[int, ...]) -> None:
    """As of one that is added: it stays in the graph of autograd."""
    x, _ = data(4)

    def gradient(x: Tensor) -> Tensor:
        written = torch.full(shape, 0.2, dtype=torch.float64, requires_grad=True)
        z = x * 1.0
        z[:, 0] = written
        found, *_ = torch.autograd.grad((z * z[:, :1]).sum() + written.pow(2).sum(), written)
        return found

    lifted = BUDGET.lift(None, x, torch.zeros(4, dtype=torch.long), torch.arange(4)).inputs
    found = gradient(lifted)
    assert isinstance(found, bf.Bounded)
    for poisoned in (x, *moved(x)):
        assert bool(found.contains(gradient(poisoned)).all())


ODD_TENSORS = {
    "a row with a leading axis of one": lambda h: overwritten(h, 0, h[:1] * 0.5),
    "a column that is a row": lambda h: overwritten(h, (slice(None), 0), h[:, 1:2].T),
    "no features, centered": lambda h: h + torch.cat((h, h[:, 3:] - h[:, 3:].mean(0)), 1),
    "no features, side by side": lambda h: h + torch.cat((h[:, 3:], h[:, 3:]), 0).sum(),
    "cumulative sum of a number": lambda h: h * h.sum().cumsum(0),
}


def overwritten(x: Tensor, index: Any, value: Tensor) -> Tensor:
    x = x * 1.0
    x[index] = value
    return x


@pytest.mark.parametrize("program", ODD_TENSORS.values(), ids=list(ODD_TENSORS))
@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_tensors_of_odd_shape(program: Any, space: Any) -> None:
    x, _ = data(4)
    lifted = BUDGET.lift(space(), x, torch.zeros(4, dtype=torch.long), torch.arange(4)).inputs
    found = program(lifted)
    for poisoned in moved(x):
        assert bool(found.contains(program(poisoned)).all())


def test_what_predictions_withstand_beside_frozen_parameters() -> None:
    """Sets without rows are asked in the space of the others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[0].weight.requires_grad_(False)
    x, y = data(16)
    certificate = bf.certify(
        model,
        (x, y),
        loss="ce",
        optimizer_options={"lr": 0.5},
        epochs=3,
        threat=bf.threats.AtMost(6, bf.threats.Labels()),
    )
    some = certificate.predict(x)
    assert not bool(some.certified.all())
    stands = certificate.withstands(x).value
    assert bool((stands[some.certified] == 6).all()) and bool((stands[~some.certified] < 6).all())


def test_a_weight_of_positive_samples_that_is_a_set() -> None:
    z, y = torch.tensor([0.3, -1.2]), torch.tensor([1.0, 0.0])
    found = F.binary_cross_entropy_with_logits(bf.ball(z, 0.1), y, pos_weight=bf.ball(torch.tensor([2.0, 2.0]), 0.2))
    for weight in (1.8, 2.0, 2.2):
        for shift in (-0.1, 0.1):
            plain = F.binary_cross_entropy_with_logits(z + shift, y, pos_weight=torch.full((2,), weight))
            assert bool(found.contains(plain).all())
