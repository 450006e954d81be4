"""A set over many rows is asked through derived symbols: the same set, never a narrower one, and no other answers."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import threats as T
from boundflow.answers import derived_sets
from boundflow.answers.derived_sets import asked_through_derived_symbols
from boundflow.sets.forms import Form
from boundflow.sets.set import Set


def data(count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


def trained(threat: T.Threat, hidden: bool = False, dtype: torch.dtype = torch.float64) -> bf.Certificate:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)] if hidden else [nn.Linear(3, 1)]
    x, y = data()
    model = nn.Sequential(*layers).to(dtype)
    options = {"lr": 0.5, "momentum": 0.5}
    given = (x.to(dtype), y)
    return bf.certify(model, given, threat=threat, loss="bce", epochs=4, optimizer_options=options, progress=False)


THREATS = {
    "labels": T.AtMost(3, T.Labels()),
    "box": T.Linf(0.02),
    "ball": T.AtMost(5, T.L2(0.2)),
    "both": T.Linf(0.01) & T.AtMost(2, T.Labels()),
}


@pytest.mark.parametrize("hidden", [False, True], ids=["linear", "hidden"])
@pytest.mark.parametrize("name", THREATS)
def test_a_file_answers_as_the_set_in_memory(
    name: str, hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers through derived symbols are those over all rows, but for roundings."""
    certificate, x = trained(THREATS[name], hidden), data()[0]
    certificate.save(tmp_path / "file.safetensors")
    read, plain = (bf.load(tmp_path / "file.safetensors") for _ in range(2))
    monkeypatch.setattr(derived_sets, "DERIVED_FROM", float("inf"))
    expected = plain.predict(x, epsilon=0.01)
    assert plain._asked is plain.model
    monkeypatch.setattr(derived_sets, "DERIVED_FROM", 0)
    found = read.predict(x, epsilon=0.01)
    assert read._asked is not read.model
    for answers in (found, certificate.predict(x, epsilon=0.01)):
        assert torch.equal(answers.certified, expected.certified) and torch.equal(answers.label, expected.label)
        torch.testing.assert_close(answers.lower, expected.lower, rtol=0, atol=1e-9)
        torch.testing.assert_close(answers.upper, expected.upper, rtol=0, atol=1e-9)
    read.save(tmp_path / "again.safetensors")  # what is asked is another model: files stay as they are
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "file.safetensors").read_bytes()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_no_answer_is_narrower_than_the_set(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fractions: the exact reach of all rows of a linear model lies within what is answered."""
    certificate = trained(T.Linf(0.02), dtype=dtype).verified([0])  # written out over all rows
    monkeypatch.setattr(derived_sets, "DERIVED_FROM", 0)
    x = data()[0][:6].to(dtype)
    found = certificate.predict(x)
    assert certificate.model is not None and certificate._asked is not certificate.model
    weight, bias = certificate.model[0].weight.form.dense, certificate.model[0].bias.form.dense
    numbers = sorted({*weight.rows.numbers.tolist(), *bias.rows.numbers.tolist()})
    for place, given in enumerate(x.tolist()):
        terms: dict[int, Fraction] = dict.fromkeys(numbers, Fraction(0))
        for row, number in enumerate(weight.rows.numbers.tolist()):
            terms[number] += sum(
                Fraction(g) * Fraction(v) for g, v in zip(weight.generators[row, 0].tolist(), given, strict=True)
            )
        for row, number in enumerate(bias.rows.numbers.tolist()):
            terms[number] += Fraction(float(bias.generators[row, 0]))
        center = sum(Fraction(c) * Fraction(v) for c, v in zip(weight.center[0].tolist(), given, strict=True))
        center += Fraction(float(bias.center[0]))
        radius = sum(Fraction(r) * abs(Fraction(v)) for r, v in zip(weight.radius[0].tolist(), given, strict=True))
        reach = sum(map(abs, terms.values())) + radius + Fraction(float(bias.radius[0]))
        ends = certificate.model[0].weight, certificate.model[0].bias
        low, high = (_interval(side, given, *ends) for side in (0, 1))
        assert Fraction(float(found.lower[place, 0])) <= max(center - reach, low)
        assert Fraction(float(found.upper[place, 0])) >= min(center + reach, high)


def test_radius_center_and_bounds_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a set that has a radius, which those after a reduction hardly have."""
    monkeypatch.setattr(derived_sets, "DERIVED_FROM", 0)
    model = copy.deepcopy(trained(T.Linf(0.02)).verified([0]).model)
    assert model is not None
    for x in model.parameters():
        form = x.form.dense
        wide = Form(form.center, form.generators, form.radius + 0.25, form.rows)
        x.set = Set(torch.stack((x.lower - 1.0, x.upper + 1.0)), wide, x.symbols)
    made = asked_through_derived_symbols(model)
    for x, other in zip(model.parameters(), made.parameters(), strict=True):
        assert torch.equal(x.form.center, other.form.center) and torch.equal(x.set.bounds, other.set.bounds)
        assert bool((other.form.radius >= 0.25).all()) and len(other.form.rows) == x.numel()
    point = data()[0][:1]
    assert float((made(point).upper - made(point).lower).min()) >= 0.5 * (1 + float(point.abs().sum()))


def _interval(side: int, given: list[float], weight: bf.Bounded, bias: bf.Bounded) -> Fraction:
    """The end of the product in interval arithmetic: a set is cut by it as well."""
    bounds = weight.set.bounds[:, 0]
    total = Fraction(float(bias.set.bounds[side, 0]))
    for place, value in enumerate(given):
        end = side if value >= 0 else 1 - side
        total += Fraction(float(bounds[end, place])) * Fraction(value)
    return total


def test_few_rows_are_asked_as_they_are(tmp_path: Path) -> None:
    certificate = trained(T.AtMost(3, T.Labels()))
    assert certificate.model is not None and certificate._asked is certificate.model  # derived as training left them
    certificate.save(tmp_path / "file.safetensors")
    read = bf.load(tmp_path / "file.safetensors")
    assert read.model is not None and read._asked is not read.model  # 40 rows and more for 4 scalars
    assert asked_through_derived_symbols(copy.deepcopy(certificate.nominal)) is not None
    audited = [one.audit(data()[0], budget=5) for one in (certificate, read)]
    assert audited[0].checklist.samples.tolist() == audited[1].checklist.samples.tolist()
    torch.testing.assert_close(*(torch.from_numpy(one.totals) for one in audited))


def test_threads_that_ask_first_at_once_get_one_model(tmp_path: Path) -> None:
    trained(T.AtMost(3, T.Labels())).save(tmp_path / "file.safetensors")
    expected = bf.load(tmp_path / "file.safetensors").predict(data()[0], epsilon=0.01, chunk=8)
    for _ in range(3):
        read = bf.load(tmp_path / "file.safetensors")
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: read.predict(data()[0], epsilon=0.01, chunk=8), range(4)))  # noqa: B023
        assert all(torch.equal(one.lower, expected.lower) for one in found)


def test_inputs_with_missing_values_are_answered_beside_the_others() -> None:
    """Points come first and missing values after them: every answer is that of its own input."""
    x, y = data()
    holes = x.clone()
    holes[::5, 0] = float("nan")
    certificate = trained(T.AtMost(2, T.Labels()))
    asked = holes[:23]
    together = certificate.predict(asked, threat=T.Missing((-1.0, 1.0)), chunk=4)
    for place in range(len(asked)):
        alone = certificate.predict(asked[place], threat=T.Missing((-1.0, 1.0)))
        assert bool(together.certified[place] == alone.certified[0]) and bool(together.label[place] == alone.label[0])
        torch.testing.assert_close(together.lower[place], alone.lower[0], rtol=0, atol=1e-9)
        for value in (-1.0, 0.0, 1.0) if torch.isnan(asked[place, 0]) else (float(asked[place, 0]),):
            given = asked[place].clone()
            given[0] = value
            output = certificate.nominal(given)
            assert bool((together.lower[place] <= output).all() and (output <= together.upper[place]).all())
