"""FullCert: train on every dataset an attacker could have left behind, at once, and certify the predictions.

The application on top of the library `boundflow`. This file imports nothing of it, so that the command starts fast.
"""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path


def _require_library() -> None:
    """Refuse another package called boundflow in place of the library, which is looked at without importing it."""
    library = find_spec("boundflow")
    file = Path(library.origin).parent / "same_program" / "namesake.py" if library and library.origin else None
    if file is None or not file.is_file():
        raise ImportError(
            "the library boundflow, which is distributed together with fullcert, is not here, or another package of "
            "that name is: run `pip uninstall boundflow`, then install fullcert again from its repository or its wheel"
        )
    spec = spec_from_file_location("boundflow_namesake", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.require_ours()


_require_library()
