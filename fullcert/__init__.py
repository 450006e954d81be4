"""FullCert: train on every dataset an attacker could have left behind, at once, and certify the predictions.

The application on top of the library `boundflow`. This file imports nothing of it, so that the command starts fast.
"""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def _of_library(name: str) -> ModuleType:
    """A file of the library that imports nothing of it. Another package called boundflow in its place is refused."""
    library = find_spec("boundflow")
    file = Path(library.origin).parent / "same_program" / f"{name}.py" if library and library.origin else None
    if file is None or not file.is_file():
        raise ImportError(
            "the library boundflow, which is distributed together with fullcert, is not here, or another package of "
            "that name is: run `pip uninstall boundflow`, then install fullcert again from its repository or its wheel"
        )
    spec = spec_from_file_location(f"boundflow_{name}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_of_library("namesake").require_ours()
_of_library("former_paths").install(__name__)
