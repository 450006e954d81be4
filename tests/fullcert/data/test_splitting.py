"""Splits, neighbours and scores are scikit-learn's; the tables of the field are read as their recipes say."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_at_hand import DATA, needs
from sklearn.impute import KNNImputer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from fullcert.data import datasets
from fullcert.data.datasets import cars, components, magic, splitting
from fullcert.data.datasets.holdings import files_of, inspect
from fullcert.experiment import tasks
from fullcert.system.mistakes import Mistake


@pytest.mark.parametrize(("count", "tested", "sizes"), [(60, False, (12, 4, 44)), (60, True, (0, 6, 60))])
def test_rows_of_a_table_are_split_as_told(count: int, tested: bool, sizes: tuple[int, int, int]) -> None:
    """A fifth for tests and a tenth of the others for validation; beside a table of tests all are trained on."""
    for many in (1, 400):
        parts = tasks.split_rows(3, many * count, tested)
        found = tuple(len(parts[name]) for name in ("test", "validation", "train"))
        assert found == (
            sizes if many == 1 else (many * sizes[0], 1000 if tested else 1920, 24000 if tested else 17280)
        )
        rows = np.concatenate([parts["test"], parts["train"], *([] if tested else [parts["validation"]])])
        assert sorted(rows.tolist()) == list(range(many * count)) and (np.diff(parts["train"]) > 0).all()


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("count", [50, 101, 1024])
@pytest.mark.parametrize("seed", [0, 1, 42])
def test_splits_are_those_of_scikit_learn(classes: int, count: int, seed: int) -> None:
    labels = np.random.RandomState(seed + count).randint(0, classes, count)
    test = -(-count // 5)  # a share of 0.2, rounded up
    for stratify, found in (
        (None, splitting.shuffled(count, test, seed)),
        (labels, splitting.stratified(labels, test, seed)),
    ):
        expected = train_test_split(np.arange(count), test_size=0.2, random_state=seed, stratify=stratify)
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_ties_of_remainders_are_broken_as_scikit_learn_does() -> None:
    labels = np.repeat([0, 1, 2, 3], 13)  # equal shares: every remainder is the same
    found = splitting.stratified(labels, 11, 5)
    expected = train_test_split(np.arange(52), test_size=0.2, random_state=5, stratify=labels)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_every_remainder_is_given_out_as_scikit_learn_does() -> None:
    """Classes of few sizes have few remainders, several of them shared, and most are needed."""
    random = np.random.RandomState(0)
    for _ in range(40):
        counts = random.randint(2, 5, random.randint(3, 8))
        labels, test = np.repeat(np.arange(len(counts)), counts), int(random.randint(len(counts), sum(counts) // 2 + 1))
        found = splitting.stratified(labels, test, 3)
        expected = train_test_split(np.arange(len(labels)), test_size=test, random_state=3, stratify=labels)
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_holes_are_filled_as_scikit_learn_does(seed: int) -> None:
    generator = np.random.RandomState(seed)
    table = generator.randint(0, 500, (60, 5)).astype(float)
    table[generator.rand(60, 5) < 0.05] = np.nan
    assert np.array_equal(splitting.filled(table, 10), KNNImputer(n_neighbors=10).fit_transform(table))


def test_scores_are_those_of_scikit_learn() -> None:
    train, test = np.random.RandomState(0).lognormal(size=(2, 40, 3))
    scaler = StandardScaler().fit(train)
    for ours, part in zip(splitting.standardised(train, test), (train, test), strict=True):
        assert np.allclose(ours, scaler.transform(part), rtol=1e-12, atol=1e-12)


# --- files made here ------------------------------------------------------------------------------------------


def magic_rows(count: int = magic.ROWS) -> bytes:
    return "".join(f"{number % 97}.5,{'1,' * 9}{'gh'[number % 3 == 0]}\n" for number in range(count)).encode()


def car_rows(count: int = cars.ROWS, header: str = ",".join(("mpg", *cars.FEATURES, "car name"))) -> bytes:
    rows = (f"{number % 40 + 9},8,{number},{'?' if number < 6 else number},3504,12,70,1,any" for number in range(count))
    return "\r\n".join((header, *rows, "")).encode()


def put(folder: Path, path: str, content: bytes) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)


@pytest.mark.parametrize(("pack", "suffix"), [(bytes, ""), (gzip.compress, ".gz")])
def test_magic_as_published_or_gzipped(pack: Callable[[bytes], bytes], suffix: str, tmp_path: Path) -> None:
    put(tmp_path, f"magic/magic04.data{suffix}", pack(magic_rows()))
    table, labels = magic.read_table(magic.FILE.path(tmp_path))
    assert table.shape == (19020, 10) and table[3, 0] == 3.5 and labels.tolist()[:4] == [1, 0, 0, 1]


def test_cars_with_holes(tmp_path: Path) -> None:
    put(tmp_path, "auto-mpg/auto-mpg.csv", car_rows())
    table, miles = cars.read_table(cars.FILE.path(tmp_path))
    assert np.isnan(table[:6, 2]).all() and not np.isnan(table[6:]).any() and miles[:2].tolist() == [9, 10]


DAMAGED = {
    "magic: a row missing": ("magic/magic04.data", magic_rows(magic.ROWS - 1)),
    "magic: a class of another table": ("magic/magic04.data", magic_rows()[:-2] + b"x\n"),
    "magic: no numbers": ("magic/magic04.data", magic_rows().replace(b"96.5", b"none")),
    "magic: packed and cut off": ("magic/magic04.data.gz", gzip.compress(magic_rows(), mtime=0)[:-20]),
    "auto-mpg: empty": ("auto-mpg/auto-mpg.csv", b""),
    "auto-mpg: a row missing": ("auto-mpg/auto-mpg.csv", car_rows(cars.ROWS - 1)),
    "auto-mpg: other columns": ("auto-mpg/auto-mpg.csv", car_rows(header="a,b,c,d,e,f,g,h,i")),
    "auto-mpg: no numbers": ("auto-mpg/auto-mpg.csv", car_rows().replace(b"3504", b"heavy")),
}


@pytest.mark.usefixtures("any_content")
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_told_in_one_sentence(case: str, tmp_path: Path) -> None:
    path, content = DAMAGED[case]
    put(tmp_path, path, content)
    with pytest.raises(Mistake, match=f"{Path(path).name} cannot be read.*fetch {path.partition('/')[0]}"):
        datasets.load("magic", tmp_path, 0) if path.startswith("magic") else datasets.auto_mpg(tmp_path)


def test_components_are_directions_of_the_largest_variance() -> None:
    centered = np.random.RandomState(0).normal(size=(500, 6)) * [1, 9, 2, 8, 3, 7]
    found = components.principal(centered - centered.mean(0), 3)
    assert np.allclose(found @ found.T, np.eye(3)) and found.shape == (3, 6)
    assert np.abs(found).argmax(1).tolist() == [1, 3, 5] and (found.max(1) > 0.9).all(), "the largest entry is positive"


def test_datasets_that_share_files_list_them_once(tmp_path: Path) -> None:
    shared = list(files_of(["mnist", "mnist-32"]))
    assert len(shared) == 4 and {name for name, _ in shared} == {"mnist"} and len(list(files_of(["mnist-32"]))) == 4
    with pytest.raises(Mistake, match="fetch mnist-32"):
        inspect(["mnist-32"], tmp_path)


# --- the published files --------------------------------------------------------------------------------------


@needs("magic/magic04.data.gz")
def test_magic_is_split_as_published() -> None:
    data = datasets.load("magic", DATA, 0)
    table, labels = magic.read_table(magic.FILE.path(DATA))
    numbers = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=42)
    scaler = StandardScaler().fit(table[numbers[0]])
    for part, rows in zip((data.train, data.test), numbers, strict=True):
        assert np.array_equal(part.labels, labels[rows])
        assert np.allclose(part.inputs, scaler.transform(table[rows]), rtol=1e-9, atol=1e-9)
    assert np.mean(data.test.labels == 0).round(3) == 0.648, "the published share of the larger class"


@needs("auto-mpg/auto-mpg.csv")
def test_cars_are_filled_and_split_as_published() -> None:
    train, test = datasets.auto_mpg(DATA)
    assert (len(train.inputs), 0, len(test.inputs)) == datasets.ABOUT["auto-mpg"].samples
    table, miles = cars.read_table(cars.FILE.path(DATA))
    assert np.isnan(table).sum() == 6
    expected = train_test_split(KNNImputer(n_neighbors=10).fit_transform(table), miles, test_size=0.2, random_state=1)
    scaler = StandardScaler().fit(expected[0])
    assert np.array_equal(splitting.filled(table, 10)[splitting.shuffled(398, 80, 1)[0]], expected[0])
    assert np.allclose(train.inputs, scaler.transform(expected[0])) and np.array_equal(train.miles, expected[2])
    assert np.allclose(test.inputs, scaler.transform(expected[1])) and np.array_equal(test.miles, expected[3])


@needs("mnist/train-images-idx3-ubyte.gz")
def test_digits_on_their_components() -> None:
    data = datasets.load("mnist-32", DATA, 0)
    assert data.train.inputs.shape == (60000, 32) and data.test.inputs.shape == (10000, 32)
    variances = data.train.inputs.var(axis=0)
    assert (np.diff(variances) < 0).all() and np.allclose(data.train.inputs.mean(axis=0), 0, atol=1e-12)
    assert variances.sum() / 52.725 == pytest.approx(0.745, abs=0.01), "of the variance of all pixels"
