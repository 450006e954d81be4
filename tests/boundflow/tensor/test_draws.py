"""Random numbers: both runs and a plain training draw the same, whatever the size of a batch, or the run is refused.

What draws only in some steps is seen by no trial on a few samples: for a short last batch, for unusual data, for a
piece of a batch. Every step is watched (`one_program.py`), so there is no size that would have to be tried.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import Linf

X = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (X[:, 0] > 0).long()
RECIPE = bf.Recipe(loss="ce", epochs=2, batch_size=8, seed=3, optimizer_options={"lr": 0.3}, domain="interval")
SHORT = 4  # samples that are left of 20 for the last batch
GLOBAL = torch.Generator().manual_seed(1)
CALLED: list[Callable[[Tensor], bool]] = []

Draw = Callable[[Tensor], Any]


class Noisy(nn.Module):
    """Adds noise to the logits of some batches, in training or in answers."""

    def __init__(self, draw: Draw, when: Callable[[Tensor], bool], answers: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
        self.draw, self.when, self.answers = draw, when, answers

    def forward(self, x: Tensor) -> Tensor:
        z = self.layers(x)
        return z + self.draw(z) if self.training != self.answers and self.when(x) else z


def normal(z: Tensor) -> Tensor:
    return 0.5 * torch.randn(z.shape, dtype=z.dtype)


def dropped(z: Tensor) -> Tensor:
    return F.dropout(z, 0.5)


DRAWS: dict[str, Draw] = {
    "torch": normal,
    "numpy": lambda z: 0.5 * np.random.rand(),
    "Python's random": lambda z: 0.5 * random.random(),
}


def short(x: Tensor) -> bool:
    return len(x) == SHORT


def rare(x: Tensor) -> bool:
    """Whether the last of the samples is there."""
    seen = x.center if isinstance(x, bf.Bounded) else x
    return bool((seen == X[-1]).all(1).any())


def plainly(model: nn.Module, recipe: bf.Recipe, x: Tensor) -> nn.Module:
    """A training as docs/guarantees.md says how to write it."""
    plain = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
    for step, index in enumerate(recipe.batches(len(x), x.device)):
        torch.manual_seed(recipe.seed_of_step(step))
        loss = F.cross_entropy(plain(x[index]), Y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return plain.eval()


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@pytest.mark.parametrize("draw", [normal, dropped])
def test_poisoned_plain_trainings_draw_what_the_run_draws(draw: Draw, domain: str) -> None:
    model, recipe, radius = Noisy(draw, lambda x: True), RECIPE.but(domain=domain), 0.02
    certificate = bf.certify(model, (X, Y), recipe, threat=Linf(radius), progress=False)
    generator, asked = torch.Generator().manual_seed(5), certificate.predict(X)
    assert certificate.model is not None
    for number in range(6):
        moves = torch.randint(-1, 2, X.shape, generator=generator) * (number > 0)
        plain = plainly(model, recipe, X + radius * moves)
        bf.check(plain, certificate.model)
        answers = plain(X)
        assert bool(((asked.lower <= answers) & (answers <= asked.upper)).all())
        if number == 0:  # nothing is poisoned: the plain model of the certificate, to rounding
            for name, value in certificate.nominal.named_parameters():
                assert torch.allclose(value, plain.get_parameter(name), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("callbacks", [[], [lambda step: None]], ids=["", "callbacks"])
@pytest.mark.parametrize("when", [short, rare], ids=["a short last batch", "the last sample"])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_that_no_trial_has_shown_are_refused(
    name: str, when: Callable[[Tensor], bool], callbacks: list[Callable[[bf.Step], None]]
) -> None:
    """The trial is made on the first samples: this is a step on fewer of them, or with the last one."""
    with pytest.raises(bf.UnsupportedProgram, match="the forward pass draws random numbers"):
        bf.certify(Noisy(DRAWS[name], when), (X, Y), RECIPE, threat=Linf(0.5), callbacks=callbacks, progress=False)


def test_a_generator_of_nobody_is_noticed_at_every_size() -> None:
    """One that is neither of the process nor of the model goes on from run to run: a rehearsal of that size differs."""
    model = Noisy(lambda z: torch.randn(z.shape, generator=GLOBAL, dtype=z.dtype), short)
    with pytest.raises(bf.OutsideBounds, match="on the data as observed"):
        bf.certify(model, (X, Y), RECIPE, threat=Linf(0.5), progress=False)


@pytest.mark.parametrize("name", DRAWS)
def test_draws_for_pieces_of_a_batch_are_refused(name: str) -> None:
    """A batch that is taken in pieces, here of two samples, comes in sizes that plain training never has."""
    recipe = RECIPE.but(batch_size=None, domain="zonotope", memory=1.0)
    with pytest.raises((bf.UnsupportedProgram, bf.OutsideBounds)):
        bf.certify(Noisy(DRAWS[name], lambda x: len(x) == 2), (X, Y), recipe, threat=Linf(0.5), progress=False)


class Restless(torch.optim.SGD):
    """Draws, whatever the forward pass does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            group["lr"] = 0.1 + 0.01 * random.random()


def test_an_optimizer_that_draws_is_refused() -> None:
    recipe = RECIPE.but(optimizer=Restless)
    with pytest.raises(bf.UnsupportedProgram, match="optimizer changes something outside of the model"):
        bf.certify(Noisy(normal, lambda x: False), (X, Y), recipe, threat=Linf(0.5), progress=False)


@pytest.mark.parametrize("name", DRAWS)
def test_answers_that_draw_for_some_sizes_are_refused(name: str) -> None:
    model = Noisy(DRAWS[name], short, answers=True)
    certificate = bf.certify(model, (X, Y), RECIPE, threat=Linf(0.01), progress=False)
    certificate.predict(X)
    with pytest.raises(bf.UnsupportedProgram, match="draws random numbers.*in evaluation mode|draws random numbers of"):
        certificate.predict(X[:SHORT])


def test_callbacks_may_draw() -> None:
    def look(step: bf.Step) -> None:
        np.random.rand(), random.random(), torch.rand(1)

    model = Noisy(normal, lambda x: False)
    one, other = (
        bf.certify(model, (X, Y), RECIPE, threat=Linf(0.01), callbacks=looks, progress=False) for looks in ([look], [])
    )
    assert torch.equal(one.predict(X).lower, other.predict(X).lower)


class Signal:
    """Another thread, which draws at the tenth call, and before that call goes on."""

    def __init__(self) -> None:
        self.calls, self.ended, self.wanted, self.done = 0, False, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.drawing)

    def drawing(self) -> None:
        while self.wanted.wait() and not self.ended:
            np.random.rand(), random.random(), torch.rand(1)
            self.wanted.clear()
            self.done.set()

    def __call__(self, x: Tensor) -> bool:
        self.calls += 1
        if self.calls == 10:
            self.wanted.set()
            self.done.wait()
        return False

    def __enter__(self) -> Signal:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self.wanted.set()
        self.thread.join()


def test_what_other_threads_draw_is_not_taken_for_what_the_program_draws() -> None:
    with Signal() as signal:
        CALLED.append(signal)
        model = Noisy(normal, lambda x: CALLED[-1](x))
        bf.certify(model, (X, Y), RECIPE, threat=Linf(0.01), progress=False)
    assert signal.calls > 10


@pytest.mark.parametrize("name", DRAWS)
def test_a_program_that_draws_is_refused_beside_other_threads(name: str) -> None:
    with Signal(), pytest.raises(bf.UnsupportedProgram, match="draws random numbers"):
        bf.certify(Noisy(DRAWS[name], rare), (X, Y), RECIPE, threat=Linf(0.5), progress=False)
