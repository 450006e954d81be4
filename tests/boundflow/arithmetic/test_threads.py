"""Threads: a certificate answers from any number of them with the bits of a serial call, and runs do not meet."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow import rounding
from boundflow.fast.memory.batch_pieces import in_pieces
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Missing

THREADS, RUNS = 8, 4
PREDICTIONS = 500 if os.environ.get("BOUNDFLOW_THOROUGH") else 40


def data(samples: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 3, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + x[:, 1] > 0).double()


def network(seed: int = 0, p: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(p), nn.Linear(6, 1)).double()


def at_once(tasks: list[Callable[[], Any]], threads: int) -> list[Any]:
    """The results of tasks that begin together, in their order."""
    gate = threading.Barrier(threads)

    def begin(task: Callable[[], Any]) -> Any:
        return task()

    with ThreadPoolExecutor(threads, initializer=gate.wait) as pool:
        return list(pool.map(begin, tasks))


def bits(prediction: bf.Prediction) -> bytes:
    parts = (prediction.label, prediction.certified, prediction.lower, prediction.upper, prediction.margin)
    return b"".join(part.contiguous().numpy().tobytes() for part in parts)


@pytest.fixture
def fast_switches() -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_predictions_from_threads_have_the_bits_of_serial_ones(fast_switches: None) -> None:
    x, y = data()
    recipe = {"loss": "bce", "optimizer_options": {"lr": 0.5}, "steps": 3}
    certificate = bf.certify(network(), (x, y), threat=AtMost(3, Linf(0.1) & Labels()), **recipe)
    threats = [Linf(0.05), L2(0.1), L1(0.2), Linf([0.0, 0.1, 0.2]), Linf(0.0), L2(0.05) & Missing((-1.0, 1.0))]
    tasks = []
    for number in range(PREDICTIONS):
        threat, begin, cuts = threats[number % len(threats)], number % 20, int(number % 50 == 0)
        some = x[begin : begin + 1 + number % 4].clone()
        if number % len(threats) == 5:
            some[0, 2] = torch.nan
        tasks.append(
            lambda some=some, threat=threat, cuts=cuts: bits(certificate.predict(some, threat=threat, cuts=cuts))
        )
    serial = [task() for task in tasks]
    assert at_once(tasks * THREADS, THREADS) == serial * THREADS


def test_trainings_at_once_have_the_bits_of_serial_ones(fast_switches: None) -> None:
    x, y = data()

    def train(seed: int) -> bytes:
        options = {"optimizer_options": {"lr": 0.3}, "epochs": 3, "batch_size": 8, "seed": seed}
        options |= {"domain": "interval"} if seed == 3 else {"order": 3, "memory": 1e5 if seed == 2 else 2.0**30}
        certificate = bf.certify(networks[seed], (x, y), threat=Linf(0.01), loss="bce", **options)
        assert certificate.model is not None
        tensors = [t for p in certificate.model.parameters() for t in (p.lower, p.upper)]
        tensors += [parameter.detach() for parameter in certificate.nominal.parameters()]
        return b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)

    networks = [network(seed, 0.0 if seed == 2 else 0.4) for seed in range(RUNS)]
    state = torch.get_rng_state()
    serial = [train(seed) for seed in range(RUNS)]
    assert at_once([lambda seed=seed: train(seed) for seed in range(RUNS)], RUNS) == serial
    assert torch.equal(torch.get_rng_state(), state)  # the generator of the process is nobody's but the user's
    assert rounding.gamma(1, torch.float64) == 10 * 2.0**-53 / (1 - 10 * 2.0**-53)


def test_rounding_is_switched_off_in_one_thread_only() -> None:
    inside, checked = threading.Event(), threading.Event()

    def switch_off() -> None:
        with rounding.nearest():
            inside.set()
            checked.wait(10)

    other = threading.Thread(target=switch_off)
    other.start()
    inside.wait(10)
    try:
        assert rounding.mode() == "outward" and rounding.gamma(1, torch.float64) > 0
    finally:
        checked.set()
        other.join()


def test_a_run_keeps_its_arithmetic_in_threads_of_autograd() -> None:
    """A backward pass in another thread charges as its forward pass did: batches in pieces, and no rounding."""
    x, _ = data(4)
    found = {}
    for mode in ("outward", "nearest"):
        model = network()
        if mode == "nearest":
            with rounding.nearest():
                bf.lift(model)
        else:
            bf.lift(model)
        loss = model(x).sum()
        other = threading.Thread(target=loss.backward)
        other.start()
        other.join()
        found[mode] = max(float((p.grad.upper - p.grad.lower).max()) for p in model.parameters())
    assert found["nearest"] == 0.0 < found["outward"]


def test_the_gradient_of_a_loss_is_charged_as_its_run_is_in_any_thread() -> None:
    """Pieces of a batch pay for its whole length, also where PyTorch differentiates in a thread of its own."""
    widths = []
    for length in (1, 10000):
        space = bf.Symbols()
        held = bf.lift(nn.ParameterList([torch.linspace(-1, 1, 5, dtype=torch.float64)]), space)
        with in_pieces(space, 2, length):
            loss = F.binary_cross_entropy_with_logits(held[0], torch.full((5,), 0.3).double(), reduction="sum")
            other = threading.Thread(target=loss.backward)
            other.start()
            other.join()
        assert space.arithmetic.length == 1
        widths.append(float((held[0].grad.upper - held[0].grad.lower).min()))
    assert 0 < 1000 * widths[0] < widths[1]


def test_importing_changes_nothing_for_plain_training() -> None:
    program = """
import torch
torch.set_flush_denormal(True)
import boundflow
p = torch.nn.Parameter(torch.ones(2))
p.grad = torch.ones(2)
torch.optim.SGD([p], lr=0.1).step()
print(p.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0.89999" in done.stdout, done.stderr
