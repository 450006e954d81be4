"""The report of a run: one HTML file that needs nothing else."""

from fullcert.report.page import render

__all__ = ["render"]
