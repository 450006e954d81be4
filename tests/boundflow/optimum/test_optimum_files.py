"""Certificates at the optimum as files: the same answers to the bit, and nothing else is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forging import forged
from torch import Tensor, nn

import boundflow as bf
from boundflow.optimum import KernelFeatures, NormalScores, RandomFeatures, Standardised
from boundflow.threats import AtMost, Labels


class Squares(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, x * x), 1)


def table() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def features(name: str, x: Tensor) -> nn.Module | None:
    scores = NormalScores(x)
    return {
        "none": lambda: None,
        "kernel": lambda: nn.Sequential(scores, KernelFeatures(scores(x))),
        "random": lambda: nn.Sequential(nn.Linear(3, 3).double(), RandomFeatures(x, 20)),
        "standardised": lambda: Standardised(x),
        "own": Squares,
    }[name]()


def certificate(name: str = "kernel", loss: str = "squared", l2: float | list[float] = 0.05) -> bf.OptimumCertificate:
    x, y = table()
    made = features(name, x)
    width = 3 if made is None else made(x).shape[1]
    y, outputs = (y, 3) if loss == "squared" else ((y > 0).long(), 1)
    weights = torch.linspace(0.5, 1.5, 50)
    threat = AtMost(3, Labels().on(samples=range(40)))
    head = nn.Linear(width, outputs)
    return bf.certify_optimum(head, (x, y), threat=threat, l2=l2, loss=loss, features=made, sample_weights=weights)


@pytest.mark.parametrize("name", ["none", "kernel", "random", "standardised", "own"])
@pytest.mark.parametrize(("loss", "l2"), [("squared", [0.05, 0.1]), ("logistic", 0.5)])
def test_files_answer_to_the_bit(name: str, loss: str, l2: float | list[float], tmp_path: Path) -> None:
    made, (x, _) = certificate(name, loss, l2), table()
    made.save(tmp_path / "first")
    read = bf.load(tmp_path / "first", Squares() if name == "own" else None)
    assert isinstance(read, bf.OptimumCertificate) and read.record == made.record
    found, answers = read.predict(x), made.predict(x)
    assert torch.equal(found.lower, answers.lower) and torch.equal(found.certified, answers.certified)
    assert torch.equal(read.withstands(x).value, made.withstands(x).value)
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "first").read_bytes()
    verified = made.verified([0, 7])
    verified.save(tmp_path / "verified")
    again = bf.load(tmp_path / "verified", Squares() if name == "own" else None)
    assert torch.equal(again.predict(x).lower, verified.predict(x).lower)


def test_targets_that_are_numbers(tmp_path: Path) -> None:
    x, y = table()
    made = bf.certify_optimum(nn.Linear(3, 1), (x, y.double()), threat=AtMost(2, Labels(0.5)), l2=0.1)
    made.save(tmp_path / "numbers")
    assert torch.equal(bf.load(tmp_path / "numbers").predict(x).upper, made.predict(x).upper)


def of_verified(record: dict, tensors: dict) -> None:
    record["verified"] = [3]


FORGERIES = {
    "its data are not those": lambda record, tensors: tensors["inputs"].mul_(2),
    "its features are not those": lambda record, tensors: tensors["features.1.rows"].mul_(1.01),
    "its objective are not those": lambda record, tensors: record["l2"].__setitem__(0, 0.5),
    "answers otherwise": lambda record, tensors: tensors["given.0"].mul_(1.5),
    "there are no weights": lambda record, tensors: tensors.pop("given.0"),
    "names no ridge": lambda record, tensors: record["l2"].clear(),
    "what a clause of the threat changes": lambda record, tensors: tensors.pop("clause.0.touched"),
    "not a number of samples": lambda record, tensors: record["budgets"].__setitem__(0, -1),
    "verified is said to be in doubt": of_verified,
    "about classes or numbers": lambda record, tensors: tensors.pop("clause.0.allowed"),
    "not 50 targets": lambda record, tensors: tensors.update(targets=tensors["targets"][:40].clone()),
    "its features hold other numbers": lambda record, tensors: tensors.pop("features.1.middle"),
    "not about an optimum": lambda record, tensors: record.update(way="steps"),
}


@pytest.mark.parametrize("sentence", FORGERIES)
def test_other_content_is_refused(sentence: str, tmp_path: Path) -> None:
    certificate().save(tmp_path / "made")

    def forge(record: dict, tensors: dict) -> None:
        FORGERIES[sentence](record, tensors)

    forged(tmp_path / "made", "boundflow", forge, tmp_path / "forged")
    with pytest.raises(bf.BoundFlowError, match=sentence):
        bf.load(tmp_path / "forged")


def test_a_bit_that_changed_and_missing_code_are_refused(tmp_path: Path) -> None:
    certificate("own").save(tmp_path / "own")
    with pytest.raises(bf.BoundFlowError, match="code of the user"):
        bf.load(tmp_path / "own")
    with pytest.raises(bf.BoundFlowError):
        bf.load(tmp_path / "own", nn.Linear(3, 6))
    content = bytearray((tmp_path / "own").read_bytes())
    content[-1] ^= 1
    (tmp_path / "own").write_bytes(bytes(content))
    with pytest.raises(bf.BoundFlowError, match="damaged"):
        bf.load(tmp_path / "own", Squares())


def test_weights_of_classes_are_read_again(tmp_path: Path) -> None:
    x, y, asked = torch.randn(40, 3).double(), torch.arange(40) % 2, torch.randn(9, 3).double()
    made = bf.certify_optimum(
        nn.Linear(3, 1), (x, y), threat=AtMost(1, Labels()), loss="logistic", l2=0.3, class_weights=(1.0, 3.0)
    )
    made.save(tmp_path / "weighted")
    read, plain = bf.load(tmp_path / "weighted").predict(asked), made.predict(asked)
    assert torch.equal(read.lower, plain.lower) and torch.equal(read.upper, plain.upper)


def test_images_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    images, labels = torch.rand(12, 1, 5, 5).double(), torch.arange(12) % 2
    features = bf.optimum.PatchFeatures(images, 2, size=3)
    options = {"threat": AtMost(1, Labels()), "l2": 0.1}
    made = bf.certify_optimum(nn.Linear(8, 2), (images, labels), features=features, **options)
    with pytest.raises(bf.BoundFlowError, match="files hold tables"):
        made.save(tmp_path / "images")
    assert not (tmp_path / "images").exists()
    bf.certify_optimum(nn.Linear(8, 2), (features(images), labels), **options).save(tmp_path / "table")
    assert bool(torch.isfinite(bf.load(tmp_path / "table").predict(features(images)).lower).all())
