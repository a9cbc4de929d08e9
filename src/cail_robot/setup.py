from glob import glob

from setuptools import find_packages, setup

package_name = "cail_robot"


def files(pattern: str) -> list[str]:
    """The files of a pattern; an empty one is a broken checkout (launch/ and config/ are symbolic links)."""
    found = sorted(glob(pattern))
    if not found:
        raise SystemExit(f"cail_robot: no file matches {pattern}; are the links launch and config in src/cail_robot whole?")
    return found


setup(
    name=package_name,
    version="0.2.0",
    packages=find_packages(exclude=["test"]),
    package_data={package_name: ["py.typed", "ros/*.xml", "data/*"]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/" + package_name]),
        ("share/" + package_name, ["package.xml"]),
        ("share/" + package_name + "/launch", files("launch/*.launch.py")),
        ("share/" + package_name + "/config", files("config/*.yaml")),
        *(("share/" + package_name + "/" + folder, files(folder + "/*")) for folder in files("config/*/")),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="CAIL maintainers",
    maintainer_email="maintainers@cail.example",
    description="Arms on ROS 2 for confidence-aware imitation learning: contract, safety filter, UR5e, teleoperation",
    license="Apache-2.0",
    extras_require={"test": ["pytest"]},  # by this `colcon test` knows that pytest is meant
    # A literal: the root distribution reads it from here (see hatch_build.py).
    entry_points={
        "console_scripts": ["train_node = cail_robot.ros.train_node:main", "ur5e_node = cail_robot.robots.ur5e.bringup:main"],
        "cail.arms": ["ur5e = cail_robot.robots:UR5E"],
        "cail.commands": [
            "deploy = cail_robot.commands.deploy:register",
            "record = cail_robot.commands.record:register",
            "up = cail_robot.commands.up:register",
        ],
    },
)
