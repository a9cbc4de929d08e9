from setuptools import find_packages, setup

package_name = "cail_bench"

setup(
    name=package_name,
    version="0.2.0",
    packages=find_packages(exclude=["test"]),
    package_data={package_name: ["py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/" + package_name]),
        ("share/" + package_name, ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="CAIL maintainers",
    maintainer_email="maintainers@cail.example",
    description="What cail bench runs: the paper's tables, measurements of arms and simulators, the making of demonstrators",
    license="Apache-2.0",
    extras_require={"test": ["pytest"]},  # by this `colcon test` knows that pytest is meant
    # A literal: the root distribution reads it from here (see hatch_build.py).
    entry_points={
        "cail.commands": [
            "bench = cail_bench.command:register",
            "oracle = cail_bench.demonstrators.command:register",
        ],
        "cail.benchmarks": [
            "arm-faults = cail_bench.arm_faults:run",
            "arm-latency = cail_bench.arm_latency:run",
            "panda-slower = cail_bench.speed_limits:run",
            "panda-speed = cail_bench.sim_throughput:run",
            "recorded = cail_bench.recorded:run",
            "recording = cail_bench.recording:run",
            "recording-live = cail_bench.recording_live:run",
            "transfer = cail_bench.transfer:run",
            "ur5e = cail_bench.ur5e:run",
            "ur5e-faults = cail_bench.ur5e_faults:run",
            "ur5e-rate = cail_bench.ur5e_rate:run",
            "ursim-fuzz = cail_bench.ursim_fuzz:run",
        ],
    },
)
