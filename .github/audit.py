"""What pip-audit has found, told so that a check that did not run is not taken for one that found nothing.

    python .github/audit.py audit.json constraints.txt

Exits with 0 if every pinned version was asked about and none is known to be vulnerable, with 1 if one is, and with 3 if
the check did not run, or not for all of them.
"""

import json
import re
import sys
from pathlib import Path

FOUND, NOT_RUN = 1, 3


def name(requirement: str) -> str:
    """The name of a package as databases write it."""
    return re.sub(r"[-_.]+", "-", requirement.partition("==")[0].strip()).lower()


def main(audit: str, constraints: str) -> int:
    pinned = {name(line) for line in Path(constraints).read_text().splitlines() if "==" in line}
    try:
        dependencies = json.loads(Path(audit).read_text())["dependencies"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"::error::the check against known vulnerabilities did not run: {error}")
        return NOT_RUN
    asked = {name(found["name"]) for found in dependencies if "skip_reason" not in found}
    bad = [found for found in dependencies if found.get("vulns")]
    for found in bad:
        ids = ", ".join(vulnerability["id"] for vulnerability in found["vulns"])
        print(f"::error::{found['name']} {found['version']} is known to be vulnerable: {ids}")
    missing = sorted(pinned - asked)
    if missing:
        print(f"::error::the check did not run for {', '.join(missing)}")
    print(f"{len(asked)} of {len(pinned)} pinned versions were asked about, {len(bad)} are known to be vulnerable")
    return FOUND if bad else NOT_RUN if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
