"""Where samples stand in the files of the user."""

from pathlib import Path

import numpy as np
import pytest

from fullcert.experiment.sample_lines import Places
from fullcert.system.mistakes import Mistake


def test_an_id_of_several_rows_names_none_of_them() -> None:
    """Whoever has checked one of them would have another one taken for checked."""
    where = Places(np.array([4, 2, 0, 1]), np.arange(2, 9), np.array([7.0, 8.0, 9.0, 3.0, 8.0, 5.0, 6.0]))
    asked = Path("checked.csv")
    assert where.samples("id", ["9", "7"], asked).tolist() == [1, 2]
    assert where.samples("line", [6, 3], asked).tolist() == [0, 3]
    assert where.samples("sample", [3, 0], asked).tolist() == [3, 0]
    with pytest.raises(Mistake, match="names the id 8, which 2 training rows have: say lines"):
        where.samples("id", ["9", "8"], asked)
    for name, value in (("id", "3"), ("line", 5), ("sample", 4), ("sample", -1)):
        with pytest.raises(Mistake, match=f"names the {name} {value}, and no training row has it"):
            where.samples(name, [value], asked)
