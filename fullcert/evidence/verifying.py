"""What can be checked about a run, one check after the other. Code of the run is run on request alone.

    format      the certificate is a file that this version reads
    digest      it is as it was written; whoever changes it on purpose can write another digest
    content     what it says can be: bounds in order, the plain model between them, rows of known symbols
    network     the layers that it describes give the answers that it holds; a network of your own is not made here
    parts       options and columns are those that the certificate was made with, and members are of one run
    members     of a vote: all certificates that its list names are there, and each member is one training
    results     the numbers beside the certificate are about it, and contradict neither it nor each other
    signature   the holder of a key has signed these very files, and there is none beside them
    rerun, trainings, balls     evidence that does not rest on the file (`retraining.py`), where it was asked for

Each is held, failed or not done. A check that rests on one that failed is not done.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import boundflow as bf
from boundflow.files import certificate_files, sealed_files
from boundflow.optimum import optimum_files
from boundflow.optimum.load_either_way import is_at_optimum
from fullcert.evidence import retraining, signing
from fullcert.evidence.retraining import Skip
from fullcert.experiment import identity, runs
from fullcert.results import voting
from fullcert.results.beside import Beside
from fullcert.system.mistakes import Mistake

HELD, FAILED, NOT_DONE = "held", "failed", "not done"


@dataclass(frozen=True)
class Check:
    """One thing that was to be checked, and a sentence about what came of it."""

    check: str
    result: str
    detail: str


@dataclass(frozen=True)
class Asked:
    """Which evidence is asked for: the training again, and so many trainings of other datasets."""

    rerun: bool = False
    trainings: int = 0
    balls: int = 0
    seed: int = 0
    elsewhere: bool = False
    run_code: bool = False
    device: str | None = None

    @property
    def anything(self) -> bool:
        return bool(self.rerun or self.trainings or self.balls)


NOTHING = Asked()


def checks(
    run: Path, key: Path | None = None, asked: Asked = NOTHING, progress: retraining.Progress = lambda what: None
) -> list[Check]:
    """Everything that can be checked; a signature only with a key, and evidence as it is asked for."""
    signed = signature(run, key)  # first: it says at the end whether what was read since is what was signed
    paths = runs.certificates(run)
    found = of_members(paths) if voting.votes(run) else of_certificate(paths[0])
    found.append(parts(run, found))
    found += [listed(run, found)] if voting.votes(run) else []
    found += [results(run, found), signed()]
    if asked.anything:
        found += gathered(run, asked, all_held(found), progress)
    return [signed() if check.check == "signature" else check for check in found]


def gathered(run: Path, asked: Asked, sound: bool, progress: retraining.Progress) -> list[Check]:
    """The evidence that is asked for; none of a file that does not hold."""
    wanted: dict[str, Callable[[Any], str]] = {}
    if asked.rerun:
        wanted["rerun"] = lambda recipe: retraining.rerun(
            run, recipe, asked.elsewhere or asked.device is not None, progress
        )
    if asked.trainings:
        wanted["trainings"] = lambda recipe: retraining.trainings(run, recipe, asked.trainings, asked.seed, progress)
    if asked.balls:
        wanted["balls"] = lambda recipe: retraining.balls(run, recipe, asked.balls, asked.seed, progress)
    if not sound:
        return [Check(name, NOT_DONE, "a check before it failed") for name in wanted]
    try:
        recipe = retraining.recipe_of(run, asked.run_code, asked.device)
    except Skip as skip:
        return [Check(name, NOT_DONE, str(skip)) for name in wanted]
    except retraining.Refuted as error:
        return [Check(name, FAILED, str(error)) for name in wanted]
    return [_outcome(name, check, recipe) for name, check in wanted.items()]


def _outcome(name: str, check: Callable[[Any], str], recipe: Any) -> Check:
    try:
        return Check(name, HELD, check(recipe))
    except retraining.Refuted as error:
        return Check(name, FAILED, str(error))
    except (Skip, retraining.NotTrained) as skip:
        return Check(name, NOT_DONE, str(skip))


def all_held(found: list[Check]) -> bool:
    """Whether nothing failed."""
    return all(check.result != FAILED for check in found)


CODES = {"rerun": 3, "trainings": 4, "balls": 5}  # exit codes of evidence that failed; of anything else it is 2
UNDONE = 6  # evidence was asked for that could not be gathered


def outcome(found: list[Check]) -> tuple[int, Check | None]:
    """The exit code, and the check it is about: the first that failed, or else evidence that could not be gathered."""
    for check in found:
        if check.result == FAILED:
            return CODES.get(check.check, 2), check
    for check in found:
        if check.result == NOT_DONE and check.check in CODES:
            return UNDONE, check
    return 0, None


def as_data(run: Path, found: list[Check]) -> dict[str, Any]:
    code, _ = outcome(found)
    return {"run": str(run), "held": all_held(found), "code": code, "checks": [asdict(check) for check in found]}


def of_certificate(path: Path) -> list[Check]:
    """The checks of a file, each made only if those before it held."""
    found: list[Check] = []
    for name, check in CHECKS.items():
        if not all_held(found):
            found.append(Check(name, NOT_DONE, "a check before it failed"))
            continue
        try:
            found.append(Check(name, HELD, check(path)))
        except bf.BoundFlowError as error:
            found.append(Check(name, FAILED, " ".join(str(error).split())))
        except Skip as skip:
            found.append(Check(name, NOT_DONE, str(skip)))
    return found


def parts(run: Path, found: list[Check]) -> Check:
    """Whether the files of a run belong together."""
    if not all_held(found):
        return Check("parts", NOT_DONE, "a check before it failed")
    try:
        kept = identity.opened(run)
    except identity.Unsaid as unsaid:
        return Check("parts", NOT_DONE, str(unsaid))
    except Mistake as mistake:
        return Check("parts", FAILED, str(mistake))
    columns = " and columns" if identity.ENCODING in kept.identity else ""
    return Check("parts", HELD, f"options{columns} are those that the certificate was made with")


def of_members(paths: list[Path]) -> list[Check]:
    """The checks of all certificates of a vote; the first that fails is named."""
    each = {path.name: of_certificate(path) for path in paths}
    found = []
    for place, name in enumerate(CHECKS):
        failed = {path: checks[place] for path, checks in each.items() if checks[place].result == FAILED}
        first = next(iter(each.values()), [Check(name, FAILED, "there are no certificates of members")] * len(CHECKS))
        told = first[place]
        if failed:
            path, told = next(iter(failed.items()))
            found.append(Check(name, FAILED, f"{path}: {told.detail}"))
        else:
            found.append(Check(name, told.result, f"each of {len(each)} certificates of members: {told.detail}"))
    return found


def listed(run: Path, found: list[Check]) -> Check:
    """Whether the members of a vote are those of its list."""
    if not all_held(found) or any(check.result == NOT_DONE for check in found):
        return Check("members", NOT_DONE, "it rests on checks that did not hold, or that were not done")
    try:
        ensemble = voting.opened(run)
    except Mistake as mistake:
        return Check("members", FAILED, str(mistake))
    assert ensemble is not None
    return Check("members", HELD, f"{len(ensemble.members)} members, {ensemble.samples} samples, each one training")


def has_format(path: Path) -> str:
    return f"a certificate of format {_said(path)[0]['format']}"


def has_digest(path: Path) -> str:
    sealed_files.require_digest(path, *_said(path))
    return "as it was written, unless somebody who changed it wrote another digest"


def _said(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    tensors, text = sealed_files.read(path, certificate_files.KEY, certificate_files.WHAT)
    formats = (*certificate_files.READABLE, optimum_files.FORMAT)
    return sealed_files.said(path, text, formats, certificate_files.ADVICE), tensors


def has_content(path: Path) -> str:
    if is_at_optimum(path):
        samples = optimum_files.opened(path).record["samples"]
        return f"the data of {samples:,} samples, and given weights; the network check computes the inclusion again"
    held = certificate_files.opened(path)
    void = held.record.get("void_at_step")
    if void is not None:
        return f"its bounds became void at step {void}: it certifies nothing"
    count = sum(name.startswith("bounds.") for name in held.tensors)
    return f"{count} sets, bounds in order, the plain model between them"


def has_network(path: Path) -> str:
    if is_at_optimum(path):
        found = bf.load(path)
        assert isinstance(found, bf.OptimumCertificate)
        if not found.knows:
            return "the inclusion was computed again, and says nothing: the ridge is too weak"
        return "the features give the answers that it holds, and the inclusion was computed again from its data"
    if certificate_files.opened(path).architecture is None:
        raise Skip("its network is code of the user, which is not run here: fullcert certify runs and compares it")
    bf.load(path)
    return "its layers give the answers that it holds"


CHECKS: dict[str, Callable[[Path], str]] = {
    "format": has_format,
    "digest": has_digest,
    "content": has_content,
    "network": has_network,
}


def results(run: Path, certificate: list[Check]) -> Check:
    """Whether the numbers beside a certificate are about it, and fit together; not whether they are its answers."""
    if not all_held(certificate):
        return Check("results", NOT_DONE, "a check before it failed")
    if not (run / runs.EVALUATION).is_file():
        return Check("results", NOT_DONE, f"there is no {runs.EVALUATION}, of which a report is made")
    try:
        beside = Beside(run)
        about = [runs.EVALUATION, runs.METRICS, *(runs.BESIDE[name] for name in beside.found())]
        beside.read(runs.METRICS)
    except Mistake as mistake:
        return Check("results", FAILED, str(mistake))
    told = "are about this certificate, and fit it and each other; that they are its answers, --rerun shows"
    return Check("results", HELD, f"{', '.join(about)} {told}")


def signature(run: Path, key: Path | None) -> Callable[[], Check]:
    """Whether a run is signed with a key; to be asked again when everything was read."""
    if key is None:
        unasked = Check("signature", NOT_DONE, without_key(run))
        return lambda: unasked
    try:
        told = signing.check(run, key)
    except signing.NotSigned as error:
        failed = Check("signature", FAILED, str(error))
        return lambda: failed

    def still() -> Check:
        try:
            return Check("signature", HELD, told())
        except signing.NotSigned as error:
            return Check("signature", FAILED, str(error))

    return still


def without_key(run: Path) -> str:
    there = (run / runs.SIGNATURE).is_file()
    return "there is one: --key FILE says whose it must be" if there else "the run is not signed"
