from setuptools import find_packages, setup

package_name = "cail_sim"

setup(
    name=package_name,
    version="0.2.0",
    packages=find_packages(exclude=["test"]),
    package_data={package_name: ["py.typed", "data/*/*/*"]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/" + package_name]),
        ("share/" + package_name, ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="CAIL maintainers",
    maintainer_email="maintainers@cail.example",
    description="Simulated arms and tasks for confidence-aware imitation learning",
    license="Apache-2.0",
    extras_require={"test": ["pytest"]},  # by this `colcon test` knows that pytest is meant
    # A literal: the root distribution reads it from here (see hatch_build.py).
    entry_points={
        "console_scripts": ["scene_node = cail_sim.robots.scene:main", "sim_node = cail_sim.robots.panda:main"],
        "cail.arms": [
            "panda_sim = cail_sim.robots:PANDA_SIM",
            "ur5e_sim = cail_sim.robots:UR5E_SIM",
        ],
        "cail.tasks": [
            "panda = cail_sim.tasks.panda:Panda",
            "panda-carry = cail_sim.tasks.panda:PandaCarry",
            "panda-carry-ros = cail_sim.tasks.over_ros:PANDA_CARRY",
            "panda-ros = cail_sim.tasks.over_ros:PANDA",
            "ur5e = cail_sim.tasks.ur5e:UR5e",
        ],
        "cail.commands": ["ursim = cail_sim.ursim.command:register", "watch = cail_sim.commands.watch:register"],
    },
)
