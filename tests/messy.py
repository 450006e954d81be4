"""A table as people send it: ids, dates, missing values, a Windows encoding, semicolons and decimal commas."""

from pathlib import Path

import numpy as np

TOWNS = ("München", "Köln", "Berlin", "Zürich")


def messy_cells(rows: int, seed: int = 0) -> dict[str, list[str]]:
    """Customers of whom some did not pay: those with little income and many debts."""
    random = np.random.RandomState(seed)
    income, debts = random.gamma(6.0, 500.0, rows), random.gamma(2.0, 900.0, rows)
    age, town = random.randint(18, 90, rows), random.choice(TOWNS, rows)
    joined = np.datetime64("2010-01-01") + random.randint(0, 5000, rows).astype("timedelta64[D]")
    risk = debts / 900 - income / 800 + 0.8 * (town == "Berlin") + random.normal(0, 0.6, rows)
    paid = np.where(risk > np.quantile(risk, 0.7), "nein", "ja")
    cells = {
        "Kundennummer": [f"K{number:06d}" for number in random.permutation(rows)],
        "Kunde seit": ["{2}.{1}.{0}".format(*str(day).split("-")) for day in joined],
        "Einkommen": [f"{value:.2f}".replace(".", ",") for value in income],
        "Schulden": [f"{value:.2f}".replace(".", ",") for value in debts],
        "Alter": [str(value) for value in age],
        "Ort": list(map(str, town)),
        "PLZ": [f"0{number:04d}" for number in random.randint(1000, 9999, rows)],
        "Beruf": list(map(str, random.choice(["Bäcker", "Lehrer", "Ärztin", "?"], rows, p=[0.4, 0.3, 0.25, 0.05]))),
        "Bemerkung": [f"Gespräch über Vertrag {number} am Telefon geführt" for number in range(rows)],
        "Mandant": ["4711"] * rows,
        "bezahlt": list(map(str, paid)),
    }
    for name, share in (
        ("Einkommen", 0.002),
        ("Alter", 0.002),
        ("Ort", 0.002),
        ("Kunde seit", 0.001),
        ("bezahlt", 0.001),
    ):
        for row in np.flatnonzero(random.rand(rows) < share):
            cells[name][row] = ""
    cells["Alter"][3] = cells["Ort"][4] = cells["bezahlt"][5] = ""
    return cells


def write_messy(path: Path, rows: int, seed: int = 0) -> Path:
    cells = messy_cells(rows, seed)
    lines = [";".join(cells), *(";".join(row) for row in zip(*cells.values(), strict=True))]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("windows-1252"))
    return path
