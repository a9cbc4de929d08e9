"""Everything simulated: PyBullet worlds, scripted demonstrators, the UR control box, their node.

Importing it registers the tasks with Gymnasium: `gymnasium.make("cail_sim:cail/PandaPickPlaceAvoid-v0")`.
"""

import contextlib

with contextlib.suppress(ImportError):  # launch files read the robots of this package with a Python that may lack it
    import gymnasium

    for _id, _task in (("cail/PandaPickPlaceAvoid-v0", "panda"), ("cail/PandaCarryAvoid-v0", "panda-carry")):
        gymnasium.register(id=_id, entry_point="cail_sim.tasks.gym_envs:PickPlaceAvoidGymEnv", kwargs={"task": _task})
