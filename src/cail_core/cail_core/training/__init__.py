"""Training runs: a folder that fills up, survives being killed and goes on where it stopped."""

from cail_core.training.run import TrainingDiverged, train

__all__ = ["TrainingDiverged", "train"]
