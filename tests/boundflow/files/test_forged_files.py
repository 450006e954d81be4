"""Certificates and checkpoints that were changed by somebody who can compute a digest: one named refusal each.

Every case changes what a file holds and seals it again, so that the digest is right and the content is not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forging import Forgery, Record, Tensors, forged
from moons import moons
from safetensors.torch import save
from torch import Tensor, nn

import boundflow as bf
from boundflow.files import certificate_files, checkpoint
from boundflow.same_program.network_probe import most_bytes


def run(**options: Any) -> bf.Certificate:
    """Five steps on half-moons, of which a few samples may have moved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    threat = bf.threats.AtMost(3, bf.threats.Linf(0.01))
    recipe = {"loss": "bce", "epochs": 5, "order": 3, "optimizer_options": {"lr": 0.1, "momentum": 0.5}}
    return bf.certify(model, moons(20, 0), threat=threat, **recipe, **options)


def stop_at_three(step: bf.Step) -> None:
    if step.number == 3:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("honest") / "certificate"
    run().save(path)
    return path


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupted") / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path, callbacks=[stop_at_three])
    return path


def put(name: str, change: Callable[[Tensor], Tensor]) -> Forgery:
    """Another tensor in the place of one."""

    def forge(record: Record, tensors: Tensors) -> None:
        tensors[name] = change(tensors[name]).contiguous()

    return forge


def say(**fields: Any) -> Forgery:
    """Another record."""
    return lambda record, tensors: {**record, **fields}


def described(options: Record) -> Forgery:
    """Another first layer."""

    def forge(record: Record, tensors: Tensors) -> None:
        record["architecture"]["Sequential"][0] = options

    return forge


def flagged(**flags: Any) -> Forgery:
    def forge(record: Record, tensors: Tensors) -> None:
        record["sets"]["0.weight"] = flags

    return forge


def both(*forgeries: Forgery) -> Forgery:
    def forge(record: Record, tensors: Tensors) -> Record:
        for each in forgeries:
            record = each(record, tensors) or record
        return record

    return forge


def with_first(values: Tensor, number: float) -> Tensor:
    values = values.clone()
    values.view(-1)[0] = number
    return values


def without(name: str) -> Forgery:
    """One tensor less."""

    def forge(record: Record, tensors: Tensors) -> None:
        del tensors[name]

    return forge


def vast_pooling(record: Record, tensors: Tensors) -> None:
    """A layer without parameters whose answers would take a terabyte."""
    vast = [
        {"Unflatten": {"dim": 1, "unflattened_size": [1, 2, 2]}},
        {"AdaptiveAvgPool2d": {"output_size": [10**5] * 2}},
    ]
    record["architecture"]["Sequential"][1] = {"Sequential": vast}


CERTIFICATES: dict[str, tuple[Forgery, str]] = {
    "crossed bounds": (put("bounds.0.weight", lambda b: b.flip(0)), "above its upper bound"),
    "a bound that is infinite": (put("bounds.0.weight", lambda b: with_first(b, -torch.inf)), "not finite"),
    "a bound that is no number": (put("bounds.0.weight", lambda b: with_first(b, torch.nan)), "not finite"),
    "bounds of another shape": (put("bounds.0.weight", lambda b: b[:, :1]), "shape"),
    "one bound": (put("bounds.0.weight", lambda b: b[:1]), "a lower and an upper one"),
    "bounds of whole numbers": (put("bounds.0.weight", lambda b: b.to(torch.int32)), "of which there are no sets"),
    "bounds in float32": (put("bounds.0.weight", lambda b: b.float()), "float32"),
    "no bounds": (without("bounds.0.weight"), "no bounds for 0.weight"),
    "no set at all": (
        lambda record, tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("bounds.")] and None,
        "no bounds for",
    ),
    "the plain model elsewhere": (put("nominal.0.weight", lambda p: p + 1), "not between its bounds"),
    "a negative radius": (put("radius.0.weight", lambda r: with_first(r, -1e-9)), "radius of 0.weight is negative"),
    "no radius": (without("radius.0.weight"), "no radius"),
    "generators that are not finite": (put("generators.0.weight", lambda g: with_first(g, torch.inf)), "not finite"),
    "too few generators": (put("generators.0.weight", lambda g: g[1:]), "do not fit its rows"),
    "no generators": (without("generators.0.weight"), "do not go together"),
    "a row twice": (put("rows.0.weight", lambda r: with_first(r, int(r[1]))), "there twice"),
    "a row of no symbol": (put("rows.0.weight", lambda r: with_first(r, 2**39)), "no symbol of the file"),
    "rows that are no numbers": (put("rows.0.weight", lambda r: r.double()), "no numbers of symbols"),
    "symbols out of order": (put("symbols.number", lambda n: n.flip(0)), "do not ascend"),
    "a symbol with a negative number": (put("symbols.number", lambda n: with_first(n, -4)), "not one of a run"),
    "a symbol with an enormous number": (put("symbols.number", lambda n: n + 2**41), "not one of a run"),
    "too few owners": (put("symbols.owner", lambda o: o[1:]), "owners"),
    "an owner that is nobody": (put("symbols.owner", lambda o: torch.full_like(o, -1)), "belongs to nobody"),
    "a part of no threat": (put("symbols.part", lambda p: p + 7), "no part of the threat"),
    "no symbols": (without("symbols.part"), "mean nothing"),
    "too few columns": (put("symbols.column", lambda c: c[1:]), "columns"),
    "a column with a negative number": (put("symbols.column", lambda c: with_first(c, -9)), "negative number"),
    "columns without what is recorded": (without("symbols.values"), "mean nothing without the rest"),
    "more recorded than symbols": (put("symbols.values", lambda v: torch.zeros(3, 2).double()), "as much as"),
    "recorded of no symbol": (
        both(
            put("symbols.recorded", lambda r: torch.tensor([2**39])),
            put("symbols.values", lambda v: torch.tensor([[0.5], [0.0], [1.0]]).double()),
        ),
        "belongs to no symbol",
    ),
    "recorded out of reach": (
        both(
            put("symbols.recorded", lambda r: torch.tensor([0])),
            put("symbols.values", lambda v: torch.tensor([[1.5], [0.0], [1.0]]).double()),
        ),
        "where its symbol cannot reach",
    ),
    "verified samples that are words": (say(verified=["all"]), "verified samples are no list"),
    "filled cells that are a word": (say(filled_cells="many"), "filled in is no number"),
    "a budget that is negative": (say(budgets=[-1]), "not a number of samples"),
    "a budget that is a word": (say(budgets=["all"]), "not a number of samples"),
    "budgets that are no list": (say(budgets=4), "budgets are no list"),
    "a part of an unknown kind": (say(parts=[["disc", 0]]), "of a kind that is not known"),
    "a part without a budget": (say(parts=[["box", 3]]), "counts against no budget"),
    "a part that is a list of lists": (say(parts=[[["box"], 0]]), "of a kind that is not known"),
    "a point that is none": (flagged(exact=True), "a point, and is none"),
    "a square that is negative": (flagged(nonnegative=True), "not to be negative"),
    "a diagonal that is none": (flagged(diagonal=True), "do not fit its rows"),
    "an unknown flag": (flagged(sound=True), "not known"),
    "a flag that is a word": (flagged(exact="no"), "neither true nor false"),
    "sets that are a list": (say(sets=[1]), "no table"),
    "a network of 128 GiB": (
        described({"Linear": {"in_features": 2**17, "out_features": 2**17, "bias": True}}),
        "not those that it holds",
    ),
    "a network of no size": (
        described({"Linear": {"in_features": -3, "out_features": 2, "bias": True}}),
        "cannot be made",
    ),
    "a layer that is not known": (described({"Bilinear": {}}), "cannot be made"),
    "a layer that is a list": (described([]), "cannot be made"),  # type: ignore[arg-type]
    "answers of a terabyte": (vast_pooling, "this machine has"),
    "inputs of a terabyte": (say(input_shape=[10**9, 10**6]), "this machine has"),
    "inputs of negative size": (say(input_shape=[-2]), "no list of sizes"),
    "inputs of a truth": (say(input_shape=[True]), "no list of sizes"),
    "another rounding": (say(rounding="inward"), "neither outward nor nearest"),
    "samples in words": (say(samples="many"), "how many samples"),
    "no samples": (say(samples=None), "how many samples"),
    "void at a word": (say(void_at_step="three"), "no number"),
    "another task": (say(task=["classification"]), "task"),
    "kept beside the record": (both(say(architecture=None), say(kept={"nominal/x": {}})), "not in its record"),
    "kept by layers that keep nothing": (say(kept={"nominal/x": {"value": 1}}, state=["x"]), "keep nothing"),
    "kept under a name of code": (
        say(architecture=None, kept={"certified/__class__": {"value": 1}}, state=["__class__"]),
        "no name of what a model keeps",
    ),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_forged_certificates(name: str, honest: Path, tmp_path: Path) -> None:
    forge, words = CERTIFICATES[name]
    path = forged(honest, certificate_files.KEY, forge, tmp_path / "forged")
    with pytest.raises(bf.errors.WrongContent) as refusal:
        bf.load(path)
    assert words in str(refusal.value) and str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_part_of_the_model_is_not_replaced_by_what_it_keeps(honest: Path, tmp_path: Path) -> None:
    for name in ("forward", "0.weight", "1.forward"):
        forge = say(architecture=None, kept={f"certified/{name}": {"value": None}}, state=[name])
        path = forged(honest, certificate_files.KEY, forge, tmp_path / "forged")
        with pytest.raises(bf.errors.WrongContent, match="take the place of a part"):
            bf.load(path, bf.load(honest).nominal)


def test_records_that_cannot_be_read(honest: Path, tmp_path: Path) -> None:
    deep, long = "[" * 100_000, '{"format": ' + "9" * 5000 + "}"
    for text in ("[]", "3", "null", '["digest"]', deep, '{"a": ' * 100_000, long, "", "{"):
        (tmp_path / "forged").write_bytes(save({"x": torch.zeros(1)}, metadata={certificate_files.KEY: text}))
        with pytest.raises(bf.BoundFlowError, match="cannot be read|another version"):
            bf.load(tmp_path / "forged")


def test_tensors_of_kinds_that_have_no_digest(tmp_path: Path) -> None:
    for dtype in (torch.bfloat16, torch.float8_e5m2):
        content = save({"x": torch.zeros(3, dtype=dtype)}, metadata={certificate_files.KEY: '{"format": 4}'})
        (tmp_path / "forged").write_bytes(content)
        with pytest.raises(bf.errors.WrongContent, match="x is torch"):
            bf.load(tmp_path / "forged")


def test_a_header_that_claims_more_than_the_file_holds(tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "F64", "shape": [2**34], "data_offsets": [0, 2**37]}}).encode()
    (tmp_path / "forged").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(bf.BoundFlowError, match="cannot be read as a certificate"):
        bf.load(tmp_path / "forged")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**43)
    with pytest.raises(bf.BoundFlowError, match="this machine has"):
        bf.load(tmp_path / "sparse")


def test_what_a_network_takes_is_known_before_it_is_asked() -> None:
    with torch.device("meta"):
        twin = nn.Sequential(nn.Conv2d(1, 1, 1, padding=10**5), nn.Flatten())
    assert most_bytes(twin, [1, 2, 2]) > 16 * (2 * 10**5) ** 2 * 8
    assert most_bytes(twin, None) == 0


# --- checkpoints ------------------------------------------------------------------------------------------------------


def stating(change: Callable[[Record], Any]) -> Forgery:
    """Another state."""

    def forge(record: Record, tensors: Tensors) -> None:
        change(record["state"])

    return forge


def a_set(name: str) -> str:
    return f"{name}.certified/model/0.weight"


CHECKPOINTS: dict[str, tuple[Forgery, str]] = {
    "crossed bounds": (put(a_set("bounds"), lambda b: b.flip(0)), "above its upper bound"),
    "bounds of another shape": (put(a_set("bounds"), lambda b: b[:, :1]), "shape"),
    "symbols without end": (put("symbols/lengths", lambda n: with_first(n, 2**62)), "this machine has"),
    "own rows without end": (stating(lambda state: state.update(own=-(2**63))), "how many symbols"),
    "runs of no symbols": (put("symbols/lengths", lambda n: with_first(n, -5)), "runs of no symbols"),
    "owners of no sample": (put("symbols/owners", lambda o: o - 5), "negative number"),
    "a sample twice": (put("symbols/samples", lambda s: with_first(s, int(s[1]))), "there twice"),
    "rows beyond the end": (put("symbols/first_rows", lambda r: r + 2**40), "not among those"),
    "too few fingerprints": (put("symbols/raw", lambda r: r[1:]), "fingerprints"),
    "weights that are void": (put("symbols/weights", lambda w: w * torch.nan), "void"),
    "steps without end": (stating(lambda s: s["made"].update(steps=10**12)), "further than its run goes"),
    "steps before the first": (stating(lambda s: s["made"].update(steps=-1)), "further than its run goes"),
    "no steps": (stating(lambda s: s.pop("made")), "made"),
    "seconds that are a word": (stating(lambda s: s["made"].update(seconds="two")), "seconds"),
    "a parameter that is a number": (
        stating(lambda s: s["nominal"]["model"].update({"0.weight": {"value": 3}})),
        "kind and shape",
    ),
    "a list for a number": (stating(lambda s: s["nominal"]["attributes"].update(x={"value": [3]})), "no value"),
    "code for a number": (
        stating(lambda s: s["nominal"]["attributes"].update(__dict__={"value": 3})),
        "no name of what a model keeps",
    ),
    "something gone that was never there": (stating(lambda s: s["nominal"].update(gone=["forward"])), "never there"),
    "an option that is a word": (stating(lambda s: s["nominal"]["groups"][0].update(lr="fast")), "no number"),
    "other parameters in the optimizer": (
        stating(lambda s: s["nominal"]["groups"][0].update(params=3)),
        "no number",
    ),
    "another learning rate for the sets": (
        stating(lambda s: s["certified"]["groups"][0].update(lr=0.0)),
        "make the same steps",
    ),
    "a state that is a list": (say(state=[]), "no tables"),
    "a recipe that is a list": (say(recipe=[]), "no tables"),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_forged_checkpoints(name: str, interrupted: Path, tmp_path: Path) -> None:
    forge, words = CHECKPOINTS[name]
    path = forged(interrupted, checkpoint.KEY, forge, tmp_path / "forged")
    with pytest.raises(bf.errors.WrongContent) as refusal:
        run(checkpoint=path, resume=True)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_symbols_of_a_file_keep_numbers_of_their_own(honest: Path) -> None:
    """Reading takes no more memory than the file names symbols, however large their numbers are."""
    symbols = bf.load(honest).model[0].weight.symbols
    known = symbols._registry.before._numbers
    assert symbols.knows(known) and not symbols.knows(known[-1:] + 1)
    assert symbols.fresh(1).numbers[0] == known[-1] + 1 and not symbols._unused()
