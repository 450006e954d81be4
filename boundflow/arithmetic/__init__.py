"""Floats and how they are widened, the arithmetic of a run, and numbers that were tuned."""
