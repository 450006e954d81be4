"""`fullcert datasets`: what is here, downloads that resume and are checked, one sentence for all that goes wrong."""

import gzip
import hashlib
import json
import os
import resource
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from commands import Command, Result

from fullcert.data.datasets import ABOUT, About, Copy, File, load
from fullcert.data.datasets.fetching import fetch, part_of
from fullcert.data.datasets.holdings import inspect, listing
from fullcert.system.mistakes import Mistake

CONTENT = bytes(range(256)) * 4000  # about a megabyte: several blocks
DATA = Path(os.environ.get("BOUNDFLOW_DATA", "data"))


@pytest.fixture
def fullcert(command: Command) -> Command:
    """`fullcert datasets`, run in this process."""
    return lambda *arguments: command("datasets", *arguments)


def sentence(result: Result) -> str:
    """The one sentence of a mistake; progress bars may stand above it."""
    assert result.code == 2 and "Traceback" not in result.err
    lines = [line for line in result.err.splitlines() if line.startswith("fullcert: ")]
    assert len(lines) == 1 and result.err.rstrip().endswith(lines[0])
    return lines[0]


# --- a publisher ----------------------------------------------------------------------------------------------


class Publisher(BaseHTTPRequestHandler):
    """Serves CONTENT, honestly or otherwise, as the first part of the path says."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        begun, way = self.headers.get("Range"), self.path.strip("/").partition("/")[0]
        self.asked.append((way, begun))
        start = int(begun.removeprefix("bytes=").rstrip("-")) if begun and way != "deaf" else 0
        content = {"other": CONTENT[::-1], "short": CONTENT[:1000], "endless": CONTENT + CONTENT}.get(way, CONTENT)
        if way == "gone":
            self.send_error(404)
        elif start > len(content):
            self.send_error(416)
        else:
            self.answer(way, content, start, ranged=begun is not None and way != "deaf")

    def answer(self, way: str, content: bytes, start: int, ranged: bool) -> None:
        self.send_response(206 if ranged else 200)
        if ranged:
            shown = 0 if way == "confused" else start
            self.send_header("Content-Range", f"bytes {shown}-{len(content) - 1}/{len(content)}")
        if way != "endless":
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : start + 300_000] if way == "cut" else content[start:])

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a publisher on this machine."""
    monkeypatch.setenv("no_proxy", "*")
    Publisher.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


Publish = Callable[..., Path]


@pytest.fixture
def publish(publisher: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Publish:
    """Make a dataset called `book` of one file that can be had in these ways; gives the place it will have on disk."""

    def make(*ways: str, digest: str = "sha256", others: tuple[Copy, ...] = ()) -> Path:
        copy = Copy("book/book.bin", len(CONTENT), f"{digest}:{hashlib.new(digest, CONTENT).hexdigest()}")
        file = File(copy, tuple(way if ":" in way else f"{publisher}/{way}/book.bin" for way in ways), others)
        monkeypatch.setitem(ABOUT, "book", About((1, 1, 1), (1,), 2, "none", (file,)))
        return tmp_path / "book" / "book.bin"

    return make


def put_whole(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(CONTENT)


# --- fetch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["sha256", "md5"])
def test_a_file_is_fetched_once(fullcert: Command, publish: Publish, tmp_path: Path, digest: str) -> None:
    target = publish("good", digest=digest)
    result = fullcert("fetch", "book", "--data-dir", tmp_path)
    assert result.code == 0 and "fetched" in result.out and "1.0/1.0 MB" in result.err
    assert target.read_bytes() == CONTENT and os.listdir(target.parent) == ["book.bin"]
    result = fullcert("fetch", "book", "book", "--data-dir", tmp_path, "--json", "-", "--quiet")
    (row,) = json.loads(result.out)["files"]
    assert row["state"] == "here already" and row["address"] is None and result.err == ""
    assert Publisher.asked == [("good", None)]


def test_a_download_that_broke_off_is_resumed(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    target = publish("cut")
    for kept in (300_000, 600_000, 900_000):
        said = sentence(fullcert("fetch", "book", "--data-dir", tmp_path))
        assert f"broke off after {kept:,} of 1,024,000 bytes" in said and "run the command again" in said
        assert not target.exists() and part_of(target).read_bytes() == CONTENT[:kept]
    assert fullcert("fetch", "book", "--data-dir", tmp_path).code == 0
    assert target.read_bytes() == CONTENT and not part_of(target).exists()
    assert [begun for _, begun in Publisher.asked] == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_another_mirror_goes_on_where_the_first_broke_off(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    target = publish("gone", "cut", "good")
    result = fullcert("fetch", "book", "--data-dir", tmp_path, "--json", tmp_path / "answer.json", "--quiet")
    assert result == (0, "", "") and target.read_bytes() == CONTENT
    assert Publisher.asked == [("gone", None), ("cut", None), ("good", "bytes=300000-")]
    (row,) = json.loads((tmp_path / "answer.json").read_text())["files"]
    assert row["address"].endswith("/good/book.bin") and row["bytes"] == len(CONTENT)


@pytest.mark.parametrize(
    ("begun", "asked"),
    [
        (b"", [None]),
        (b"not the beginning", ["bytes=17-", None]),
        (CONTENT, []),
        (CONTENT + b"more", [None]),
        (CONTENT[::-1], [None]),
    ],
)
def test_what_was_there_before_is_checked(
    fullcert: Command, publish: Publish, tmp_path: Path, begun: bytes, asked: list[str | None]
) -> None:
    target = publish("good")
    target.parent.mkdir()
    part_of(target).write_bytes(begun)
    assert fullcert("fetch", "book", "--data-dir", tmp_path, "--quiet") == (0, "", "")
    assert target.read_bytes() == CONTENT and [begun for _, begun in Publisher.asked] == asked


def test_a_server_that_cannot_resume_starts_again(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    target = publish("deaf")
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT[:5000])
    assert fullcert("fetch", "book", "--data-dir", tmp_path).code == 0 and target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("other", "digest is not the published one"),
        ("short", "has 1,000 bytes where 1,024,000 are published"),
        ("endless", "sent more than the 1,024,000 bytes"),
        ("gone", "answered 404"),
        ("http://127.0.0.1:9/book.bin", "127.0.0.1:9 cannot be reached (Connection refused)"),
        ("http://nobody.invalid/book.bin", "nobody.invalid cannot be reached"),
    ],
)
def test_a_download_that_fails_leaves_nothing(
    fullcert: Command, publish: Publish, tmp_path: Path, way: str, words: str
) -> None:
    target = publish(way)
    assert words in sentence(fullcert("fetch", "book", "--data-dir", tmp_path))
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize(("way", "words"), [("confused", "other bytes"), ("short", "answered 416"), ("gone", "404")])
def test_what_can_be_resumed_is_kept(fullcert: Command, publish: Publish, tmp_path: Path, way: str, words: str) -> None:
    target = publish(way)
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT[:5000])
    assert words in sentence(fullcert("fetch", "book", "--data-dir", tmp_path))
    assert part_of(target).read_bytes() == CONTENT[:5000] and not target.exists()


def test_every_mirror_that_failed_is_named(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    publish("gone", "other", "http://127.0.0.1:9/book.bin")
    said = sentence(fullcert("fetch", "book", "--data-dir", tmp_path, "--quiet"))
    assert "404" in said and "digest" in said and "127.0.0.1:9" in said


def test_a_damaged_file_is_replaced_only_by_a_good_one(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    target = publish("other")
    target.parent.mkdir()
    target.write_bytes(b"damaged")
    sentence(fullcert("fetch", "book", "--data-dir", tmp_path))
    assert target.read_bytes() == b"damaged"
    publish("good")
    assert fullcert("fetch", "book", "--data-dir", tmp_path).code == 0 and target.read_bytes() == CONTENT


def test_a_copy_that_will_do_is_not_fetched_again(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    other = Copy("book/book.gz", len(CONTENT), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", gzipped=True)
    target = publish("good", others=(other,))
    target.parent.mkdir()
    (target.parent / "book.gz").write_bytes(gzip.compress(CONTENT))
    assert fullcert("fetch", "book", "--data-dir", tmp_path).code == 0 and Publisher.asked == []
    (target.parent / "book.gz").write_bytes(gzip.compress(CONTENT)[:-9])
    assert fullcert("fetch", "book", "--data-dir", tmp_path).code == 0 and target.read_bytes() == CONTENT


def test_a_full_disk(fullcert: Command, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = publish("good")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
        said = sentence(fullcert("fetch", "book", "--data-dir", tmp_path))
    assert "has room for 1,000 bytes, and 1,024,000 are needed" in said and os.listdir(target.parent) == []


def test_a_write_that_fails_is_one_sentence_and_can_be_resumed(
    fullcert: Command, publish: Publish, tmp_path: Path
) -> None:
    target = publish("good")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))  # the disk takes no more than this
    try:
        said = sentence(fullcert("fetch", "book", "--data-dir", tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"cannot write {target}: File too large" in said and not target.exists()
    kept = part_of(target).read_bytes()
    assert CONTENT.startswith(kept) and 0 < len(kept) <= 400_000
    assert fullcert("fetch", "book", "--data-dir", tmp_path).code == 0 and target.read_bytes() == CONTENT


def test_two_processes_do_not_write_one_file(publish: Publish, tmp_path: Path) -> None:
    target = publish("good")
    (file,) = ABOUT["book"].files

    def meanwhile(done: int) -> None:
        with pytest.raises(Mistake, match="by another process"):
            fetch(file, tmp_path, lambda _: None)

    fetch(file, tmp_path, meanwhile)
    assert target.read_bytes() == CONTENT and os.listdir(target.parent) == ["book.bin"]


def test_datasets_without_files_need_no_network(fullcert: Command, tmp_path: Path) -> None:
    result = fullcert("fetch", "two-moons", "iris", "--data-dir", tmp_path, "--json", "-")
    assert result.code == 0 and json.loads(result.out)["files"] == [] and os.listdir(tmp_path) == []


def test_all_names_are_checked_before_the_first_download(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    publish("good")
    for name in ("nothing", "mnist-4-4", "book-1-2"):
        assert name in sentence(fullcert("fetch", "book", name, "--data-dir", tmp_path))
    assert "NAME" in sentence(fullcert("fetch", "--data-dir", tmp_path))
    assert "answer" in sentence(fullcert("fetch", "book", "--json", tmp_path / "absent" / "answer.json"))
    assert Publisher.asked == [] and os.listdir(tmp_path) == []


# --- permissions ----------------------------------------------------------------------------------------------


def as_nobody(action: Callable[[], object]) -> str:
    """The mistake of an action done by a user who may not do everything."""
    if os.getuid():
        with pytest.raises(Mistake) as mistake:
            action()
        return str(mistake.value)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgid(65534)
            os.setuid(65534)
            action()
        except Mistake as mistake:
            os.write(theirs, str(mistake).encode())
        except BaseException as bug:
            os.write(theirs, f"a bug: {bug!r}".encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as said:
        return said.read()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can reach; those of pytest are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written(publish: Publish, shared: Path) -> None:
    publish("good")
    (file,), target = ABOUT["book"].files, shared / "book" / "book.bin"
    shared.chmod(0o555)
    assert f"cannot write {target}: Permission denied" in as_nobody(lambda: fetch(file, shared, print))
    shared.chmod(0o755)
    target.parent.mkdir()
    target.parent.chmod(0o555)
    assert f"cannot write {target}: Permission denied" in as_nobody(lambda: fetch(file, shared, print))
    assert os.listdir(target.parent) == []
    target.parent.chmod(0o755)


def test_a_file_or_folder_that_cannot_be_read(publish: Publish, shared: Path) -> None:
    publish("good")
    target = shared / "book" / "book.bin"
    put_whole(target)
    target.chmod(0)
    assert f"{target} cannot be read: Permission denied" in as_nobody(lambda: inspect([], shared))
    target.parent.chmod(0)
    assert f"{target} cannot be read: Permission denied" in as_nobody(lambda: listing(shared))
    target.parent.chmod(0o755)


def test_a_dataset_that_cannot_be_read(shared: Path) -> None:
    images = shared / "mnist" / "train-images-idx3-ubyte.gz"
    put_whole(images)
    images.chmod(0)
    assert f"{images} cannot be read: Permission denied" in as_nobody(lambda: load("mnist-1-7", shared, 0))


# --- list, verify, where --------------------------------------------------------------------------------------


def test_the_list(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    target = publish("good")
    result = fullcert("list", "--data-dir", tmp_path)
    assert result.code == 0 and result.err == ""
    assert all(
        name in result.out for name in ("two-moons", "mnist[-A-B]", "cifar-10[-A-B]", "adult", "CC BY 4.0", "MIT")
    )
    put_whole(target)
    result = fullcert("list", "--data-dir", tmp_path, "--json", "-")
    rows = {row["name"]: row for row in json.loads(result.out)["datasets"]}
    assert rows["book"]["here"] and rows["two-moons"]["here"] and not rows["mnist"]["here"]
    assert rows["mnist"]["pairs"] and rows["mnist"]["shape"] == [1, 28, 28] and rows["mnist"]["digest"] == "sha256"
    assert "mnist" in result.err, "the table goes to standard error"
    assert rows.keys() == ABOUT.keys()


def test_without_scikit_learn_its_datasets_are_not_here(
    fullcert: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullcert.data.datasets.holdings.find_spec", lambda _: None)
    result = fullcert("list", "--data-dir", tmp_path, "--json", "-", "--quiet")
    assert {row["name"]: row["here"] for row in json.loads(result.out)["datasets"]}["iris"] is False


def test_verify(fullcert: Command, publish: Publish, tmp_path: Path) -> None:
    target = publish("good")
    assert fullcert("verify", "--data-dir", tmp_path).code == 0, "what is not here is not checked"
    assert f"{target} is not there" in sentence(fullcert("verify", "book", "--data-dir", tmp_path))
    put_whole(target)
    result = fullcert("verify", "book", "--data-dir", tmp_path)
    assert result.code == 0 and "intact" in result.out and result.err == ""
    for damaged in (CONTENT[:-1], CONTENT[::-1], b""):
        target.write_bytes(damaged)
        result = fullcert("verify", "--data-dir", tmp_path, "--json", "-", "--quiet")
        assert f"not as published: {target}; get it again with fullcert datasets fetch book" in sentence(result)
        assert [row["state"] for row in json.loads(result.out)["files"]] == ["damaged"]


def test_where(fullcert: Command, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = publish("good")
    monkeypatch.setenv("BOUNDFLOW_DATA", str(tmp_path))
    result = fullcert("where")
    assert result.code == 0 and str(tmp_path) in result.out and "no files" in result.out
    put_whole(target)
    part_of(target).write_bytes(b"begun")
    answer = json.loads(fullcert("where", "--json", "-", "--quiet").out)
    assert answer["folder"] == str(tmp_path) and answer["exists"]
    assert [(row["path"], row["bytes"]) for row in answer["files"]] == [
        ("book/book.bin", len(CONTENT)),
        ("book/book.bin.part", 5),
    ]
    monkeypatch.setenv("BOUNDFLOW_DATA", str(tmp_path / "absent"))
    assert json.loads(fullcert("where", "--json", "-", "--quiet").out)["exists"] is False


@pytest.mark.parametrize("name", ["list", "fetch", "verify", "where"])
def test_help_ends_with_an_example(fullcert: Command, name: str) -> None:
    result = fullcert(name, "--help")
    assert result.code == 0 and f"datasets {name}" in result.out.strip().splitlines()[-1]
    assert all(flag in result.out for flag in ("--data-dir", "BOUNDFLOW_DATA", "--json", "--quiet"))


def test_without_a_command_there_is_help(fullcert: Command) -> None:
    result = fullcert()
    assert result.code == 0 and all(command in result.out for command in ("list", "fetch", "verify", "where"))


def test_the_sources_are_complete() -> None:
    files = {file for about in ABOUT.values() for file in about.files}  # mnist-32 is made of the files of mnist
    paths = [copy.path for file in files for copy in (file.published, *file.others)]
    assert len(paths) == len(set(paths)) == 18
    for about in ABOUT.values():
        for file in about.files:
            assert file.addresses and all(address.startswith(("https://", "http://")) for address in file.addresses)
            name = file.published.path.rpartition("/")[2]
            assert all(address.partition("?")[0].endswith(f"/{name}") for address in file.addresses)
            assert all(len(copy.digest) == 71 and copy.size > 0 for copy in (file.published, *file.others))


@pytest.mark.skipif(not (DATA / "mnist").exists(), reason="set BOUNDFLOW_DATA to a folder with MNIST")
def test_the_published_files_are_intact(fullcert: Command) -> None:
    result = fullcert("verify", "--data-dir", DATA, "--json", "-", "--quiet")
    assert result.code == 0 and {row["state"] for row in json.loads(result.out)["files"]} == {"intact"}
