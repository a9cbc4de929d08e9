"""The UR5e: its kinematics, and the arm over RTDE."""
