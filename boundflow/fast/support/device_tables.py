"""Tables of whole numbers, on the device where they are used.

A GPU takes them when it comes to it: nobody waits for the work that was begun before. While steps are recorded, to be
replayed, this would be wrong: the memory that is copied from is free afterwards. Then PyTorch refuses the plain copy.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def on_device(table: np.ndarray, device: torch.device) -> Tensor:
    made = torch.from_numpy(table)
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return made.to(device)
    return made.pin_memory().to(device, non_blocking=True)


def run_of(index: np.ndarray) -> slice | None:
    """An index as a slice, where its numbers follow each other."""
    if len(index) and index[-1] - index[0] == len(index) - 1 and bool((np.diff(index) == 1).all()):
        return slice(int(index[0]), int(index[-1]) + 1)
    return None


def piece(index: np.ndarray, device: torch.device) -> slice | Tensor:
    """An index as a slice where it is one: of that nothing is copied."""
    return run_of(index) or on_device(index, device)
