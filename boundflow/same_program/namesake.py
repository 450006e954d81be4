"""Another package is called boundflow, too: whether what is installed under our name is ours.

    metadata     boundflow-*.dist-info on the path, whose author is somebody else
    files        the other package's `__init__.py` where ours was: pip writes over files of other packages

Ours is distributed as `fullcert`, which holds the import names `boundflow` and `fullcert`. An installer that was asked
for `boundflow` fetches the other one, and half of each would answer. This file imports nothing of the library, because
`fullcert` runs it without importing it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

AUTHOR = "The BoundFlow authors"
OPENING = '"""BoundFlow: a set of tensors is a tensor'
ADVICE = (
    "run `pip uninstall boundflow`, then install this library again from its repository or its wheel: it is "
    "distributed as fullcert"
)


def require_ours() -> None:
    """Refuse to be imported beside, or under the files of, another package of this name."""
    own = Path(__file__).parents[1] / "__init__.py"
    if not own.read_text(encoding="utf-8", errors="replace").startswith(OPENING):
        raise ImportError(f"{own} belongs to another package that is called boundflow: {ADVICE}")
    for metadata in _metadata():
        if AUTHOR not in metadata.read_text(encoding="utf-8", errors="replace"):
            raise ImportError(f"another package that is called boundflow is installed ({metadata.parent}): {ADVICE}")


def _metadata() -> list[Path]:
    """What distributions called boundflow say of themselves, wherever Python looks for packages."""
    found = []
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # an archive, or a folder that is gone
            continue
        for name in names:
            stem, dot, kind = name.lower().rpartition(".")
            if dot and kind in ("dist-info", "egg-info") and stem.partition("-")[0] == "boundflow":
                file = Path(folder or ".", name, "METADATA" if kind == "dist-info" else "PKG-INFO")
                found += [file] if file.is_file() else []
    return found
