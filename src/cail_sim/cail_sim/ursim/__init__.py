"""A UR5e control box on this machine: Dashboard, script port, RTDE and Robotiq socket, for clients that know no difference."""
