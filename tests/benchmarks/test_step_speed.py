"""The benchmark runs on a machine that has torch and numpy alone."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_speed.py"
EXTRAS = ("typer", "rich", "matplotlib", "scipy", "sklearn", "hypothesis")


def test_it_times_each_domain_with_torch_and_numpy_alone(tmp_path: Path) -> None:
    arguments = ["--repeats", "1", "--steps", "2", "--hidden", "3,2", "--batch", "5", "--threads", "1"]
    hide = f"import sys, runpy; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    program = f"{hide}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", program, str(SCRIPT), *arguments, "--json", str(tmp_path / "table.json")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["network"] == "2-3-2-1" and set(table["rows"]) == {"plain", "interval", "zonotope"}
    assert all(row["ratio"] > 0 for row in table["rows"].values()) and "ratio" in result.stdout
