"""What models that have converged are certified for: complete branching, a large table, and images.

Each row fits one model on its training data and asks for its test data, once: ridges and features were fixed before, on
parts of training sets. It runs on torch and numpy alone, but breast cancer comes with scikit-learn:

    BOUNDFLOW_DATA=folder python benchmarks/optimum.py --case adult mnist --json out.json
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import AtMost, Labels

DATA = Path(os.environ.get("BOUNDFLOW_DATA", "data"))
NUMBERS = (0, 2, 4, 10, 11, 12)  # columns of Adult that hold numbers
Row = dict[str, Any]


def certified(name: str, k: int, train: tuple, test: tuple, seconds: float = 0.0, **options: Any) -> Row:
    """One certificate, asked once; with ``seconds``, open predictions are branched on for so long."""
    begin, of_processor = time.perf_counter(), time.process_time()
    outputs = int(train[1].max()) + 1 if options["loss"] == "squared" else 1
    features = options.get("features")
    width = train[0].shape[1] if features is None else len(features(train[0][:1])[0])
    certificate = bf.certify_optimum(
        nn.Linear(width, outputs, device=train[0].device), train, threat=AtMost(k, Labels()), **options
    )
    found = certificate.accuracy(*test)
    row = {"case": name, "k": k, "samples": len(train[0]), "l2": options["l2"], "nominal": found.nominal}
    row |= {"certified": found.certified, "attacked": None, "ended": None}
    if seconds:
        label = (certificate.nominal(test[0])[:, 0] > 0).long()
        branched = certificate.changeable(test[0], seconds=seconds)
        right = label == test[1]
        row["certified"] = float((right & (branched.lead > 0)).double().mean())
        row["attacked"] = float((right & ~branched.changed).double().mean())
        row["ended"] = branched.ended
    row |= {"seconds": time.perf_counter() - begin, "of_processor": time.process_time() - of_processor}
    return row


# --- breast cancer: 70/30 with seed 0, standardised, the intercept penalised; certified = attacked where it ended ----


def breast(stratified: bool, seconds: float, _: str) -> Iterator[Row]:
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    x, y = load_breast_cancer(return_X_y=True)
    parts = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y if stratified else None)
    mean, deviation = parts[0].mean(0), parts[0].std(0)
    train, test = (
        (torch.tensor((inputs - mean) / deviation), torch.tensor(labels))
        for inputs, labels in ((parts[0], parts[2]), (parts[1], parts[3]))
    )
    for c, k in ((0.01, 1), (0.01, 3), (0.01, 5), (0.1, 1), (0.1, 2), (0.1, 3), (1.0, 1), (1.0, 2)):
        name = f"breast cancer, C = {c:g}" + (", stratified" if stratified else "")
        options: dict[str, Any] = {"loss": "logistic", "l2": 1 / (c * len(train[0])), "penalise_bias": True}
        yield certified(name, k, train, test, seconds, **options)


# --- Adult: one-hot categories, numbers by the quantiles that they are above; l2 = 15 k / n ---------------------------


def adult(_: str) -> Iterator[Row]:
    train, test = (_columns(DATA / "adult" / f"adult.{name}.gz") for name in ("data", "test"))
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for column, values in enumerate(zip(train[:-1], test[:-1], strict=True)):
        for part, found in zip(parts, _steps(*values) if column in NUMBERS else _names(*values), strict=True):
            part.append(found)
    inputs = [torch.tensor(np.hstack(part), dtype=torch.float64) for part in parts]
    labels = [torch.tensor((table[-1] == ">50K").astype(np.int64)) for table in (train, test)]
    for k in (10, 50, 100, 200):
        options: dict[str, Any] = {"loss": "logistic", "l2": ADULT * k / len(inputs[0])}
        yield certified("adult", k, (inputs[0], labels[0]), (inputs[1], labels[1]), **options)


ADULT = 15.0


def _columns(path: Path) -> list[np.ndarray]:
    lines = [line for line in gzip.open(path, "rt").read().splitlines() if line and not line.startswith("|")]
    table = [[value.strip() for value in line.removesuffix(".").split(",")] for line in lines]
    return [np.array(column) for column in zip(*table, strict=True)]


def _names(train: np.ndarray, test: np.ndarray) -> list[np.ndarray]:
    return [values[:, None] == np.unique(train) for values in (train, test)]


def _steps(train: np.ndarray, test: np.ndarray) -> list[np.ndarray]:
    """Whether a number is above each of eight quantiles; of one that is mostly 0, above 0 and quantiles of the rest."""
    train, test = train.astype(float), test.astype(float)
    mostly = (train == 0).mean() > 0.5
    levels = np.unique(np.quantile(train[train != 0] if mostly else train, np.linspace(0, 1, 9)))
    levels = np.r_[0.5, levels[1:-1]] if mostly else levels[:-1]
    return [values[:, None] > levels for values in (train, test)]


# --- images: squared loss; features, ridges and lengths were chosen on 10,000 of the training images ------------------


def mnist(device: str) -> Iterator[Row]:
    """On 32 components, by 4,000 random features."""
    train, test = (_images(DATA / "mnist", name, device) for name in ("train", "t10k"))
    mean = train[0].mean(0)
    components = torch.linalg.eigh(torch.cov((train[0] - mean).T)).eigenvectors[:, -32:]
    train = (train[0] - mean) @ components, train[1]
    test = (test[0][:1000] - mean) @ components, test[1][:1000]
    features = bf.optimum.RandomFeatures(train[0], 4000)
    for k in (10, 25, 50, 100):
        options: dict[str, Any] = {"loss": "squared", "l2": 0.35 * k / len(train[0]), "features": features}
        yield certified("mnist, 32 components", k, train, test, **options)


def patches(device: str) -> Iterator[Row]:
    """By 1,600 typical patches, in each quarter of an image: how many wrong labels half of the images withstand."""
    (x, y), (asked, truth) = (_images(DATA / "mnist", name, device) for name in ("train", "t10k"))
    x, asked, truth = x.view(-1, 1, 28, 28), asked[:1000].view(-1, 1, 28, 28), truth[:1000]
    features = bf.optimum.PatchFeatures(x, 1600)
    rows, inputs = features(x), features(asked)
    for k in (50, 200, 500):
        begin = time.perf_counter()
        certificate = bf.certify_optimum(
            nn.Linear(6400, 10, device=device), (rows, y), threat=AtMost(k, Labels()), l2=k / (2 * len(rows))
        )
        found = certificate.withstands(inputs)
        right = found.label == truth
        withstood = torch.where(right, found.value, -1)
        row = {"case": "mnist, patches", "k": k, "samples": len(rows), "l2": k / (2 * len(rows)), "attacked": None}
        row |= {"nominal": float(right.double().mean()), "certified": float((withstood >= k).double().mean())}
        row |= {"half_withstand": int(withstood.median()), "ended": None}
        yield row | {"seconds": time.perf_counter() - begin, "of_processor": None}


def _images(folder: Path, name: str, device: str) -> tuple[Tensor, Tensor]:
    images, labels = (
        np.frombuffer(gzip.open(folder / f"{name}-{kind}-ubyte.gz").read(), dtype=np.uint8)
        for kind in ("images-idx3", "labels-idx1")
    )
    pixels = torch.tensor(images[16:].reshape(-1, 784) / 255.0, device=device)
    return pixels, torch.tensor(labels[8:].astype(np.int64), device=device)


CASES: dict[str, Callable[[float, str], Iterator[Row]]] = {
    "breast": partial(breast, False),
    "breast-stratified": partial(breast, True),
    "adult": lambda _, device: adult(device),
    "mnist": lambda _, device: mnist(device),
    "patches": lambda _, device: patches(device),
}


def show(row: Row) -> None:
    ended = {None: "-", True: "yes", False: "no"}[row["ended"]]
    attacked = "-" if row["attacked"] is None else f"{row['attacked']:.2%}"
    print(f"{row['case']:<34}{row['k']:>5}{row['nominal']:>9.2%}{row['certified']:>11.2%}", end="")
    print(f"{attacked:>10}{ended:>7}{row['seconds']:>9.2f}{row['of_processor'] or 0.0:>14.1f}", end="")
    print(f"   half withstand {row['half_withstand']}" if "half_withstand" in row else "", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=60.0, help="for branching, of each row")
    parser.add_argument("--device", default="cpu", help="for images")
    parser.add_argument("--json", type=Path, help="file for the rows")
    given, rows = parser.parse_args(), []
    print(f"{'case':<34}{'k':>5}{'nominal':>9}{'certified':>11}{'attacked':>10}{'ended':>7}", end="")
    print(f"{'seconds':>9}{'of processor':>14}")
    for case in given.case:
        for row in CASES[case](given.seconds, given.device):
            rows.append(row)
            show(row)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
