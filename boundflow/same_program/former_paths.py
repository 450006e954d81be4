"""Modules under the paths that they had before version 0.2: they work until version 0.3, and say where to find them.

    room: names          NAME of the package was moved to ROOM.NAME; ``old:new`` where it has another name there

One finder answers for all of them. Where a room has the name of a former module (`symbols`), the room answers for the
names that it does not have itself. Digests go on naming what lies in this library by its former path
(`written_code.py`), so that files of earlier days are compared by what they say. This file imports nothing of the
library, because `fullcert` runs it without importing it.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

ENDS = "0.3"
QUIET = frozenset({"fullcert.command"})  # which the script of an environment names that was made before
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
        "rules": "operands:operand_properties states rules.corners:ends_of_products",
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
    "fullcert": {
        "system": "mistakes locks jobs processes startup stopping unpacking widening numerals:numbers_as_text",
        "data": (
            "tables npz dialects notations dates encoding fitting:fitted_encoding inspecting "
            "questions:column_questions signs:decimal_signs planes:plane_grid suspects datasets"
        ),
        "data.datasets": (
            "datasets.adult datasets.bundled datasets.cars datasets.catalogue datasets.cifar datasets.components "
            "datasets.fetching datasets.holdings datasets.images datasets.magic datasets.mnist datasets.moons "
            "datasets.pneumonia datasets.sources datasets.splitting"
        ),
        "networks": "layers model_files models probing probabilities weights:linear_weights",
        "experiment": (
            "options recipes threats losses tasks missing_cells places:sample_lines training identity validation "
            "tuning trials:trial_trainings forecasting runs advice"
        ),
        "results": (
            "evaluation constant_answer manifest beside step_log tracking answering standing:withstood_answers "
            "attacking:attacked_run auditing checked_rows recorded_rows voting"
        ),
        "evidence": "evidence:retraining figures ball_training plain_training poisoning signing verifying",
        "sweeps": "sweeps:swept_runs sweep_tables attacked_curves",
        "sklearn": "scaling sklearn.categories:categorical_columns",
        "bench": "bench.many:hundred_trainings bench.trainings:whole_trainings",
        "report": "report.features:feature_weights",
        "": "commands:cli",
        "cli": (
            "command commands.attack commands.audit commands.bench commands.certify commands.datasets "
            "commands.display commands.downloads commands.flags commands.inspect commands.reading commands.report "
            "commands.reproduce commands.results commands.sign commands.sweep commands.train commands.tune "
            "commands.validate commands.verify"
        ),
    },
}


def moved(package: str) -> dict[str, str]:
    """For every former path of a package the path of today."""
    found = {}
    for room, names in MOVED.get(package, {}).items():
        for old, _, new in (name.partition(":") for name in names.split()):
            found[f"{package}.{old}"] = ".".join(filter(None, (package, room, new or old.rpartition(".")[2])))
    return found


FORMER = {new: old for package in MOVED for old, new in moved(package).items()}


class FormerPaths(MetaPathFinder, Loader):
    """Finds the modules of one package under their former paths, before Python looks into folders."""

    def __init__(self, package: str):
        self.moved = moved(package)
        self.rooms = {new.rpartition(".")[0] for new in self.moved.values()} - {package}
        self.specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self.rooms:
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None and spec.origin is not None:
                spec.loader = Room(fullname, spec.origin, self.moved)
            return spec
        if fullname not in self.moved:
            return None
        if fullname not in QUIET:
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


class Room(SourceFileLoader):
    """A folder that answers for what lay there before, or for the module whose name it has."""

    def __init__(self, name: str, path: str, moved: dict[str, str]):
        super().__init__(name, path)
        self.moved = moved

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module).setdefault("__getattr__", _attributes(self.name, self.moved))


def install(package: str) -> None:
    """Let the former paths of a package work, as imports and as attributes. Called before its rooms are imported."""
    finder = FormerPaths(package)
    sys.meta_path.insert(0, finder)
    vars(sys.modules[package]).setdefault("__getattr__", _attributes(package, finder.moved))


def keep_public_names(package: str) -> None:
    """What a public name stands for that was a module, too, must not be changed by an import of that module."""
    paths = moved(package)
    for old in {f"{package}.{name}" for name in sys.modules[package].__all__} & paths.keys():
        sys.modules[old] = importlib.import_module(paths[old])


def _attributes(name: str, moved: dict[str, str]) -> Callable[[str], Any]:
    """What a folder answers for a name that it does not have."""

    def attribute(of: str) -> Any:
        there = PathFinder.find_spec(f"{name}.{of}", sys.modules[name].__path__) is not None
        if not of.startswith("__") and not there:  # a file of the room is about to be imported
            if f"{name}.{of}" in moved:
                _warn(f"{name}.{of}", moved[f"{name}.{of}"])
                return importlib.import_module(moved[f"{name}.{of}"])
            if name in moved and hasattr(held := importlib.import_module(moved[name]), of):
                _warn(f"{name}.{of}", f"{moved[name]}.{of}")
                return getattr(held, of)
        raise AttributeError(f"module {name!r} has no attribute {of!r}")

    return attribute


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is {new} now: its former path works until version {ENDS}", DeprecationWarning, stacklevel=3)
