"""What a deployment shows: a screen in a terminal, lines elsewhere."""

from __future__ import annotations

import math
import textwrap
import time

from cail_core.terminal import bold, dim, fit
from cail_robot.deploy.phase import OPEN, Phase
from cail_robot.deploy.session import Session

HELP = (
    "take over  hold ↑ ↓ ← → · PgUp PgDn or i k: up, down · j l turn · 1 2 3 speed · space gripper, or move the device",
    "episode    Enter start, give back to the policy · s f end as success, failure · Backspace discard",
    "arm        c permit motion, clear a fault · Esc stop · q quit",
)
BAR = 20


def screen(session: Session, width: int, height: int) -> list[str]:
    report, deployment = session.link.report, session.deployment
    at = " ".join(f"{name} {value:+.3f}" for name, value in zip("xyz", report.position, strict=False))
    gripper = "" if report.gripper is None else f"gripper {100 * report.gripper:.0f}% open"
    title = f"cail deploy  {deployment.name}  {deployment.task.spec.name} on {deployment.robot.name}, {deployment.rate} Hz, " \
            f"{deployment.max_speed:g} m/s{'  DRY RUN' if session.dry_run else ''}"  # fmt: skip
    said = (*deployment.notes, session.warning, session.parts.trouble, session.message)
    words = [part for text in said if text for part in textwrap.wrap(text, max(20, width - 2))[:4]]
    commands = session.phase in (Phase.POLICY, Phase.OPERATOR)
    lines = [
        bold(fit(title, width)),
        "",
        fit(f"arm       {report.state}", width),
        fit(f"filter    {report.warning or '–'}", width),
        fit(f"tool      {at}   {gripper}", width),
        "",
        (bold if commands else dim)(fit(f"command   {who(session)}", width)),
        fit(f"twist     {twist(session)}", width),
        fit(f"guard     {guard(session)}", width),
        fit(f"measured  {session.measured.short()}", width),
        "",
        fit(f"episode   {episode(session)}", width),
        fit(f"so far    {session.tally.short()}", width),
        "",
        *(fit(part, width) for part in words),
    ]
    keys = [dim(fit(part, width)) for text in HELP for part in textwrap.wrap(text, width)]
    room = height - len(keys)
    return [*lines[:room], *[""] * (room - len(lines)), *keys]


def line(session: Session) -> str:
    """What has changed, where there is no screen."""
    if session.dry_run and session.phase is Phase.POLICY:
        return f"would command {twist(session)} | {guard(session)} | {session.message}"
    said = "".join(f" | {text}" for text in (session.message, session.warning, session.parts.trouble) if text)
    return f"{phase(session)} | {len(session.tally.episodes) + (session.phase in OPEN)} of {session.episodes}{said}"


def who(session: Session) -> str:
    return f"{session.commander} commands" if session.phase in (Phase.POLICY, Phase.OPERATOR) else phase(session)


def phase(session: Session) -> str:
    return "the episode has ended" if session.phase is Phase.SAVING and not session.parts.on else session.phase.value


def twist(session: Session) -> str:
    v = session.twist
    return f"vx {v[0]:+.3f}  vy {v[1]:+.3f}  vz {v[2]:+.3f} m/s  ({math.hypot(*v[:3]):.3f})"


def guard(session: Session) -> str:
    guard = session.deployment.guard
    if guard is None:
        return "none"
    share = min(1.0, session.distance / guard.stop_at)
    full = round(BAR * share)
    return f"{'█' * full}{'·' * (BAR - full)} {session.distance:.2f}  slow {guard.slow_at:.2f}, stop {guard.stop_at:.2f}"


def episode(session: Session) -> str:
    number = len(session.tally.episodes) + (session.phase is not Phase.DONE)
    if session.phase not in OPEN:
        return f"{number} of {session.episodes}"
    seconds, most = time.monotonic() - session.began, session.deployment.time_limit_s
    return f"{number} of {session.episodes}, {seconds:5.1f} s of {most:.1f}, return {session.total:.1f}"
