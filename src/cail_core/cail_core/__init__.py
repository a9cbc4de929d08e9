"""Confidence-aware imitation learning: demonstrations, tasks, learners, evaluation, the `cail` command."""

__version__ = "0.1.0"
