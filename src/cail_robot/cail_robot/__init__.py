"""Everything that drives an arm: the arm contract, the safety filter, ROS nodes, the UR5e over RTDE, teleoperation, recording."""

import os

# An arm's processes lock their memory (scheduling.py), and Arrow's own allocator reserves a GB of it for a few parquet files.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
