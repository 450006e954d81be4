"""What it costs to say what a run on a table rests on, beside reading the table."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import taking_turns
from fullcert.experiment import identity, tasks
from fullcert.experiment.options import Options
from fullcert.experiment.training import Recipe

ROWS, ROUNDS = 50_000, 3


@case("identity-cpu", f"what a run on a table of {ROWS:,} rows rests on, beside reading the table", quick=True)
def of_table(device: torch.device) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path, random = Path(folder) / "table.csv", np.random.default_rng(0)
        numbers = random.normal(size=(ROWS, 4)).round(3)
        lines = (f"{','.join(map(str, row))},{'yes' if row[0] > 0 else 'no'}" for row in numbers.tolist())
        path.write_text("\n".join(["a,b,c,d,label", *lines]))
        recipe = Recipe(Options(data=str(path), target="label", hidden="none", flip_labels=1))
        works = {
            "identity": lambda: identity.of(recipe.options, recipe.task, recipe.code),
            "table": lambda: tasks.load(recipe.options),
        }
        best = taking_turns(works, device, ROUNDS)
    return Measured(best["identity"], best["table"])
