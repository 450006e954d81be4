"""Steps and rates are chosen on what may be looked at: never on test rows."""

from pathlib import Path

import pytest
from commands import people, write_csv

from fullcert.experiment import tuning
from fullcert.experiment.options import Options


@pytest.mark.parametrize("trusted", [False, True])
def test_nothing_is_chosen_on_test_rows(tmp_path: Path, trusted: bool) -> None:
    test, found = people(40, seed=1), []
    table, clean = (write_csv(tmp_path / f"{seed}.csv", people(90, seed=seed)) for seed in (0, 2))
    for swapped in (False, True):
        labels = [{"much": "little", "little": "much"}[word] if swapped else word for word in test["income"]]
        path = write_csv(tmp_path / "test.csv", {**test, "income": labels})
        chosen = Options(
            **{"data": str(table), "target": "income", "ignore": ("pay",), "test_data": str(path), "hidden": "none"},
            **{"flip_labels": 1, "trusted": str(clean) if trusted else None},
        )
        found.append(tuning.tuned(chosen, 3, [0.2], lambda _: None))
    assert found[0][1] == found[1][1] and found[0][0] == found[1][0]
    assert [tried.steps for tried in found[0][1]] == [1, 2, 3]


def test_steps_that_are_measured_ascend() -> None:
    assert list(tuning.STEPS) == sorted(set(tuning.STEPS))
