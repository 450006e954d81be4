"""Rounding terms whose removal no law can notice, each with the proof that it stays or why (`rounding_terms.py`)."""

STAYS: dict[str, str] = {}
