"""`fullcert sign`: vouch for the files of a run with a key, or make a key."""

from pathlib import Path
from typing import Annotated

import typer

from fullcert.cli import results
from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake


def sign(
    run: Annotated[Path | None, typer.Argument(help="The folder of a run.")] = None,
    key: Annotated[Path | None, typer.Option(help="File of the private key to sign with.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(help="Make a key instead: FILE is private, FILE.pub is for others.", metavar="FILE")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Sign every file of a run with an Ed25519 key, after checking its certificate.

    A signature says who has seen these files, and no others: what is added or
    changed later must be signed again. It does not say that the training was
    honest: see docs/trust.md.
    """
    results.check(json)
    if run is not None:
        runs.check_there(run)  # before torch is imported, which takes seconds
    if key is not None and not key.exists():
        raise Mistake(f"cannot read the key {key}: No such file or directory")
    if new_key is None and (run is None or key is None):
        raise Mistake("give the run and the key, fullcert sign RUN --key FILE, or make one with --new-key FILE")

    from fullcert.evidence import signing, verifying

    if new_key is not None:
        if run is not None or key is not None:
            raise Mistake("--new-key makes a key and signs nothing: call fullcert sign RUN --key FILE afterwards")
        made = {"private_key": str(new_key), "public_key": str(signing.make_key(new_key))}
    else:
        assert run is not None and key is not None
        private = signing.private_key(signing.apart(run, key))
        failed = [check for check in verifying.checks(run) if check.result == verifying.FAILED]
        if failed:
            raise Mistake(f"{run} is not signed, since its {failed[0].check} does not hold: {failed[0].detail}")
        made = {"signature": str(signing.sign(run, private))}
    results.give(json, made)
    if not quiet and json != "-":
        print(*(f"{name.replace('_', ' ')}: {path}" for name, path in made.items()), sep="\n")
