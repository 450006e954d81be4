"""What a run rests on, as named digests: two runs are of one training only if all of these are the same.

    people.csv and other files of the user   their bytes           samples     the arrays they became, split by split
    net.py, and what it imports beside it    their bytes           options     all but where things lie
    encoding                                 what columns.json says

They are written into the folder before the first step (identity.json), with the versions of what computes, and into the
certificate, under record["run"]. Whoever goes on with a run, takes over a part of it, or asks it about its data makes
them anew and compares (`require_begun`, `require_now`, `require_one`); whoever reads its options or its columns gets
them from `opened`, which refuses those of another run.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from boundflow.errors import BoundFlowError
from boundflow.optimum.load_either_way import record_of
from boundflow.same_program.identity import differences, of_tensors, of_value, versions
from fullcert.data import tables
from fullcert.data.datasets import Dataset, Split
from fullcert.experiment import runs
from fullcert.experiment.options import Options, read_options, resolve
from fullcert.experiment.tasks import Task
from fullcert.networks import model_files
from fullcert.system.mistakes import Mistake

Identity = dict[str, str]
KEY = "run"  # in the record of a certificate
FORMAT = 1
# where things lie and what a machine has, which a run can have otherwise and be the same
PLACES = frozenset(("data", "test_data", "trusted", "data_dir", "device", "memory"))
FILES = {"data": "table", "test_data": "table of test rows", "trusted": "trusted table"}
CODE, VERSION, OPTIONS, ENCODING, PART = "code in ", "version of ", "options", "encoding of columns", "part of the data"
OLD = "does not say what it rests on, like those of earlier versions: train it again"
AFRESH = "put back what it was begun with, or leave --resume out to start afresh"
AGAIN = "put back what it was trained with, or train again"
OTHERWISE = "put back what it was trained with, or use another --out"


def of(options: Options, task: Task, code: Mapping[str, str]) -> Identity:
    """What a run of these options rests on, with the data it has read and the files that made its network."""
    return {
        **{FILES[name]: digest for name, digest in task.files.items()},
        **of_code(code),
        OPTIONS: of_options(asdict(options)),
        **of_samples(task.data),
        **({} if task.trusted is None else {"trusted samples": _of_split(task.trusted)}),
        **({} if task.encoding is None else {ENCODING: of_encoding(task.encoding.as_data())}),
    }


def of_samples(data: Dataset) -> Identity:
    splits = {"training": data.train, "validation": data.validation, "test": data.test}
    return {f"{name} samples": _of_split(split) for name, split in splits.items()}


def of_code(code: Mapping[str, str]) -> Identity:
    return {f"{CODE}{name}": digest for name, digest in code.items()}


def of_options(values: Mapping[str, Any]) -> str:
    """All options but where things lie, as a file has them or as they are used; none is as if it were not there."""
    given = {name: value for name, value in values.items() if value is not None}
    kept = {name: value for name, value in given.items() if name not in PLACES}
    kept |= {name: "a file" for name in FILES if name in given}
    if model_files.is_file(kept.get("model", "")):
        kept["model"] = f"a file:{kept['model'].rpartition(':')[2]}"
    return of_value(runs.as_json(dict(sorted(kept.items()))))


def of_encoding(data: Mapping[str, Any]) -> str:
    return of_value(runs.as_json(dict(data)))


def _of_split(split: Split) -> str:
    return of_tensors(torch.from_numpy(split.inputs), torch.from_numpy(split.labels))


def of_choice(options: Options, now: Identity) -> str:
    """What was tuned, and on which trusted table."""
    return of_value((options.lr, options.steps, options.epochs, now.get(FILES["trusted"])))[:16]


def require_choice(options: Options, now: Identity) -> None:
    """Refuse options that say that they were tuned, with other steps, another rate or another trusted table."""
    digest = options.tuned_on.partition(":")[2]
    if digest and digest != of_choice(options, now):
        raise Mistake(
            "--tuned-on names other steps, another learning rate or another trusted table than these: tune again, or "
            "say --tuned-on declared"
        )


# --- comparing --------------------------------------------------------------------------------------------------------


def require(
    then: Mapping[str, str],
    now: Mapping[str, str],
    what: str,
    advice: str,
    options: Options,
    but: Collection[str] = (),
) -> None:
    """Refuse ``now`` where it is not what was ``then``: ``what another people.csv: advice``.

    What is told is the cause: where a file is another one, so are the samples it became.
    """
    found = [name.partition(" (")[0] for name in differences(then, now)]
    found = [name for name in found if name not in but]
    if found:
        causes = [name for name in found if name.startswith((*FILES.values(), CODE, VERSION, OPTIONS))]
        told = [_told(name, options) for name in causes or found]
        listed = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
        raise Changed(f"{what} {listed}: {advice}")


def _told(name: str, options: Options) -> str:
    place = next((getattr(options, field) for field, words in FILES.items() if words == name), None)
    place = model_files.place_of(options.model) if name == CODE else place
    if name.endswith(("samples", OPTIONS)):
        return f"other {name}"
    return f"another {place or name.removeprefix(CODE)}"


class Changed(Mistake):
    """What is here now is not what a run rests on."""


class Unsaid(Mistake):
    """A run of an earlier version, which did not write down what it rests on."""


class Kept(NamedTuple):
    """What a finished run says of itself: where it is, its options, and what it rests on."""

    run: Path
    options: Options
    identity: Identity


def opened(run: Path) -> Kept:
    """The options of a finished run, and what it rests on; refused where its files are not of one run."""
    paths = runs.certificates(run)
    found = [identity_of(path) for path in paths]
    said = read_options(runs.existing(run, runs.OPTIONS))
    options = resolve({}, said)
    for path, one in zip(paths, found, strict=True):
        require(found[0], one, f"{path} is of a run with", f"put back the {path.name} of this run", options, {PART})
    now = {OPTIONS: of_options(said)}
    columns = run / runs.COLUMNS
    if columns.exists():
        try:
            now[ENCODING] = of_encoding(runs.read_json(columns))
        except (ValueError, RecursionError):
            raise Mistake(f"{columns} is damaged: it does not say how columns become inputs") from None
    then = {name: value for name, value in found[0].items() if name in (OPTIONS, ENCODING)}
    files = {OPTIONS: runs.OPTIONS, ENCODING: runs.COLUMNS}
    for name in differences(then, now):
        file = run / files[name.partition(" (")[0]]
        raise Mistake(f"{file} is not that of the certificate beside it: put back the one it was trained with")
    return Kept(run, options, found[0])


def identity_of(path: Path) -> Identity:
    """What a certificate says that its run rests on."""
    try:
        found = record_of(path).get(KEY)
    except BoundFlowError as error:
        raise Mistake(" ".join(str(error).split())) from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Unsaid(f"{path} {OLD}")
    return found


def require_now(kept: Kept, now: Identity, but: Collection[str] = ()) -> None:
    """Refuse to ask a run about data, or with code, that are not those it was trained with."""
    # its options are those of its file, which was looked at when it was opened
    require(kept.identity, now, f"{kept.run} was trained with", AGAIN, kept.options, {PART, OPTIONS, *but})


@contextmanager
def loading(then: Identity, options: Options, what: str, advice: str) -> Iterator[None]:
    """Of a file that has changed since then it is this that is told, and not what is wrong with it now."""
    try:
        yield
    except Mistake:
        files = {name: value for name, value in then.items() if name in FILES.values()}
        require(files, of_files(options), what, advice, options)
        raise


def loading_again(kept: Kept) -> AbstractContextManager[None]:
    return loading(kept.identity, kept.options, f"{kept.run} was trained with", AGAIN)


def resuming(run: Path, options: Options) -> AbstractContextManager[None]:
    return loading(begun(run, AFRESH), options, f"the run in {run} was begun with", AFRESH)


def require_code(kept: Kept) -> None:
    """Refuse code that is not that of the run, before it is run."""
    then = code_of(kept)
    now = model_files.code_now(kept.options.model, [name.removeprefix(CODE) for name in then])
    require_now(kept._replace(identity=then), of_code(now))


def code_of(kept: Kept) -> Identity:
    return {name: value for name, value in kept.identity.items() if name.startswith(CODE)}


def require_one(first: Kept, other: Kept) -> None:
    """Refuse two runs that are not of the same data and code: their options say in what their threats differ."""
    what, advice = f"{other.run} was trained with", f"join runs of the data and the code of {first.run}"
    require(first.identity, other.identity, what, advice, other.options, {PART, OPTIONS, ENCODING})


# --- the folder -------------------------------------------------------------------------------------------------------


def write(run: Path, now: Identity) -> None:
    """Write down what a run rests on, before its first step."""
    said = {"format": FORMAT, "rests_on": now, "versions": versions()}
    runs.write(run / runs.IDENTITY, runs.as_json(said).encode())


def begun(run: Path, advice: str) -> Identity:
    """What a run was begun with, versions included."""
    path = run / runs.IDENTITY
    if not path.is_file():
        raise Unsaid(f"the run in {run} does not say what it was begun with, like those of earlier versions: {advice}")
    said = runs.read_json(path)
    then, computed = said.get("rests_on"), said.get("versions")
    if said.get("format") != FORMAT or not isinstance(then, dict) or not isinstance(computed, dict):
        raise Mistake(f"{path} is damaged or of another version: {advice}")
    return {name: str(value) for name, value in {**then, **of_versions(computed)}.items()}


def of_versions(computed: Mapping[str, Any]) -> Identity:
    return {f"{VERSION}{name}": value for name, value in computed.items()}


def require_begun(run: Path, now: Identity, options: Options, advice: str = AFRESH) -> None:
    """Refuse to go on with a run that was begun with other data, code, options or versions."""
    is_now = {**now, **of_versions(versions())}
    require(begun(run, advice), is_now, f"the run in {run} was begun with", advice, options)


def require_finished(run: Path, now: Identity, options: Options) -> None:
    """Refuse to take a finished run for one of this data, this code, these options and these versions."""
    require_begun(run, now, options, OTHERWISE)
    require(opened(run).identity, now, f"{run} was trained with", OTHERWISE, options, {PART})


def require_sources(run: Path, options: Options, samples: Identity | None) -> None:
    """The same of what can be told without reading a table, for one run of many.

    ``samples`` are those of a built-in dataset.
    """
    then = begun(run, OTHERWISE)
    code = [name.removeprefix(CODE) for name in then if name.startswith(CODE)]
    now = of_files(options) | of_code(model_files.code_now(options.model, code)) | (samples or {})
    told = (*FILES.values(), CODE, VERSION, *(samples or ()))
    compared = {name: value for name, value in then.items() if name.startswith(told)}
    now |= of_versions(versions())
    require(compared, now, f"the run in {run} was begun with", OTHERWISE, options)
    if (run / runs.METRICS).is_file():
        require(
            then, opened(run).identity | of_versions(versions()), f"{run} holds a run of", OTHERWISE, options, {PART}
        )


def of_files(options: Options) -> Identity:
    """The bytes of the user's files."""
    paths = {words: getattr(options, name) for name, words in FILES.items() if getattr(options, name) is not None}
    return {words: tables.digest(Path(path)) for words, path in paths.items()}
