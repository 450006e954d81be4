"""Modules under the paths that they had before version 0.2: they work until version 0.3, and say where to find them.

    room: names          NAME of the package was moved to ROOM.NAME; ``old:new`` where it has another name there

One finder answers for all of them, behind those of Python. Where a room has the name of a former module (`symbols`),
the room answers for the names that it does not have itself. Digests go on naming what lies in this library by its
former path (`written_code.py`), so that files of earlier days are compared by what they say. This file imports nothing
of the library, because `fullcert` runs it without importing it.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

ENDS = "0.3"
MOVED = {
    "boundflow": {
        "arithmetic": "rounding thread_context tuning:tuned_numbers",
        "symbols": (
            "budgets expansion growth:width_forecast recorded:recorded_values reduction rows support "
            "symbol_numbers symbols:space"
        ),
        "sets": "clean_state factors forms sample_axis sets:set",
        "refinements": "products_of_deviations rules.upper_products",
        "tensor": "autograd_functions bounded draws layout lift rule_table",
        "rules": (
            "operands:operand_properties states rules.bilinear rules.contractions rules.corners:ends_of_products "
            "rules.linear rules.products_over_samples rules.structural rules.sums_over_samples rules.unary"
        ),
        "operators": (
            "losses rules.constants rules.convolution rules.descent:optimizer_update rules.functions rules.gates "
            "rules.matrices rules.normalisation rules.placing:indexed_writes rules.pooling rules.products "
            "rules.questions:item_and_bool rules.randomness:dropout_and_noise rules.selections rules.slopes "
            "rules.softmax"
        ),
        "same_program": (
            "batch_independence digests forward_effects identity namesake network_probe one_program tripwire "
            "written_code"
        ),
        "files": (
            "architecture certificate_files checkpoint codec content:checked_content files:sealed_files training_state"
        ),
        "fast.support": (
            "factored_support kept_lines:reused_coefficients kernel_compiler kernels:gpu_kernels largest_terms "
            "on_device:device_tables processor_kernel streaming"
        ),
        "fast.steps": (
            "compiled_steps compiler:graph_compiler fixed_parts late_checks:deferred_checks step_state "
            "traced:traced_step"
        ),
        "fast.processes": "interval_pieces ranks shared_checkpoint shares:row_placement",
        "fast.memory": "chunks:batch_pieces loop_memory memory_plan needed_memory out_of_memory",
        "answers": "certificate cuts derived_sets prediction",
        "training": "clipping many:joint_trainings prepared:checked_inputs progress recipe training:certified_training",
        "analysis": (
            "audit checklist ensemble largest_budgets owner_terms smaller_threats verified_rows votes withstanding"
        ),
        "optimum": "optimum.certify:certify_optimum",
    },
}


def moved(package: str) -> dict[str, str]:
    """For every former path of a package the path of today."""
    found = {}
    for room, names in MOVED.get(package, {}).items():
        for old, _, new in (name.partition(":") for name in names.split()):
            found[f"{package}.{old}"] = f"{package}.{room}.{new or old.rpartition('.')[2]}"
    return found


FORMER = {new: old for package in MOVED for old, new in moved(package).items()}


class FormerPaths(MetaPathFinder, Loader):
    """Finds the modules of one package under their former paths."""

    def __init__(self, package: str):
        self.moved = moved(package)
        self.specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.moved:
            return None
        _warn(fullname, self.moved[fullname])
        return spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.moved[spec.name])
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed: only Python's note of where it was found is put right."""
        assert module.__spec__ is not None
        module.__spec__ = self.specs.pop(module.__spec__.name)


def install(package: str) -> None:
    """Let the former paths of a package work: as imports, and as attributes of it and of its rooms."""
    finder = FormerPaths(package)
    sys.meta_path.append(finder)
    public = {f"{package}.{name}" for name in getattr(sys.modules[package], "__all__", ())}
    for old in public & finder.moved.keys():  # what a public name stands for must not be changed by an import
        sys.modules[old] = importlib.import_module(finder.moved[old])
    for room in (name for name, module in list(sys.modules.items()) if _has_parts(name, module, finder.moved)):
        vars(sys.modules[room]).setdefault("__getattr__", _attributes(room, finder.moved))


def _has_parts(name: str, module: ModuleType, moved: dict[str, str]) -> bool:
    """Whether a folder was a module once, or held one that has been moved."""
    held = hasattr(module, "__path__")
    return held and (name in moved or any(old.rpartition(".")[0] == name for old in moved))


def _attributes(name: str, moved: dict[str, str]) -> Callable[[str], Any]:
    """What a folder answers for a name that it does not have."""

    def attribute(of: str) -> Any:
        if not of.startswith("__"):
            if f"{name}.{of}" in moved:
                _warn(f"{name}.{of}", moved[f"{name}.{of}"])
                return importlib.import_module(moved[f"{name}.{of}"])
            if name in moved:
                held = importlib.import_module(moved[name])
                if hasattr(held, of):
                    _warn(f"{name}.{of}", f"{moved[name]}.{of}")
                    return getattr(held, of)
        raise AttributeError(f"module {name!r} has no attribute {of!r}")

    return attribute


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is {new} now: its former path works until version {ENDS}", DeprecationWarning, stacklevel=3)
