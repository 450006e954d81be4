"""Odd but legal programs: each holds every poisoned plain run, or says by name why it cannot."""
