"""Training loops of the user's own that copy, load, freeze, evaluate and prune in the middle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.optim import SGD, Adam

from .loops_with_odd_gradients import started
from .loops_with_odd_steps import one_pass, ordinary, small
from .networks_with_noise import Between
from .oracle import seeded
from .table import loop


@loop(small)
def goes_on_with_a_copy(side: Any, model: nn.Module) -> nn.Module:
    """After two steps a deep copy of the lifted model goes on, and the original stays behind."""
    optimizer = started(side, model, momentum=0.5)
    for index in side.batches[:2]:
        ordinary(side, model, index, optimizer)
    copied = copy.deepcopy(model)
    second = SGD(copied.parameters(), 0.3, momentum=0.5)
    side.attach(second)
    for index in side.batches[2:]:
        ordinary(side, copied, index, second)
    return copied, {f"left {name}": value for name, value in model.named_parameters()}


@loop(small, "either")
def goes_on_from_a_pickle(side: Any, model: nn.Module) -> nn.Module:
    """After two steps the lifted model goes through pickle."""
    optimizer = started(side, model)
    for index in side.batches[:2]:
        ordinary(side, model, index, optimizer)
    unpickled = pickle.loads(pickle.dumps(model))
    second = SGD(unpickled.parameters(), 0.3)
    side.attach(second)
    for index in side.batches[2:]:
        ordinary(side, unpickled, index, second)
    return unpickled


@loop(small, "either")
def goes_on_from_a_state(side: Any, model: nn.Module) -> nn.Module:
    """States of model and optimizer are loaded into others, which go on."""
    other = copy.deepcopy(model)
    optimizer = started(side, model, momentum=0.9)
    second = SGD(other.parameters(), 0.3, momentum=0.9)
    side.lift(other)
    side.attach(second)
    for index in side.batches[:2]:
        ordinary(side, model, index, optimizer)
    other.load_state_dict(model.state_dict())
    second.load_state_dict(optimizer.state_dict())
    for index in side.batches[2:]:
        ordinary(side, other, index, second)
    return other


@loop(small)
def steps_before_lifting(side: Any, model: nn.Module) -> nn.Module:
    """The first steps are made on trusted data, with plain tensors."""
    optimizer = SGD(model.parameters(), 0.3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()
    side.lift(model)
    side.attach(optimizer)
    one_pass(side, model, optimizer)
    return model


@loop(small, "either")
def moments_before_lifting(side: Any, model: nn.Module) -> nn.Module:
    """Adam has plain moments already when its parameters become sets."""
    optimizer = Adam(model.parameters(), 0.01)
    F.cross_entropy(model(torch.ones(2, 4, dtype=torch.float64)), torch.tensor([0, 1])).backward()
    optimizer.step()
    side.lift(model)
    side.attach(optimizer)
    one_pass(side, model, optimizer)
    return model


@loop(small)
def thawed_in_between(side: Any, model: nn.Module) -> nn.Module:
    """A frozen layer is trained from the third step on."""
    model[0].requires_grad_(False)
    optimizer = started(side, model)
    for step, index in enumerate(side.batches):
        model[0].requires_grad_(step >= 2)
        ordinary(side, model, index, optimizer)
        model.zero_grad()
    return model


@loop(small)
def evaluated_in_between(side: Any, model: nn.Module) -> nn.Module:
    """Between steps the model is evaluated without gradients, on all data."""
    optimizer = started(side, model)
    outputs = None
    for index in side.batches:
        ordinary(side, model, index, optimizer)
        model.eval()
        with torch.no_grad():
            outputs = model(side.batch(torch.arange(12))[0])
        model.train()
    return model, {"outputs": outputs}


@loop(small, "either")
def evaluated_for_inference(side: Any, model: nn.Module) -> nn.Module:
    """Between steps the model is evaluated in inference mode, which counts no versions."""
    optimizer = started(side, model)
    for index in side.batches:
        ordinary(side, model, index, optimizer)
        with torch.inference_mode():
            model(side.batch(index)[0])
    return model


@loop(small, "either")
def pruned_in_between(side: Any, model: nn.Module) -> nn.Module:
    """Half of the weights of a lifted layer are masked by a hook from the third step on."""
    optimizer = started(side, model)
    for step, index in enumerate(side.batches):
        if step == 2:
            prune.random_unstructured(model[2], "weight", amount=0.5)
        ordinary(side, model, index, optimizer)
    return model


@loop(small)
def a_model_and_its_student(side: Any, model: nn.Module) -> nn.Module:
    """Two lifted models learn from each other in one loss, and have one optimizer."""
    student = copy.deepcopy(model)
    optimizer = SGD([*model.parameters(), *student.parameters()], 0.3)
    side.lift(model, student)
    side.attach(optimizer)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        taught = F.mse_loss(student(x), model(x).detach()) + F.mse_loss(model(x), student(x).detach())
        (F.cross_entropy(model(x), y) + taught).backward()
        optimizer.step()
    return student, {f"teacher {name}": value for name, value in model.named_parameters()}


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.inner(x))
        return {"logits": self.head(hidden), "hidden": hidden}


@loop(Several)
def a_dictionary_of_outputs(side: Any, model: nn.Module) -> nn.Module:
    """The network returns a dictionary, and the loss uses two of its entries."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        outputs = model(x)
        (F.cross_entropy(outputs["logits"], y) + outputs["hidden"].square().mean()).backward()
        optimizer.step()
    return model


def noisy() -> nn.Module:
    return Between(lambda h, net: h + torch.from_numpy(np.random.normal(size=tuple(h.shape))) if net.training else h)


@loop(noisy)
def numpy_seeded_by_the_loop(side: Any, model: nn.Module) -> nn.Module:
    """The network draws from numpy, and the loop seeds it before each step."""
    optimizer = started(side, model)
    for step, index in enumerate(side.batches):
        seeded(step)
        ordinary(side, model, index, optimizer)
    return model


@loop(small, "either", dtype=torch.float32)
def less_precise_products(side: Any, model: nn.Module) -> nn.Module:
    """A global flag allows products of float32 matrices to be less precise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        one_pass(side, model, started(side, model))
    finally:
        torch.set_float32_matmul_precision(before)
    return model
