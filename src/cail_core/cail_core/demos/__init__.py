"""Demonstrations: on disk in the LeRobotDataset v3.0 layout, in memory as a learner sees them, and their ranking."""
