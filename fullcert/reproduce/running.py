"""Options of a reproduction, checked before the work starts, and where its results go. Both commands share it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fullcert.experiment import runs
from fullcert.experiment.training import available
from fullcert.reproduce import drawing, engine, writing
from fullcert.reproduce.engine import Row
from fullcert.reproduce.experiments import Experiment, Scale, wanted
from fullcert.system.jobs import Progress
from fullcert.system.mistakes import Mistake, check_known

DOMAINS = ("interval", "zonotope", "both")
FOLDER = Path("runs/reproduce")


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    ids: list[str] = field(default_factory=list)
    everything: bool = False
    scale: Scale = Scale()
    out: Path = FOLDER
    rows: Path | None = None  # instead of running: rows that were written before
    device: str = "cpu"
    jobs: int = 1
    only_finished: bool = False
    json: str | None = None
    csv: Path | None = None
    latex: Path | None = None
    figure: Path | None = None

    def checked(self) -> list[Experiment]:
        """The experiments, if all that was asked for can be done."""
        check_known("domain", self.scale.domain, DOMAINS)
        if self.scale.seeds is not None and self.scale.seeds < 1:
            raise Mistake(f"--seeds must be at least 1, not {self.scale.seeds}")
        if self.jobs < 1:
            raise Mistake(f"--jobs must be at least 1, not {self.jobs}")
        if self.everything == bool(self.ids):
            raise Mistake("give the experiments by name, or --all for all of them (--list shows them)")
        found = wanted(self.ids, self.everything)
        for path in (self.csv, self.latex, Path(self.json) if self.json and self.json != "-" else None):
            if path is not None:
                runs.check_writable(path)
        if self.figure is not None:
            drawing.check(self.figure)
        return found

    def perform(self, tell: Callable[[Progress], None]) -> list[Row]:
        """Run what is not finished, or read it, and write what was asked for."""
        found = self.checked()
        if self.rows is not None:
            names = {one.id for one in found}
            rows = [row for row in writing.read(self.rows) if row["id"] in names]
        else:
            device = available(self.device)
            runs.make_folder(self.out)
            rows = engine.run(found, self.scale, self.out, device, self.jobs, tell, self.only_finished)
        if not rows:
            raise Mistake("nothing of this is in that domain, of that recipe, part of --quick or finished")
        self._write(rows)
        return rows

    def _write(self, rows: list[Row]) -> None:
        if self.json and self.json != "-":
            runs.write(Path(self.json), writing.as_json(rows).encode())
        if self.csv is not None:
            runs.write(self.csv, writing.as_csv(rows).encode())
        if self.latex is not None:
            runs.write(self.latex, writing.as_latex(rows).encode())
        if self.figure is not None:
            drawing.draw(rows, self.figure)
        if self.json == "-":
            print(writing.as_json(rows), end="", flush=True)
