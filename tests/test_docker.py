"""The container files against the tree: nothing here builds an image, which needs a Docker daemon."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml

from cail_core.cli import Parser, build_parser
from cail_core.config import load_config
from cail_robot.robot import find_robot
from cail_sim.bullet.arm import PANDA

ROOT = Path(__file__).resolve().parents[1]
DOCKER = ROOT / "docker"
IMAGES = ("Dockerfile", "Dockerfile.ros")
OURS = "cail"
EXTRAS = {"ros", "ur", "sim", "mujoco", "bench", "ray", "tune"}


def instructions(name: str) -> list[tuple[str, str]]:
    """(instruction, what follows), a continued line as one."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (DOCKER / name).read_text(encoding="utf-8"))
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def of(name: str, instruction: str) -> list[str]:
    return [rest for word, rest in instructions(name) if word == instruction]


def dry_run(*words: str) -> str:
    """What make would do in a tree where nothing is installed, whatever the make that runs the tests was told."""
    command = ["make", "--no-print-directory", "-n", f"VENV={ROOT}/none", *words]
    told = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "EXTRAS", "ARGS", "PYTHON", "VENV", "JOBS")
    env = {name: value for name, value in os.environ.items() if name not in told}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    return done.stdout


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return found


@pytest.mark.parametrize("name", IMAGES)
def test_images_run_as_a_user_and_name_their_base(name: str) -> None:
    (base,) = of(name, "FROM")
    assert ":" in base
    assert not base.endswith(":latest")
    assert of(name, "USER")[-1].strip() not in ("root", "0")
    assert not of(name, "ADD")


def test_the_image_installs_with_the_recipe_that_the_tests_were_installed_with() -> None:
    """`make test` ran that recipe to make the environment of this very test, with more extras."""
    (recipe,) = (run for run in of("Dockerfile", "RUN") if "pip" in run or "make" in run.split())
    assert 'make install EXTRAS="$EXTRAS"' in recipe
    (extras,) = (rest.removeprefix("EXTRAS=") for rest in of("Dockerfile", "ARG") if rest.startswith("EXTRAS="))
    assert set(extras.split(",")) < EXTRAS
    for_image, for_tests = (re.sub(r"/(test|all|demo)-\d+", "/ready", dry_run(*words)).replace("[all,dev]", f"[{extras}]")
                            for words in (("install", f"EXTRAS={extras}"), ("test",)))
    assert "pip install" in for_image
    assert for_tests.startswith(for_image)


@pytest.mark.parametrize("name", IMAGES)
def test_images_have_torch_without_cuda_unless_asked(name: str) -> None:
    assert "TORCH_INDEX=https://download.pytorch.org/whl/cpu" in of(name, "ARG")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "https://download.pytorch.org/whl/cpu" in makefile


def test_the_ros_image_has_pybullet_by_its_hash_and_the_panda_s_files() -> None:
    (recipe,) = (run for run in of("Dockerfile.ros", "RUN") if "pip install" in run)
    assert "--require-hashes --no-deps -r src/cail/requirements-pybullet.txt" in recipe
    kept = re.findall(r"! -name (\S+)", recipe)
    assert sorted(kept) == ["__init__.py", Path(PANDA.urdf).parts[0]]


def test_the_ros_image_installs_every_dependency_that_rosdep_does_not_know() -> None:
    (pip,) = (run for run in of("Dockerfile.ros", "RUN") if "pip install" in run)
    words = set(shlex.split(pip.split("pip install")[-1].split("&&")[0]))
    needed = {re.match(r"[\w-]+", text)[0].lower() for text in requires("cail") or [] if "extra ==" not in text}  # type: ignore[index]
    assert len(needed) >= 10
    assert needed <= words
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    packages = {word for word in words if not word.startswith("-") and "/" not in word}
    assert packages <= pinned
    build = ". /opt/ros/jazzy/setup.sh && .venv/bin/colcon build && . install/setup.sh && cail doctor --no-speed"
    assert build in of("Dockerfile.ros", "RUN")


def test_the_build_context_has_every_file_under_version_control() -> None:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= set(ignored)
    for name in filter(None, listing.split("\0")):
        parts = Path(name).parts
        for pattern in ignored:
            anywhere, plain = pattern.startswith("**/"), pattern.removeprefix("**/")
            candidates = parts if anywhere else parts[:1]
            assert not any(fnmatch.fnmatch(part, plain) for part in candidates), f"{pattern} leaves out {name}"


def test_containers_have_no_privileges_and_listen_on_this_machine_only(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert not {"privileged", "devices", "cap_add"} & service.keys(), name
        assert service.get("network_mode", "") in ("", "service:robot"), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        if service["image"] == OURS:
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_cail_command_takes_what_the_containers_give_it(services: dict[str, dict[str, Any]]) -> None:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    commands = [service["command"] for service in services.values() if service["image"] == OURS and "entrypoint" not in service]
    commands += re.findall(r'ROBOT="(.+?)"', text)
    assert len(commands) == 5
    for command in commands:
        words = shlex.split(re.sub(r"\$\{\w+:-(.*?)\}", r"\1", command))
        given = build_parser().parse_args(words)
        if words[0] == "up":
            pytest.importorskip("rclpy")
            parser = Parser()
            find_robot(given.arm).load().add_arguments(parser)
            parser.parse_args(given.options)


def test_the_settings_for_ursim_fit() -> None:
    from cail_robot.robots.ur5e.config import UR5eConfig

    made = load_config(UR5eConfig, DOCKER / "ursim.yaml")
    assert (made.robot_ip, made.gripper.kind) == ("ursim", "none")
    assert made.limits == load_config(UR5eConfig, ROOT / "config" / "ur5e.yaml").limits
