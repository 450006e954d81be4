"""The folder above is where this package is found, however the tests were started; one thread, as everywhere."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))
torch.set_num_threads(1)
