from setuptools import find_packages, setup

package_name = "cail_core"

setup(
    name=package_name,
    version="0.2.0",
    packages=find_packages(exclude=["test"]),
    package_data={
        package_name: [
            "py.typed", "data/*/*/*", "report/*.css", "report/*.js", "templates/*/*", "templates/*/*/*", "templates/*/*/*/*",
        ]
    },
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/" + package_name]),
        ("share/" + package_name, ["package.xml"]),
        ("bin", ["bin/cail"]),  # colcon puts this folder on the PATH, but not lib/, where ROS has executables
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="CAIL maintainers",
    maintainer_email="maintainers@cail.example",
    description="Confidence-aware imitation learning: demonstrations, tasks, learners, the cail command",
    license="Apache-2.0",
    extras_require={"test": ["pytest"]},  # by this `colcon test` knows that pytest is meant
    # A literal: the root distribution reads it from here (see hatch_build.py).
    entry_points={
        "console_scripts": ["cail = cail_core.cli:main"],
        "cail.commands": [
            "demo = cail_core.commands.demo:register",
            "demos = cail_core.commands.demos:register",
            "doctor = cail_core.commands.doctor:register",
            "eval = cail_core.commands.eval:register",
            "new = cail_core.commands.new:register",
            "report = cail_core.commands.report:register",
            "stress = cail_core.commands.stress:register",
            "train = cail_core.commands.train:register",
            "tune = cail_core.commands.tune:register",
        ],
        "cail.methods": [
            "cail = cail_core.algorithms.methods.cail",
            "cail-paper = cail_core.algorithms.methods.cail_paper",
            "cail-gail = cail_core.algorithms.methods.cail_gail",
            "cail-bc = cail_core.algorithms.methods.cail_bc",
            "cail-hybrid = cail_core.algorithms.methods.cail_hybrid",
            "airl = cail_core.algorithms.methods.airl",
            "gail = cail_core.algorithms.methods.gail",
            "bc = cail_core.algorithms.methods.bc",
            "2iwil = cail_core.algorithms.baselines.two_iwil",
            "ic-gail = cail_core.algorithms.baselines.ic_gail",
            "t-rex = cail_core.algorithms.baselines.trex",
            "d-rex = cail_core.algorithms.baselines.drex",
            "ssrr = cail_core.algorithms.baselines.ssrr",
            "rinse = cail_core.algorithms.baselines.rinse",
            "dwbc = cail_core.algorithms.baselines.dwbc",
        ],
        "cail.tasks": [
            "ant = cail_core.tasks.mujoco:Ant",
            "pointmass = cail_core.tasks.pointmass:PointMass",
            "reacher = cail_core.tasks.mujoco:Reacher",
        ],
    },
)
