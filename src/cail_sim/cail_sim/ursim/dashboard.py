"""The Dashboard server (TCP 29999): one command per line, one line of answer."""

from __future__ import annotations

from cail_sim.ursim.controller import Controller, Runtime, Safety

GREETING = "Connected: Universal Robots Dashboard Server"
LONGEST_LINE = 4096
PROGRAM_STATES = {Runtime.PLAYING: "PLAYING", Runtime.RESUMING: "PLAYING", Runtime.PAUSING: "PAUSED", Runtime.PAUSED: "PAUSED"}
REMOTE_ONLY = ("play", "stop", "pause", "power on", "power off", "brake release", "unlock protective stop", "load", "shutdown")
"""In local mode the operator at the pendant has these, nobody else."""


def answer(box: Controller, line: str) -> str | None:
    """The reply to one line; None ends the connection."""
    words = line.strip()
    lower = words.lower()
    if not box.remote and any(lower == name or lower.startswith(name + " ") for name in REMOTE_ONLY):
        return f"Failed to execute: {lower.split(' ')[0]}"
    if lower in _PLAIN:
        return _PLAIN[lower]
    if lower == "polyscopeversion":
        major, minor, bugfix, build = box.version
        return f"URSoftware {major}.{minor}.{bugfix}.{build} (simulated)"
    if lower == "version":
        return ".".join(map(str, box.version))
    if lower == "get serial number":
        return box.serial
    if lower == "is in remote control":
        return "true" if box.remote else "false"
    if lower == "robotmode":
        return f"Robotmode: {box.robot_mode.name}"
    if lower == "safetymode":
        return f"Safetymode: {box.safety.name}"
    if lower == "safetystatus":
        return f"Safetystatus: {box.safety.name}"
    if lower == "running":
        return f"Program running: {'true' if PROGRAM_STATES.get(box.runtime) == 'PLAYING' else 'false'}"
    if lower == "programstate":
        return f"{PROGRAM_STATES.get(box.runtime, 'STOPPED')} {box.program_name}"
    if lower == "play":
        return "Starting program" if box.resume() or box.runtime is Runtime.PLAYING else "Failed to execute: play"
    if lower == "stop":
        box.end_program("stopped from the dashboard")
        return "Stopped"
    if lower == "pause":
        if box.runtime not in (Runtime.PLAYING, Runtime.PAUSED, Runtime.PAUSING):
            return "Failed to execute: pause"
        box.pause("paused from the dashboard")
        return "Pausing program"
    if lower == "unlock protective stop":
        if box.unlock_protective_stop():
            return "Protective stop releasing"
        return "Cannot unlock protective stop until 5s after occurrence. Always inspect cause of protective stop before unlocking"
    if lower == "power on":
        return "Powering on" if box.power_on() else "Failed to execute: power on"
    if lower == "power off":
        box.power_off()
        return "Powering off"
    if lower == "brake release":
        return "Brake releasing" if box.brake_release() else "Failed to execute: brake release"
    if lower == "restart safety":
        if box.safety is not Safety.NORMAL:
            return "Failed to execute: restart safety"
        box.power_off()
        return "Restarting safety"
    if lower == "shutdown":
        box.power_off()
        return None
    if lower == "quit":
        return None
    if lower.startswith("load installation "):
        return f"Loading installation: {words[18:]}"
    if lower.startswith("load "):
        return f"Loading program: {words[5:]}"
    if lower.startswith("popup "):
        return "showing popup"
    if lower.startswith("addtolog "):
        return "Added log message"
    if lower.startswith("set user role "):
        return f"Setting user role: {words[14:]}"
    if lower.startswith("set operational mode "):
        return f"Setting operational mode: {words[21:].upper()}"
    return f'could not understand: "{words[:200]}"'


_PLAIN = {
    "close popup": "closing popup",
    "close safety popup": "closing safety popup",
    "get robot model": "UR5",
    "get loaded program": "No program loaded",
    "isprogramsaved": "true <unnamed>",
    "get operational mode": "NONE",
    "clear operational mode": "No longer controlling the operational mode",
    "getuserrole": "PROGRAMMER",
}
