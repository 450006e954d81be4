"""The report of a run: one HTML file that needs nothing else."""

from fullcert.report.of_run import made, page_of
from fullcert.report.page import UNSIGNED, render

__all__ = ["UNSIGNED", "made", "page_of", "render"]
