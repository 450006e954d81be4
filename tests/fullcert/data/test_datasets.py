"""Two-Moons are scikit-learn's, bit for bit; files are read as their formats say, and damaged ones are told."""

import gzip
import io
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from data_at_hand import DATA, needs
from sklearn.datasets import load_breast_cancer, make_moons

from fullcert.data import datasets
from fullcert.data.datasets import adult, catalogue, cifar, images, mnist, pneumonia
from fullcert.experiment.options import Options
from fullcert.experiment.training import Recipe
from fullcert.system.mistakes import Mistake


@pytest.mark.parametrize("samples", [2, 7, 200, 1001])
@pytest.mark.parametrize("noise", [0.0, 0.1, 2.5])
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_two_moons_are_those_of_scikit_learn(samples: int, noise: float, seed: int) -> None:
    inputs, labels = make_moons(samples, noise=noise, random_state=seed)
    ours = datasets.two_moons(samples, noise, seed)
    assert np.array_equal(ours.inputs, inputs) and np.array_equal(ours.labels, labels)


def test_splits_are_drawn_one_after_the_other() -> None:
    data = datasets.load("two-moons", Path(), seed=3)
    generator = np.random.RandomState(3)
    for split, samples in ((data.train, 1000), (data.validation, 200), (data.test, 200)):
        inputs, labels = make_moons(samples, noise=0.1, random_state=generator)
        assert np.array_equal(split.inputs, inputs) and np.array_equal(split.labels, labels)


def test_an_unknown_dataset_lists_the_known_ones() -> None:
    with pytest.raises(Mistake, match="two-moons"):
        datasets.load("three-moons", Path(), seed=0)


# --- names ----------------------------------------------------------------------------------------------------


def test_every_dataset_is_described_and_every_description_has_a_dataset() -> None:
    assert set(datasets.ABOUT) >= set(datasets.DATASETS)
    assert set(datasets.PAIRS) == {"mnist", "fashion-mnist", "cifar-10"} <= set(datasets.DATASETS)


def test_a_pair_is_found_under_its_family() -> None:
    assert [catalogue.listed(name) for name in ("mnist-1-7", "iris")] == ["mnist", "iris"]


@pytest.mark.parametrize(
    "name", ["mnist-1", "mnist-1-10", "mnist-a-b", "mnist-1-7-", "iris-1-2", "mnist-1-7\n", "-1-7", ""]
)
def test_a_name_that_is_no_pair(name: str) -> None:
    with pytest.raises(Mistake, match="there is no dataset called"):
        datasets.load(name, Path(), seed=0)


def test_a_pair_has_two_classes() -> None:
    with pytest.raises(Mistake, match="one class twice"):
        datasets.load("mnist-3-3", Path(), seed=0)


def test_importing_the_datasets_needs_numpy_alone() -> None:
    foreign = "{'torch', 'sklearn', 'tarfile', 'urllib.request'}"
    script = f"import sys, fullcert.data.datasets; print(*{foreign} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == ""


# --- files made here ------------------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    """An array of bytes as a gzipped IDX file."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(head + array.astype(np.uint8).tobytes(), 1)


def write_mnist(folder: Path, family: str = "mnist", train: int = 40, test: int = 20) -> None:
    """Images whose class is the remainder of their number by ten, and whose pixels are all their number."""
    (folder / family).mkdir()
    for part, count in (("train", train), ("t10k", test)):
        numbers = np.arange(count)
        pixels = np.broadcast_to(numbers[:, None, None] % 256, (count, 28, 28))
        (folder / family / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (folder / family / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(numbers % 10))


def archive(members: dict[str, bytes]) -> bytes:
    """A gzipped tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def cifar_members() -> dict[str, bytes]:
    """Six batches of four records: classes count on from the number of the batch, the pixels count on from it."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    pixels = [np.arange(4 * 3072).reshape(4, 3072) + batch for batch in range(6)]
    records = [np.concatenate([np.arange(4)[:, None] + batch, pixels[batch]], axis=1) for batch in range(6)]
    return {
        f"cifar-10-batches-bin/{name}": record.astype(np.uint8).tobytes()
        for name, record in zip(names, records, strict=True)
    }


def pneumonia_arrays() -> dict[str, np.ndarray]:
    """Splits of 4, 2 and 3 images."""
    arrays = {}
    for part, count in (("train", 4), ("val", 2), ("test", 3)):
        arrays[f"{part}_images"] = np.arange(count * 784, dtype=np.uint8).reshape(count, 28, 28)
        arrays[f"{part}_labels"] = (np.arange(count, dtype=np.uint8) % 2)[:, None]
    return arrays


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def put(folder: Path, path: str, content: bytes) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)


CIFAR, PNEUMONIA = "cifar-10/cifar-10-binary.tar.gz", "pneumoniamnist/pneumoniamnist.npz"


@pytest.fixture
def few_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold out seven images of a family and three of a pair, so that files can be small."""
    monkeypatch.setattr(images, "HELD", 7)
    monkeypatch.setattr(images, "HELD_OF_PAIR", 3)


# --- readers --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("any_content")
@pytest.mark.parametrize("family", ["mnist", "fashion-mnist"])
def test_idx_images(family: str, tmp_path: Path, few_held: None) -> None:
    write_mnist(tmp_path, family)
    data = datasets.load(family, tmp_path, seed=0)
    assert data.train.inputs.shape == (33, 1, 28, 28) and data.validation.inputs.shape == (7, 1, 28, 28)
    assert data.train.inputs.dtype == np.float64 and data.train.labels.dtype == np.int64
    assert np.array_equal(data.validation.labels, np.arange(33, 40) % 10), "the last training images are held out"
    assert np.array_equal(data.test.inputs[:, 0, 5, 7], np.arange(20) / 255.0)
    assert data.classes == 10 and data.valid == (0, 1) and len(data.class_names or ()) == 10


@pytest.mark.usefixtures("any_content")
def test_a_pair_of_classes(tmp_path: Path, few_held: None) -> None:
    write_mnist(tmp_path)
    data, swapped = (datasets.load(name, tmp_path, seed=0) for name in ("mnist-1-7", "mnist-7-1"))
    assert np.array_equal(data.train.labels, [0, 1, 0, 1, 0]) and np.array_equal(data.validation.labels, [1, 0, 1])
    assert np.array_equal(swapped.train.labels, 1 - data.train.labels)
    assert np.array_equal(data.train.inputs[:, 0, 0, 0] * 255, [1, 7, 11, 17, 21])
    assert data.classes == 2 and data.class_names == ("1", "7") and swapped.class_names == ("7", "1")


@pytest.mark.usefixtures("any_content")
def test_cifar_is_read_from_the_archive(tmp_path: Path, few_held: None) -> None:
    put(tmp_path, CIFAR, archive(cifar_members()))
    data = datasets.load("cifar-10", tmp_path, seed=0)
    assert data.train.inputs.shape == (13, 3, 32, 32) and data.test.inputs.shape == (4, 3, 32, 32)
    assert np.array_equal(data.train.labels, [0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3])
    assert data.test.inputs[0, 1, 2, 3] == (1024 + 2 * 32 + 3 + 5) % 256 / 255
    pair = datasets.load("cifar-10-5-0", tmp_path, seed=0)  # four training images, three of them held out
    assert pair.class_names == ("dog", "airplane") and np.array_equal(pair.train.labels, [1])
    assert os.listdir(tmp_path / "cifar-10") == ["cifar-10-binary.tar.gz"], "nothing is unpacked"


@pytest.mark.usefixtures("any_content")
@pytest.mark.parametrize("name", ["pneumoniamnist.npz", "pneumoniamnist_reassembled.npz"])
def test_pneumonia_under_either_name(name: str, tmp_path: Path) -> None:
    put(tmp_path, f"pneumoniamnist/{name}", npz(pneumonia_arrays()))
    data = datasets.load("pneumonia-mnist", tmp_path, seed=0)
    assert [part.inputs.shape[0] for part in (data.train, data.validation, data.test)] == [4, 2, 3]
    assert data.train.inputs.shape[1:] == (1, 28, 28) and data.train.inputs[0, 0, 1, 2] == 30 / 255
    assert np.array_equal(data.train.labels, [0, 1, 0, 1]) and data.class_names == ("normal", "pneumonia")


def adult_row(age: int, label: str) -> str:
    words = "?, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, United-States"
    return f"{age}, {words}, {label}\n"


def write_adult(folder: Path, pack: Callable[[bytes], bytes], suffix: str, train_rows: int = adult.TRAIN_ROWS) -> None:
    train = "".join(adult_row(17 + number % 70, "<=50K") for number in range(train_rows)) + "\n"
    test = "|1x3 Cross validator\n" + adult_row(25, ">50K.") * adult.TEST_ROWS + "\n"
    put(folder, f"adult/adult.data{suffix}", pack(train.encode()))
    put(folder, f"adult/adult.test{suffix}", pack(test.encode()))


@pytest.mark.usefixtures("any_content")
@pytest.mark.parametrize(("pack", "suffix"), [(bytes, ""), (gzip.compress, ".gz")])
def test_adult_as_published_or_gzipped(pack: Callable[[bytes], bytes], suffix: str, tmp_path: Path) -> None:
    write_adult(tmp_path, pack, suffix)
    train, test = datasets.adult_columns(tmp_path)
    assert tuple(train) == tuple(test) == adult.COLUMNS and len(train["age"]) == 32561 and len(test["age"]) == 16281
    assert train["age"][:3].tolist() == ["17", "18", "19"] and train["workclass"][0] == "?"
    assert train["income"][0] == "<=50K" and set(test["income"]) == {">50K"}


@pytest.mark.usefixtures("any_content")
def test_adult_with_a_row_missing_is_a_mistake(tmp_path: Path) -> None:
    write_adult(tmp_path, bytes, "", train_rows=adult.TRAIN_ROWS - 1)
    with pytest.raises(Mistake, match=r"adult\.data cannot be read.*fetch adult"):
        datasets.adult_columns(tmp_path)


# --- bundled --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["breast-cancer", "iris", "digits"])
def test_bundled_datasets_are_as_described(name: str) -> None:
    data, about = datasets.load(name, Path("nowhere"), seed=0), datasets.ABOUT[name]
    parts = data.train, data.validation, data.test
    assert tuple(len(part.inputs) for part in parts) == about.samples and data.classes == about.classes
    assert all(part.inputs.shape[1:] == about.shape and len(part.labels) == len(part.inputs) for part in parts)
    assert data.train.inputs.min() == 0 and data.train.inputs.max() == 1 and len(data.class_names or ()) == data.classes
    assert data.features is None or (len(data.features),) == about.shape
    again = datasets.load(name, Path("nowhere"), seed=9)
    assert np.array_equal(again.train.inputs, data.train.inputs), "the seed of a run does not change the split"


def test_splits_of_a_table_are_disjoint_and_complete() -> None:
    data, whole = datasets.load("breast-cancer", Path(), seed=0), load_breast_cancer().data
    rows = np.concatenate([part.inputs for part in (data.train, data.validation, data.test)])
    order = np.random.RandomState(0).permutation(569)
    low, high = whole[order[228:]].min(axis=0), whole[order[228:]].max(axis=0)
    assert np.allclose(np.sort(rows, axis=0), np.sort((whole - low) / (high - low), axis=0))


def test_without_scikit_learn_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(Mistake, match=r"pip install scikit-learn"):
        datasets.load("iris", Path(), seed=0)


# --- damage ---------------------------------------------------------------------------------------------------

ONE = np.zeros((4, 28, 28), np.uint8)
IMAGES = "mnist/train-images-idx3-ubyte.gz"
PICKLED = np.array([pickle.dumps("anything")], dtype=object)
DAMAGED = {  # named here: packed files hold the time at which they were made
    "mnist: empty": ("mnist", IMAGES, b""),
    "mnist: a page that says not found": ("mnist", IMAGES, b"<html>not found</html>"),
    "mnist: cut off": ("mnist", IMAGES, idx(ONE)[:-20]),
    "mnist: packed nothing": ("mnist", IMAGES, gzip.compress(b"")),
    "mnist: head cut off in its first bytes": ("mnist", IMAGES, gzip.compress(b"\0\0\x08")),
    "mnist: no dimensions": ("mnist", IMAGES, gzip.compress(b"\0\0\x08\x00")),
    "mnist: sizes cut off": ("mnist", IMAGES, gzip.compress(b"\0\0\x08\x03\0\0")),
    "mnist: one byte short": ("mnist", IMAGES, gzip.compress(gzip.decompress(idx(ONE))[:-1])),
    "mnist: items of eight bytes": ("mnist", IMAGES, gzip.compress(b"\0\0\x0d" + gzip.decompress(idx(ONE))[3:])),
    "mnist: more items than there can be": ("mnist", IMAGES, gzip.compress(b"\0\0\x08\x02" + b"\xff" * 8 + bytes(1))),
    "mnist: images of another size": ("mnist", IMAGES, idx(np.zeros((40, 27, 28)))),
    "mnist: fewer labels than images": ("mnist", "mnist/train-labels-idx1-ubyte.gz", idx(np.zeros(39))),
    "mnist: a label of no class": ("mnist", "mnist/train-labels-idx1-ubyte.gz", idx(np.full(40, 10))),
    "cifar-10: empty": ("cifar-10", CIFAR, b""),
    "cifar-10: cut off": ("cifar-10", CIFAR, archive(cifar_members())[:-1000]),
    "cifar-10: packed text": ("cifar-10", CIFAR, gzip.compress(b"no archive" * 100)),
    "cifar-10: no members": ("cifar-10", CIFAR, archive({})),
    "cifar-10: a record one byte short": (
        "cifar-10",
        CIFAR,
        archive({**cifar_members(), "cifar-10-batches-bin/data_batch_2.bin": bytes(3072)}),
    ),
    "cifar-10: a label of no class": (
        "cifar-10",
        CIFAR,
        archive({**cifar_members(), "cifar-10-batches-bin/data_batch_2.bin": b"\x0a" * 3073}),
    ),
    "pneumonia-mnist: empty": ("pneumonia-mnist", PNEUMONIA, b""),
    "pneumonia-mnist: cut off": ("pneumonia-mnist", PNEUMONIA, npz(pneumonia_arrays())[:-100]),
    "pneumonia-mnist: arrays missing": ("pneumonia-mnist", PNEUMONIA, npz({"train_images": ONE})),
    "pneumonia-mnist: a label of no class": (
        "pneumonia-mnist",
        PNEUMONIA,
        npz({**pneumonia_arrays(), "val_labels": np.array([[0], [2]])}),
    ),
    "pneumonia-mnist: numbers that are no bytes": (
        "pneumonia-mnist",
        PNEUMONIA,
        npz({**pneumonia_arrays(), "val_images": ONE.astype(float)}),
    ),
    "pneumonia-mnist: a pickled array": (
        "pneumonia-mnist",
        PNEUMONIA,
        npz({**pneumonia_arrays(), "val_images": PICKLED}),
    ),
    "pneumonia-mnist: a pickled dictionary": ("pneumonia-mnist", PNEUMONIA, pickle.dumps({"train_images": ONE})),
}


@pytest.mark.usefixtures("any_content")
@pytest.mark.parametrize(("name", "path", "content"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_one_sentence_that_names_it(
    name: str, path: str, content: bytes, tmp_path: Path, few_held: None
) -> None:
    write_mnist(tmp_path)
    put(tmp_path, path, content)
    with pytest.raises(Mistake, match=f"{path} cannot be read, it is damaged or was cut off.*fetch {name}"):
        datasets.load(name, tmp_path, seed=0)


@pytest.mark.parametrize("name", ["mnist", "mnist-1-7", "fashion-mnist", "cifar-10", "pneumonia-mnist"])
def test_a_missing_file_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="is not there: get it with fullcert datasets fetch .* or point --data-dir"):
        datasets.load(name, tmp_path, seed=0)


@pytest.mark.usefixtures("any_content")
def test_too_few_images_are_a_mistake(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    with pytest.raises(Mistake, match="too few images"):
        datasets.load("mnist", tmp_path, seed=0)


def test_a_file_that_is_not_the_published_one_is_not_that_dataset(tmp_path: Path, few_held: None) -> None:
    """Of the same shape under the same name: it would be trained on, and told, as MNIST."""
    write_mnist(tmp_path)
    for name in ("mnist", "mnist-1-7"):
        with pytest.raises(Mistake, match=r"idx3-ubyte\.gz is not the file that is published as mnist.*fetch mnist"):
            datasets.load(name, tmp_path, seed=0)


# --- in training ----------------------------------------------------------------------------------------------


def test_networks_take_images() -> None:
    recipe = Recipe(Options(dataset="digits", loss="ce", hidden="3"))
    assert isinstance(recipe.initial[0], torch.nn.Flatten) and recipe.initial[1].in_features == 64
    assert recipe.initial(torch.from_numpy(recipe.data.test.inputs)).shape == (359, 10)
    assert isinstance(Recipe(Options(dataset="iris", loss="ce")).initial[0], torch.nn.Linear)


# --- the published files --------------------------------------------------------------------------------------


@needs("mnist")
def test_published_mnist() -> None:
    data = datasets.load("mnist-1-7", DATA, seed=0)
    assert len(data.train.labels) + len(data.validation.labels) == 6742 + 6265 and len(data.validation.labels) == 1000
    assert np.bincount(data.test.labels).tolist() == [1135, 1028]
    assert data.train.inputs.shape[1:] == datasets.ABOUT["mnist"].shape
    train, test = mnist.read_mnist(DATA)
    assert train[0].shape == (60000, 1, 28, 28) and np.bincount(train[1])[[0, 6]].tolist() == [5923, 5918]
    assert test[0].shape == (10000, 1, 28, 28) and np.bincount(test[1])[[0, 6]].tolist() == [980, 958]


@needs("adult")
def test_published_adult() -> None:
    train, test = datasets.adult_columns(DATA)
    assert np.unique(train["income"], return_counts=True)[1].tolist() == [24720, 7841]
    assert np.unique(test["income"], return_counts=True)[1].tolist() == [12435, 3846]
    assert train["age"].astype(int).min() == 17 and (train["workclass"] == "?").sum() == 1836
    assert len(np.unique(train["native-country"])) == 42


@needs("pneumoniamnist")
def test_published_pneumonia() -> None:
    data, about = datasets.load("pneumonia-mnist", DATA, seed=0), datasets.ABOUT["pneumonia-mnist"]
    assert tuple(len(part.labels) for part in (data.train, data.validation, data.test)) == about.samples
    assert np.bincount(data.test.labels).tolist() == [234, 390]
    copy = pneumonia.FILE.copy(DATA)
    assert copy and copy.intact(DATA)


@needs("cifar-10")
def test_published_cifar() -> None:
    train, test = cifar.read_cifar(DATA)
    assert np.bincount(train[1]).tolist() == [5000] * 10 and np.bincount(test[1]).tolist() == [1000] * 10


@needs("fashion-mnist")
def test_published_fashion_mnist() -> None:
    train, test = mnist.read_fashion_mnist(DATA)
    assert np.bincount(train[1]).tolist() == [6000] * 10 and np.bincount(test[1]).tolist() == [1000] * 10
