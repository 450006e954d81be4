"""The published recipe: the order of its draws, its quirks, and the numbers it gives."""

import copy
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fullcert.data.datasets import Dataset, Split, load
from fullcert.reproduce import pretraining, published
from fullcert.reproduce.paper_tables import SEEDS, as_published
from fullcert.reproduce.published import Published, Sets, Source
from fullcert.system.mistakes import Mistake

CPU = torch.device("cpu")


def test_the_order_is_that_of_a_shuffled_loader() -> None:
    loader = DataLoader(TensorDataset(torch.arange(50)), batch_size=20, shuffle=True)
    source = Source(7)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        for _ in range(3):
            expected = torch.cat([batch for (batch,) in loader])
            assert torch.equal(source.order(50), expected)
        assert torch.rand(()) == torch.rand((), generator=source.generator)


def test_weights_are_drawn_inward_first_and_with_the_outward_width() -> None:
    model = Source(3).network(2, (20,))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for layer, (inward, outward) in zip((model[0], model[2]), ((2, 20), (20, 1)), strict=True):
            weights, bias = torch.empty(inward, outward), torch.empty(1, outward)
            nn.init.kaiming_uniform_(weights, a=math.sqrt(5))
            nn.init.uniform_(bias, -1 / math.sqrt(outward), 1 / math.sqrt(outward))
            torch.testing.assert_close(layer.weight, weights.T, rtol=1e-6, atol=0)
            torch.testing.assert_close(layer.bias, bias[0], rtol=1e-6, atol=0)


def test_copies_draw_as_many_numbers_as_networks() -> None:
    one, other = Source(3), Source(3)
    one.copied(one.network(4, (3, 2)))
    other.network(4, (3, 2))
    other.network(4, (3, 2))
    assert torch.rand((), generator=one.generator) == torch.rand((), generator=other.generator)


def test_samples_are_those_of_scikit_learn_and_its_global_generator() -> None:
    data, clean = pretraining.moons()
    before = np.random.get_state()
    try:
        np.random.seed(pretraining.DATA_SEED)
        for part, samples in ((data.train, 1000), (data.validation, 200), (data.test, 200), (clean, 100)):
            inputs, labels = make_moons(n_samples=samples, shuffle=True, noise=0.1)
            assert np.array_equal(part.inputs, inputs) and np.array_equal(part.labels, labels)
        assert pretraining.run_seeds(draws=True) == tuple(np.random.randint(low=0, high=1_000_000, size=10))
    finally:
        np.random.set_state(before)


def test_gradients_are_divided_by_the_batch_twice() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(10, 2), torch.randint(0, 2, (10, 1)).float()
    model = Source(1).network(2, (4,))
    expected = copy.deepcopy(model)
    Sets(model, Published(0.1, lr=0.5)).step(x, y, torch.arange(10))
    F.binary_cross_entropy_with_logits(expected(x), y).backward()
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter -= 0.5 / 10 * parameter.grad
    for found, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("clip", [None, (0.0, 1.0)])
def test_inputs_stay_in_the_range_of_images(clip: tuple[float, float] | None) -> None:
    x = torch.tensor([[0.0, 0.5, 1.0]])
    box = published.boxes(x, Published(0.1, clip=clip))
    assert (box.lower.min() < 0) == (box.upper.max() > 1) == (clip is None)
    assert box.lower[0, 1] <= 0.4 and box.upper[0, 1] >= 0.6


@pytest.mark.parametrize(("lr", "printed"), [(5.0, 74.0), (10.0, 72.0)])
def test_printed_numbers_come_out(lr: float, printed: float) -> None:
    outcome = as_published(Published(1e-2, lr=lr, epochs=500), 10123310, CPU)
    assert abs(outcome.value - printed) <= 1 and outcome.nominal is not None and outcome.value <= outcome.nominal


def test_training_stops_when_validation_falls() -> None:
    seed = SEEDS[-1]
    reached = published.train(load("two-moons", None, seed), Published(0.1), Source(seed), CPU)  # type: ignore[arg-type]
    assert len(reached.curve) < 200 and reached.curve[-1] < max(reached.curve) - published.DROP
    assert (
        reached.curve[reached.epoch - 1] == max(reached.curve)
        and max(reached.curve) not in reached.curve[: reached.epoch - 1]
    )


def small(samples: int = 60) -> Dataset:
    data = pretraining.moons()[0]
    cut = (Split(part.inputs[:samples], part.labels[:samples]) for part in (data.train, data.validation, data.test))
    return Dataset(*cut, classes=2)  # type: ignore[arg-type, misc]


def test_zonotopes_certify_at_least_as_much() -> None:
    runs = {
        domain: Published(0.05, hidden=(4,), lr=5.0, epochs=4, batch_size=30, domain=domain)
        for domain in ("interval", "zonotope")
    }
    reached = {domain: published.train(small(), run, Source(1), CPU) for domain, run in runs.items()}
    assert all(after >= before for before, after in zip(*(one.curve for one in reached.values()), strict=False))
    assert reached["zonotope"].validation >= reached["interval"].validation


def test_pretrained_networks_are_set_aside_on_the_way() -> None:
    task = pretraining.Task(lambda: (small(), pretraining.moons()[1]), Published(1e-3, (4,), 0.05, 2), 20.0, 60)
    found = pretraining.starts(task, Source(5), CPU, only_first=False)
    (first,) = pretraining.starts(task, Source(5), CPU, only_first=True)
    assert first[1] == found[0][1] and len(found) > 3
    outcome = pretraining.pretrained(task, 5, CPU)
    points = outcome.details["points"]
    assert [start for start, _ in points] == [round(100 * start, 2) for _, start in found]
    assert outcome.value == max(after for _, after in points)
    scratch = pretraining.from_scratch(task, 5, CPU)
    assert round(scratch.value, 2) == points[0][1]


@pytest.mark.skipif("BOUNDFLOW_DATA" not in os.environ, reason="set BOUNDFLOW_DATA to a folder with MNIST")
def test_digits_are_divided_as_published() -> None:
    data, clean = pretraining.digits((0, 6))
    assert [len(part.labels) for part in (data.train, data.validation, data.test, clean)] == [9741, 2000, 1938, 100]
    assert data.train.inputs.min() == 0 and data.train.inputs.max() == 1 and set(clean.labels) == {0, 1}
    task = replace(pretraining.MNIST, pretrain_epochs=2, run=replace(pretraining.MNIST.run, epochs=1, batch_size=5000))
    outcome = pretraining.from_scratch(task, 1, CPU)
    assert 0 < outcome.value <= outcome.nominal  # type: ignore[operator]


def test_missing_digits_are_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUNDFLOW_DATA", str(tmp_path))
    with pytest.raises(Mistake, match="mnist"):
        pretraining.digits((0, 6))


def test_dots_come_from_both_kinds_of_rows() -> None:
    scratch = {"setting": {"start": "scratch"}, "domain": "interval", "recipe": "paper", "values": [60.0]}
    scratch["details"] = [{"start": 50.0}]
    aside = {**scratch, "values": [80.0], "details": [{"points": [[50.0, 60.0], [70.0, 80.0]]}]}
    best = {**scratch, "domain": "zonotope", "recipe": "best", "details": [{}]}
    found = pretraining.dots([scratch, aside, best])
    assert found == {("interval", ""): [[50.0, 60.0], [50.0, 60.0], [70.0, 80.0]]}


def test_the_hull() -> None:
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0], [2, 2]], dtype=float)
    assert {tuple(corner) for corner in pretraining.hull(square)} == {(0, 0), (2, 0), (2, 2), (0, 2)}


def test_from_scratch_is_the_upper_edge_of_the_figure_where_its_axis_begins() -> None:
    row = {"id": "figure", "domain": "interval", "recipe": "paper", "setting": {"start": "scratch"}, "seeds": 2}
    row |= {"values": [44.0, 60.0], "details": [{"start": 40.0}, {"start": 50.0}]}
    dots = {"points": [[60.0, 70.0], [90.0, 92.0]]}
    pretrained = {**row, "setting": {"start": "pretrained"}, "values": [92.0], "details": [dots]}
    (found,) = pretraining.edge(75.0, [row, pretrained, {**row, "recipe": "best"}])
    assert found["paper"] == 75.0
    assert found["mean"] == 60.0  # a corner of the hull, above the line from (40, 44) to (60, 70)
    assert pretraining.edge(75.0, [row]) == []  # without the networks between there is no figure


def test_the_upper_edge_of_a_hull_between_its_corners() -> None:
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 4.0], [0.0, 2.0]])
    assert pretraining.upper_edge(corners, 5.0) == 3.0
    assert pretraining.upper_edge(corners, 10.0) == 4.0
    assert pretraining.upper_edge(corners, 11.0) is None
