"""Everything that drives an arm: the arm contract, the safety filter, ROS nodes, the UR5e over RTDE, teleoperation, recording."""
