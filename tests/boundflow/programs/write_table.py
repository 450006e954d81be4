"""Run every program and write docs/programs.md: python tests/boundflow/programs/write_table.py

Programs that are not sound are printed, and make the exit code 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:1] = [str(HERE.parents[3]), str(HERE.parents[1])]  # the repository, and where this package lies


def main() -> int:
    import torch

    from programs.entries import PROGRAMS
    from programs.page import PAGE, page
    from programs.verdict import judged

    torch.set_num_threads(1)
    verdicts = {}
    for name, program in PROGRAMS.items():
        verdicts[name] = {domain: judged(program, domain) for domain in program.domains}
        for domain, verdict in verdicts[name].items():
            if not verdict.fits(program.expected):
                found = f"{verdict.outcome} {verdict.error} {verdict.sentence}"
                print(f"{name}, {domain}: expected {program.expected}, {found}")
    PAGE.write_text(page(verdicts))
    outcomes = [verdict.outcome for found in verdicts.values() for verdict in found.values()]
    print(f"{len(verdicts)} programs:", ", ".join(f"{outcomes.count(o)} {o}" for o in sorted(set(outcomes))))
    return int("VIOLATED" in outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
