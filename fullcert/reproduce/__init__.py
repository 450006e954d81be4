"""Published figures and tables, run again beside ours. Needs torch and numpy alone: `python -m fullcert.reproduce`."""

from fullcert.reproduce.experiments import EXPERIMENTS, Case, Experiment, Outcome, Scale, experiment, load

__all__ = ["EXPERIMENTS", "Case", "Experiment", "Outcome", "Scale", "experiment", "load"]
