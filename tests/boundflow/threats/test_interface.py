"""Every change defines what a threat must define, is documented, and holds what an attacker under it could do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import poisons
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from membership import left_alone, outside
from poisons import Data, Poison

import boundflow as bf
from boundflow.symbols.support import Kind
from boundflow.tensor.bounded import Bounded

T = bf.threats
SAMPLES, DRAWS = 8, 12
DTYPES = {"float64": torch.float64, "float32": torch.float32}
PAGE = (Path(__file__).parents[3] / "docs" / "threats.md").read_text()


def changes(base: type = T.Change) -> Iterator[type[T.Change]]:
    """Every change of the package that is not abstract."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith(T.__name__) and not inspect.isabstract(kind):
            yield kind
        yield from changes(kind)


def table(dtype: torch.dtype) -> Data:
    """Two numbers and three one-hot columns; labels 0 and 1."""
    random = np.random.default_rng(3)
    numbers = torch.from_numpy(random.normal(size=(SAMPLES, 2)) * 2)
    hot = F.one_hot(torch.from_numpy(random.integers(0, 3, SAMPLES)), 3)
    x = torch.cat((numbers, hot), 1).to(dtype)
    return Data(x, (torch.arange(SAMPLES) % 2).to(dtype), torch.ones(SAMPLES, dtype=dtype))


def in_range(data: Data) -> Data:
    return data._replace(x=data.x.clamp(0.0, 1.0))  # many values on the edge of the range


def in_the_middle(data: Data) -> Data:
    return data._replace(x=torch.where(data.x.abs() < 9, 0.25 + (data.x % 0.5), data.x))


def without_category(data: Data) -> Data:
    x = data.x.clone()
    x[1::2, 2:5] = float("nan")
    return data._replace(x=x)


def some_without_category(data: Data) -> Data:
    """Rows of zeros, as a category without a column leaves them."""
    x = data.x.clone()
    x[::3, 2:5] = 0.0
    return data._replace(x=x)


def half_a_category(data: Data) -> Data:
    x = data.x.clone()
    x[-1, 3] = float("nan")
    return data._replace(x=x)


def holes_in_numbers(data: Data) -> Data:
    x = data.x.clone()
    x[::2, 0] = x[1, 1] = float("nan")
    return data._replace(x=x)


def with_holes(data: Data) -> Data:
    return data._replace(x=torch.where(torch.arange(SAMPLES)[:, None] % 3 == torch.arange(5), torch.nan, data.x))


def on_grid(data: Data) -> Data:
    """Multiples of a tenth, as float32 holds them."""
    return data._replace(x=(torch.round(data.x.double() * 10) / 10).float().to(data.x.dtype))


def regression(data: Data) -> Data:
    return data._replace(y=data.x[:, 0] * 3)


def three_classes(data: Data) -> Data:
    return data._replace(y=F.one_hot(torch.arange(SAMPLES) % 3, 3).to(data.x.dtype))


def other_classes(data: Data, random: poisons.Random) -> Data:
    return data._replace(y=F.one_hot(torch.from_numpy(random.integers(0, 3, SAMPLES)), 3).to(data.x.dtype))


def written_again(data: Data, random: poisons.Random) -> Data:
    """Moved by three and a half steps after having been anywhere in its bin, and written as float32: at most four."""
    raw = data.x.double() + 0.1 * torch.from_numpy(random.uniform(-0.5, 0.5, size=data.x.shape))
    moved = raw + 0.35 * poisons.moves(data.x.shape, random)
    return data._replace(x=(torch.round(moved * 10) / 10).float().to(data.x.dtype))


def by_column(data: Data, random: poisons.Random) -> Data:
    amounts = torch.zeros(data.x.shape, dtype=torch.float64)
    amounts[:, 0], amounts[:, 1] = 0.1, 0.07 * data.x[:, 1].double().abs()
    return poisons.linf(amounts)(data, random)


def filled_in(data: Data, random: poisons.Random) -> Data:
    """The first column by the one number that it can be, the others by anything in their range."""
    known = torch.where(torch.isnan(data.x[:, 0]), 0.1, data.x[:, 0].double()).to(data.x.dtype)
    others = poisons.missing(-0.3, 0.7)(data, random).x[:, 1:]
    return data._replace(x=torch.cat((known[:, None], others), 1))


class Example(NamedTuple):
    """A threat, what an attacker under it can do, and what is done to the observed table before."""

    threat: T.Change
    poison: Poison
    prepare: Callable[[Data], Data] = lambda data: data


# at least one of each: a new change stands here, or the test below fails
EXAMPLES: dict[str, Example] = {
    "linf": Example(T.Linf(0.3), poisons.linf(0.3)),
    "linf in a range": Example(T.Linf(0.3, clip=(0, 1)), poisons.linf(0.3, (0, 1)), in_range),
    "trigger": Example(T.Trigger([0, 1], -1.0, 1.5), poisons.linf(9.0, (-1.0, 1.5), [0, 1]), in_range),
    "l2": Example(T.L2(0.3), poisons.ball(0.3, 2)),
    "l2 in a range": Example(
        T.L2(0.9, clip=(0, 1)).on(features=[0, 1]), poisons.to_the_corner(0.9, [0, 1]), in_the_middle
    ),
    "l1": Example(T.L1(0.3), poisons.ball(0.3, 1)),
    "tolerance": Example(T.Tolerance({0: 0.1, 1: "7%"}), by_column),
    "quantised": Example(T.Quantised(0.35, 0.1), written_again, on_grid),
    "missing": Example(T.Missing([[-0.3, 0.7]] * 5), poisons.missing(-0.3, 0.7), with_holes),
    "missing, one known": Example(T.Missing([[0.1, 0.1]] + [[-0.3, 0.7]] * 4), filled_in, with_holes),
    "missing, some columns": Example(
        T.Missing([[-0.3, 0.7]] * 5).on(features=[0, 1]), poisons.missing(-0.3, 0.7), holes_in_numbers
    ),
    "missing category": Example(T.MissingCategory([2, 3, 4]), poisons.missing_category([2, 3, 4]), without_category),
    "category": Example(T.Category([2, 3, 4]), poisons.category([2, 3, 4])),
    "category, or none": Example(T.Category([2, 3, 4], unknown=True), poisons.any_category([2, 3, 4])),
    "category of some, or none": Example(
        T.Category([2, 3, 4], unknown=True), poisons.any_category([2, 3, 4]), some_without_category
    ),
    "one category, or none": Example(T.Category([3], unknown=True), poisons.any_category([3])),
    "labels": Example(T.Labels(), poisons.labels(2)),
    "labels of three classes": Example(T.Labels(), other_classes, three_classes),
    "targets": Example(T.Labels(0.3), poisons.targets(0.3), regression),
    "removal": Example(T.Removal(), poisons.removal),
}
REPLACED = T.Replacement()  # nothing of a batch is lifted: see its own test


def lifted(threat: T.Threat, data: Data, symbols: bf.Symbols | None) -> dict[str, Bounded]:
    found = threat.lift(symbols, data.x, data.y, torch.arange(SAMPLES))
    return {name: value for name, value in found._asdict().items() if isinstance(value, Bounded)}


def test_there_is_an_example_of_every_change() -> None:
    assert {type(example.threat) for example in EXAMPLES.values()} | {type(REPLACED)} == set(changes())


@pytest.mark.parametrize("kind", sorted(changes(), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_every_change_defines_what_a_threat_must_define(kind: type[T.Change]) -> None:
    assert kind.about in ("inputs", "targets", "weights", "gradients") and isinstance(kind.kind, Kind)
    assert kind.__doc__ and kind.__name__ in T.__all__
    assert kind.deviation is not T.Change.deviation and kind.__repr__ is not T.Change.__repr__
    for name in ("deviation", "fits", "stand_in", "encoded"):  # called with the same arguments, whatever it is
        expected = [*inspect.signature(getattr(T.Change, name)).parameters]
        assert [*inspect.signature(getattr(kind, name)).parameters] == expected
    assert f"`{kind.__name__}(" in PAGE, "not in docs/threats.md"


@pytest.mark.parametrize("name", ["AtMost", "Categories", "Trigger"])
def test_what_is_made_of_changes_is_documented(name: str) -> None:
    assert f"`{name}(" in PAGE and name in T.__all__


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_attacker_can_do_is_in_the_set(name: str, dtype: str) -> None:
    """In the interval, and in the affine form for symbols that the threat allows, with exact fractions."""
    threat, poison, prepare = EXAMPLES[name]
    data = prepare(table(DTYPES[dtype]))
    field = {"inputs": "x", "targets": "y", "weights": "weights"}[threat.about]
    sets = [lifted(threat, data, None), lifted(threat, data, bf.Symbols(threat))]
    if threat.has_clean_state:
        few = T.AtMost(2, threat)
        sets += [lifted(few, data, None), lifted(few, data, bf.Symbols(few))]
        assert all(left_alone(found[threat.about], getattr(data, field)) for found in sets[2:])
    assert [found[threat.about].affine for found in sets] == [False, True] * (len(sets) // 2)
    random = np.random.default_rng(1)
    for _ in range(DRAWS):
        moved = getattr(poison(data, random), field)
        for found in sets:
            assert set(found) == {threat.about}
            assert not outside(found[threat.about], moved, threat.kind)


@pytest.mark.parametrize("name", EXAMPLES)
def test_only_some_samples(name: str) -> None:
    """All others are as they were observed, without a budget too."""
    threat, poison, prepare = EXAMPLES[name]
    data = prepare(table(torch.float64))
    if name.startswith("missing"):  # a hole of which nothing is known is refused
        data = data._replace(x=torch.where(torch.arange(SAMPLES)[:, None] == 3, data.x, 0.25))
    restricted = threat.on(samples=[3])
    found = lifted(restricted, data, bf.Symbols(restricted))[threat.about]
    field = {"inputs": "x", "targets": "y", "weights": "weights"}[threat.about]
    moved, observed = getattr(poison(data, np.random.default_rng(1)), field), getattr(data, field)
    mask = (torch.arange(SAMPLES) == 3).view(-1, *(1,) * (observed.dim() - 1))
    assert not outside(found, torch.where(mask, moved, observed), threat.kind)
    others = ~mask.expand(observed.shape)
    assert torch.equal(found.lower[others], observed[others]) and torch.equal(found.upper[others], observed[others])
    assert not bool(found.form.radius[others].any())


def test_a_replaced_sample_is_bounded_by_its_clipped_gradient() -> None:
    """One step with clipped gradients: whatever stands in a replaced sample's place, the weights are in the set."""
    x, y = torch.linspace(-1, 1, SAMPLES, dtype=torch.float64)[:, None], torch.zeros(SAMPLES, dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    options = {"loss": "mse", "epochs": 1, "optimizer_options": {"lr": 0.5}, "clip_gradients": 0.25}
    found = bf.certify(model, (x, y), threat=T.AtMost(1, REPLACED), **options).model
    assert found is not None
    for sample in range(SAMPLES):
        for value, target in ((1e6, 0.0), (-1e6, 1e3), (0.0, 5.0), (1.0, -1e6)):
            inputs, targets = x[:, 0].clone(), y.clone()
            inputs[sample], targets[sample] = value, target
            gradients = 2 * (inputs - targets) * inputs
            clipped = gradients * (0.25 / (gradients.abs() + 1e-6)).clamp_max(1.0)  # as clip_grad_norm_ does it
            assert bool(found.weight.contains(1 - 0.5 * clipped.mean()).all())


# --- what a certificate records ---------------------------------------------------------------------------------------

RECORDED = {
    **{name: example.threat for name, example in EXAMPLES.items()},
    "replacement": REPLACED,
    "numbers of numpy": T.Labels(np.float64(0.1)),
    "classes": T.Labels(classes=np.int64(3)),
    "a radius of each feature": T.L2([0.1, 0.2, 0.0, 0.0, 1 / 3]).on(features=[0, 4]),
    "a tensor": T.Linf(torch.tensor([0.1, 0.2])),
    "shares": T.Tolerance({0: "0.1%", "b": " 33.3 %", 2: 1 / 3}, columns=["a", "b"]),
    "some samples": T.Linf(0.1, clip=(0, 1)).on(samples=[3, 1], features=[0]),
    "a mask": T.Removal().on(samples=np.arange(SAMPLES) < 3),
    "categories": T.Categories([[0, 1], [2, 3, 4]]),
    "categories of some": T.Categories([[0, 1], [2, 3, 4]]).on(samples=[1, 2]),
    "several": T.Missing((0, 1)) & T.AtMost(2, T.Linf(0.1) & T.Labels()) & T.AtMost(1, T.Removal()),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_record_makes_the_same_threat(name: str) -> None:
    threat = RECORDED[name]
    again = eval(repr(threat), {kind: getattr(T, kind) for kind in T.__all__})
    assert repr(again) == repr(threat)
    assert [clause.budget for clause in again.clauses] == [clause.budget for clause in threat.clauses]
    for first, second in zip(again.changes, threat.changes, strict=True):
        assert type(first) is type(second) and first.kind is second.kind
        for value, other in zip(_numbers(first), _numbers(second), strict=True):
            np.testing.assert_array_equal(value, other)


def _numbers(change: T.Change) -> list[object]:
    """All that a change knows, but not how long a mask was that it was restricted by."""
    known = {name: value for name, value in sorted(vars(change).items()) if name not in ("out_of", "columns")}
    return [part for value in known.values() for part in (value if isinstance(value, tuple) else (value,))]


# --- data that a change cannot be about -------------------------------------------------------------------------------

UNFIT: dict[str, tuple[T.Threat, Callable[[Data], Data], str]] = {
    "out of range": (T.Linf(0.1, clip=(0, 1)), lambda data: data, "valid range"),
    "no such column": (T.Tolerance({7: 0.1}), lambda data: data, "column 7"),
    "too many ranges": (T.Missing([[0, 1]] * 9), lambda data: data, "9 ranges"),
    "not one-hot": (T.Category([2, 3, 4]), lambda data: data._replace(x=_last(data.x, 0.5)), "one-hot"),
    "not one-hot, nor none": (
        T.Category([2, 3, 4], unknown=True),
        lambda data: data._replace(x=_last(data.x, 1.0)),
        "one-hot: a single 1 in every row, or none",
    ),
    "a category that is not known": (T.Category([2, 3, 4]), some_without_category, "one-hot"),
    "half a category": (
        T.MissingCategory([2, 3, 4]),
        half_a_category,
        "missing together",
    ),
    "no missing group there": (T.MissingCategory([4, 5]), lambda data: data, "do not fit"),
    "no group there": (T.Category([4, 5]), lambda data: data, "do not fit"),
    "a soft label": (T.Labels(), lambda data: data._replace(y=_last(data.y, 0.5)), "0 and 1"),
    "a mixed label": (T.Labels(), lambda data: data._replace(y=_last(three_classes(data).y, 0.5)), "one-hot"),
    "a budget beyond the data": (T.AtMost(9, T.Removal()), lambda data: data, "exceeds the data"),
    "samples beyond the data": (T.Replacement().on(samples=[8]), lambda data: data, "samples up to 8"),
}


def _last(values: torch.Tensor, number: float) -> torch.Tensor:
    changed = values.clone()
    changed[-1] = number
    return changed


@pytest.mark.parametrize("name", UNFIT)
def test_data_that_do_not_fit_are_refused_before_training(name: str) -> None:
    """In any row, not in the first alone."""
    threat, prepare, reason = UNFIT[name]
    data = prepare(table(torch.float64))
    with pytest.raises(ValueError, match=reason):
        threat.check(data.x, data.y)


@pytest.mark.parametrize("name", EXAMPLES)
def test_data_that_fit_are_not_refused(name: str) -> None:
    threat, _, prepare = EXAMPLES[name]
    data = prepare(table(torch.float64))
    threat.check(data.x, data.y)
