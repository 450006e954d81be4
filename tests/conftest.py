"""One thread per worker, and a fixed profile for property-based tests."""

import sys

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
sys.setrecursionlimit(20_000)  # settings of property-based tests fall back on those of the test before, a long chain
settings.register_profile(
    "boundflow", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=6
)
settings.load_profile("boundflow")
