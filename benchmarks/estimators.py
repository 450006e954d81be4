"""What the scikit-learn estimator certifies with its defaults, beside logistic regression: four tables, one flip.

Accuracy and certified score on the test split, without any choice by hand, and the seconds of `fit`. `--splits 5` takes
the mean over as many splits, since a split of iris has 38 test rows. `--attack` trains on every dataset with one flip,
where there are at most 2048 of them, step by step: what is left is what is true of this training, and no certificate
can have more.

    python benchmarks/estimators.py --splits 5 --attack --json out.json
    python benchmarks/estimators.py --splits 10 --stratified --json out.json    # each table at several numbers of flips
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import boundflow as bf
from fullcert.sklearn import CertifiedClassifier

TABLES: dict[str, Callable[..., Any]] = {
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
    "iris": load_iris,
}


FLIPS = {"wine": (1, 3), "breast cancer": (1, 3, 5, 10), "digits": (1, 3, 5), "iris": (1, 3)}


def timed(fit: Callable[..., Any], *data: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return fit(*data), time.perf_counter() - began


def attacked(fitted: CertifiedClassifier, x: np.ndarray, y: np.ndarray, test: tuple[np.ndarray, np.ndarray]) -> float:
    """The accuracy that is left when every dataset that the threat allows has been tried."""
    assert isinstance(fitted.certificate_, bf.Certificate)
    found = bf.attack(
        fitted.initial_model_,
        (torch.tensor(x), torch.tensor(y)),
        fitted.program_,
        threat=fitted.threat_,
        test=(torch.tensor(test[0]), torch.tensor(test[1])),
        certificate=fitted.certificate_,
        attacks=["enumeration"],
        progress=False,
    )
    if "enumeration" in found.skipped or found.attacked_accuracy is None:
        raise SystemExit(f"not all datasets were tried: {found.skipped}")
    return found.attacked_accuracy


def measure(table: str, split: int, flips: int, attack: bool = False, stratified: bool = False) -> dict[str, float]:
    """One split of one table: both estimators on the same rows."""
    rows, labels = TABLES[table](return_X_y=True)
    x, x_test, y, y_test = train_test_split(rows, labels, random_state=split, stratify=labels if stratified else None)
    estimator = CertifiedClassifier(
        flip_labels=flips, **({"way": "steps", "scaler": StandardScaler()} if attack else {})
    )
    ours, seconds = timed(estimator.fit, x, y)
    theirs, plain_seconds = timed(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit, x, y)
    found = {"attacked_score": attacked(ours, x, y, (x_test, y_test))} if attack else {}
    return found | {
        "score": ours.score(x_test, y_test),
        "certified_score": ours.certified_score(x_test, y_test),
        "fit_seconds": seconds,
        "logistic_regression": theirs.score(x_test, y_test),
        "logistic_regression_seconds": plain_seconds,
    }


def show(row: dict[str, Any]) -> None:
    left = f"{row['attacked_score']:.1%}" if "attacked_score" in row else "-"
    print(f"{row['table']:<15}{row['flips']:>6}{row['certified_score']:>10.1%}{left:>10}{row['score']:>8.1%}", end="")
    print(f"{row['fit_seconds']:>8.2f}", end="")
    print(f"{row['logistic_regression']:>22.1%}{row['logistic_regression_seconds']:>8.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--flips", type=int, nargs="+", default=[1])
    parser.add_argument(
        "--stratified", action="store_true", help="every class in its share, at several numbers of flips"
    )
    parser.add_argument("--attack", action="store_true", help="and what is left when every dataset was tried")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    print(f"{'table':<15}{'flips':>6}{'certified':>10}{'attacked':>10}{'right':>8}{'fit s':>8}", end="")
    print(f"{'logistic regression':>22}{'fit s':>8}")
    for table in options.table:
        for flips in FLIPS[table] if options.stratified else options.flips:
            found = [
                measure(table, split, flips, options.attack, options.stratified) for split in range(options.splits)
            ]
            mean = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
            results.append({"table": table, "splits": options.splits, "flips": flips, **mean})
            show(results[-1])
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
