"""Drawn bugs that no test can notice, each with the reason why it cannot change an answer (`syntax_mutants.py`)."""

STAYS: dict[str, str] = {}
