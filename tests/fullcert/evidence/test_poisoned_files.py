"""No file that an attacker could have left behind changes a certified label: a few of those of `poisoned_files.py`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from poisoned_files import Certified, Counts, Setting, tried

FEW = 4  # files of a setting
# numbers and targets that move, categories, labels, missing cells, trusted rows, both precisions
NUMBERS = (1, 2, 4, 9, 19)


@pytest.mark.parametrize("number", NUMBERS)
def test_poisoned_files_change_no_certified_answer(number: int) -> None:
    counts = Counts()
    tried(number, FEW, counts)
    assert counts.files == FEW and not counts.changed
    assert counts.compared and counts.other_answers, "attackers did something, and something is certified"


def test_settings_of_all_kinds_are_drawn() -> None:
    drawn = [Setting.drawn(number) for number in range(100)]
    assert any(setting.regression for setting in drawn) and any(setting.comma for setting in drawn)
    assert any(setting.trusted for setting in drawn) and any(setting.at_most for setting in drawn)
    for setting in drawn:
        assert setting.moves or setting.any_category or setting.flips or setting.fills
        rows = setting.poisoned(random.Random(0))
        assert len(rows) == len(setting.rows) and rows != setting.rows or setting.at_most or setting.any_category


def test_a_label_that_changes_is_counted(tmp_path: Path) -> None:
    """Whoever does more than the threat allows is found out by the same comparison."""
    made = Certified(Setting.drawn(3), tmp_path)
    swapped = {"much": "little", "little": "much"}
    rows = [{**row, "income": swapped[row["income"]], "pay": -row["pay"]} for row in made.setting.rows]
    sure, changed = made.changed(made.answered(rows))
    assert sure and changed
