"""Everything simulated: PyBullet worlds, scripted demonstrators, the UR control box, their node."""
