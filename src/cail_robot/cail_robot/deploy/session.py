"""A policy at work on an arm, step by step: who commands, when to stop, how episodes begin and end. Plain Python, no ROS.

One loop and one publisher: in each step either the policy commands, or the operator, or zero is commanded. Touching the teleop
device takes over in that very step.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

import numpy as np

from cail_core.demos.episode import INTERRUPTED
from cail_core.errors import CailError
from cail_core.recording.sync import ArmSample, Vector
from cail_robot.deploy.config import DeployConfig, Deployment, stale
from cail_robot.deploy.homing import WayHome, at_home, no_way_home
from cail_robot.deploy.phase import OPEN, Phase
from cail_robot.deploy.segments import Parts
from cail_robot.deploy.stats import Played, Tally, outcome_of_stop
from cail_robot.deploy.stress import WAY_OUT, Measuring
from cail_robot.recording.recorder import Recorder
from cail_robot.robot import Resets
from cail_robot.ros.arm_link import PolicyLink, let_go
from cail_robot.teleop.command import (
    FAILURE,
    GRIP,
    LEAVE,
    NOWHERE,
    QUIT,
    RECOVER,
    REDO,
    RESET,
    START,
    STOP,
    SUCCESS,
    UNLOCK,
    Confirmation,
    Input,
    Steering,
    Wish,
)

GRIP_AGAIN_S = 0.5
"""A gripper that is not where it was sent is told again this often."""
REPEAT_S = 0.04
"""A decision that holds for longer is said again: the arm holds without a command for 0.08 s."""
GRIPPER_S = 1.0
"""So long the gripper may take to open before the arm goes home."""
START_PATIENCE_S = 15.0
"""So long the recorder may be unable to begin, such as while the arm's rate is not known yet."""
HEARD_WITHIN_S = 1.0
"""An arm whose newest message is younger than this is there."""


class Session:
    """Call `step` until `phase` is DONE; each takes at most a decision's time."""

    def __init__(self, deployment: Deployment, config: DeployConfig, link: PolicyLink, source: Input, steering: Steering, *,
                 episodes: int, operator: str, attended: bool, simulated: bool, recorder: Recorder | None = None,
                 dry_run: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`attended`: somebody is at the input. `simulated`: episodes begin by themselves, no person is near the arm."""
        self.deployment, self.config, self.episodes, self.dry_run = deployment, config, episodes, dry_run
        self.link, self._input, self._steering, self._clock = link, source, steering, clock
        self._attended, self._simulated, self._operator = attended, simulated, operator
        self.parts = Parts(recorder)
        self.measured = Measuring(deployment.held, 1.0 / deployment.task.spec.fps)
        self.tally = Tally(measured=self.measured)
        self.phase = Phase.WAITING
        self.message = ""
        self.broken_off = False
        """Whether it ended by Ctrl-C or with the terminal, not by q."""
        self.fault = ""
        """Why the deployment ended before it was done."""
        self.warning = ""
        """What was measured beyond what the policy's card holds."""
        self.twist: Vector = NOWHERE
        """What was last commanded, or in a dry run would have been."""
        self.distance = 0.0
        self._name, self._policy = deployment.player(0)
        self.commander = self._name
        self._view = deployment.view()
        self._slower = deployment.slowed()
        self._moment: ArmSample | None = None
        self._stale: list[str] = []
        self._stale_since: float | None = None
        self._gripper: float | None = None
        self.total, self._takeovers, self._why = 0.0, 0, ""
        self._outcome, self._ended_ns = "", 0
        self._held = False
        self._held_since: float | None = None
        self._confirmation, self._gripped_at = Confirmation(), 0.0
        self._grace_s = min(config.stale_grace_s, math.inf if simulated else config.resume_within_s)
        self._next: Callable[[], None] = lambda: None
        self._way: WayHome | None = None
        self._period = 1.0 / deployment.rate
        self._asked = float("-inf")
        now = clock()
        self._deadline = now + self._period
        self._since = self.began = self._limit_from = self._heard = self._stepped = now

    # One step.

    def step(self) -> None:
        wish = self._wish()
        self._answer()
        self._do(wish)
        self.message = getattr(self._input, "trouble", "") or self.message
        now = self._clock()
        if now - self._stepped > self.config.resume_within_s:
            self._stood(f"this program stood still for {now - self._stepped:.1f} s")
        due = now >= self._deadline
        if due:
            late = self._deadline + self._period < now  # then it goes on from now instead of hurrying
            self._deadline = now + self._period if late else self._deadline + self._period
            self._look(now)
        self._act(wish, due, now)
        self._stepped = self._clock()

    def _wish(self) -> Wish:
        """What the operator wants; at once where they touch something, else when the next decision is due."""
        while True:
            wish = self._input.read(min(REPEAT_S, max(0.0, self._deadline - self._clock())))
            if wish != Wish() or self._clock() >= self._deadline:
                return wish
            if self.phase in (Phase.POLICY, Phase.HOMING):  # a slow policy's decision holds until the next; the arm wants it said
                self.link.move(self.twist)  # type: ignore[arg-type]

    def _stood(self, why: str) -> None:
        """The arm rested long enough for a person to step closer: at a real arm one must say that it goes on."""
        if self._simulated or self.dry_run:
            return
        if self.phase is Phase.POLICY:
            self._stop(why, INTERRUPTED)
        elif self.phase is Phase.HOMING:
            self._by_hand(self._prepare, f"{why}: Enter lets the arm go on to its start")
        elif self.phase is Phase.SETTLING:
            self._by_hand(lambda: self._become(Phase.SETTLING), f"{why}: Enter starts the episode")

    def _become(self, phase: Phase, message: str = "") -> None:
        self.phase, self._since = phase, self._clock()
        self.message = message

    # What the operator does.

    def _do(self, wish: Wish) -> None:
        touched = wish.axes != NOWHERE or wish.held or GRIP in wish.events
        if touched and not self.dry_run:
            if self.phase in (Phase.POLICY, Phase.STOPPED):
                self._take_over()
            elif self.phase is Phase.HOMING:
                self._by_hand(self._prepare, "you stopped the way back: drive on by hand, Enter lets the arm go on")
        for event in wish.events:
            try:
                self._event(event)
            except CailError as fault:
                self.message = str(fault)

    def _event(self, event: str) -> None:
        if event in (QUIT, LEAVE):
            self.broken_off = event == LEAVE
            self._end("")
        elif event == STOP:
            if not self.dry_run:
                self.link.stop()
            if self.phase in OPEN:
                self._stop("you stopped the arm: c clears it, then Enter goes on")
        elif self.dry_run:
            return
        elif event == RECOVER:
            self.link.permit()
        elif event == UNLOCK:
            if self._confirmation.given(self._clock()):
                self.link.unlock()
            else:
                self.message = Confirmation.QUESTION
        elif event == START:
            if self.phase is Phase.BY_HAND:
                self._next()
            elif self.phase is Phase.OPERATOR:
                self._give_back()
            elif self.phase is Phase.STOPPED:
                self._limit_from += self._clock() - self._since  # waiting for a person is not the policy's time
                self._become(Phase.POLICY, "the policy goes on")
        elif event == GRIP and self.phase in (Phase.OPERATOR, Phase.BY_HAND):
            opening = self.link.report.gripper or 0.0
            closed = self._gripper < 0.5 if self._gripper is not None else opening < 0.7
            self._grip(1.0 if closed else 0.0)
        elif event in (SUCCESS, FAILURE) and self.phase in OPEN:
            self._finish("success" if event == SUCCESS else "failure", "the operator said so")
        elif event == REDO and self.phase in OPEN:
            self.tally.discarded += 1
            self._become(Phase.SAVING, "discarded; once more")
            self._outcome = ""
            self.parts.discard()
        elif event == RESET and self.phase is Phase.BY_HAND:
            self.link.reset()

    def _take_over(self) -> None:
        before, self.commander = self.commander, self._operator
        self.tally.takeovers += 1
        self._takeovers += 1
        self._become(Phase.OPERATOR, "you command: Enter gives back to the policy, s and f end the episode")
        self._tell("takeover")
        self.parts.cut("failure", before, self._operator)

    def _give_back(self) -> None:
        before, self.commander = self.commander, self._name
        self._limit_from = self._clock()
        if self._moment is not None:
            x, y, z, *_ = self._moment.executed
            self._slower.begin((x, y, z))
        self._become(Phase.POLICY, "the policy commands again")
        self._tell("given back")
        self.parts.cut("unknown", before, self.commander)

    def _tell(self, event: str) -> None:
        self.link.tell(json.dumps({"event": event, "by": self.commander, "recording": True, "time": time.time()}))

    # What is seen.

    def _look(self, now: float) -> None:
        ages = self.link.ages()
        if self._simulated and self.link.simulated is False:
            return self._end("expected a simulated arm, the node on its topics is that of a real one; nothing was commanded")
        self._stale = stale(ages, self.config) + self.link.wrong_frames
        if min(ages["ee_pose"], ages["twist_executed"]) < HEARD_WITHIN_S:
            self._heard = now
        elif now - self._heard > self.config.lost_after_s and self.phase is not Phase.WAITING:
            return self._end(f"the arm's node has been silent for {now - self._heard:.0f} s; whatever happened to it, its own"
                             " watchdog brings the arm to rest without commands")  # fmt: skip
        if self.link.permitted:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = now
        elif now - self._held_since > self.config.resume_within_s and self.link.state in ("ENABLED", "HOLDING"):
            self._stood(f"the arm held: {self.link.report.state}")
        self.parts.check()
        self._moment = None if self._stale else self.link.look(self._gripper)
        self._measure(now, ages)
        if self.phase not in OPEN:
            return None
        outcome = None
        if self._moment is not None:
            reward, outcome = self._view.advance(self._moment, self._moment.executed)
            self.total += reward if self.phase is not Phase.STOPPED else 0.0  # waiting for a person is no one's doing
        if self.dry_run:
            if now - self._since > self.deployment.time_limit_s * self.episodes:
                self._end("")
        elif outcome is not None:
            self._finish(outcome)
        elif self.phase is Phase.POLICY and now - self._limit_from > self.deployment.time_limit_s:
            self._finish("timeout")
        return None

    def _measure(self, now: float, ages: dict[str, float]) -> None:
        """At rest what is seen; in motion how late. At a real arm what its card does not hold stops the policy."""
        known = self.measured.enough
        late = [self.measured.executed(now - age, twist) for age, twist in self.link.executed()]
        rests = self.dry_run or (self.phase is Phase.SETTLING and now - self._since >= self.config.settle_s)
        if not known and self._moment is not None and rests:
            self.measured.at_rest(now, ages, self._moment.things)
        if not (any(late) or self.measured.enough > known) or not (beyond := self.measured.beyond()):
            return None
        text, warned = f"beyond what its card holds: {'; '.join(beyond)}", bool(self.warning)
        goes_on = self._simulated or self.dry_run or self.deployment.beyond_stress or warned
        if not goes_on and self.phase is not Phase.POLICY:
            return self._end(f"not started, {text}; {WAY_OUT}")
        self.warning = text
        if not goes_on:
            self._stop(text, INTERRUPTED)
        return None

    def _answer(self) -> None:
        """What the arm's services answered."""
        if (answer := self.link.answer()) is not None:
            what, done, words = answer
            if what == "reset" and self.phase is Phase.RESETTING:
                if done:
                    self._gripper = None
                    self._become(Phase.SETTLING)
                elif self._simulated and not self._attended:
                    self._end(words)
                else:
                    self._by_hand(lambda: self._become(Phase.SETTLING), f"{words}; Enter starts the episode")
            elif not done or what in ("enable", "clear_fault"):
                self.message = words

    # What is commanded.

    def _act(self, wish: Wish, due: bool, now: float) -> None:
        if self.phase in (Phase.OPERATOR, Phase.BY_HAND):
            self._move(self._steering.twist(wish))
            return
        if not due:
            return
        twist: Vector = NOWHERE
        if self.phase is Phase.WAITING:
            self._wait(now)
        elif self.phase is Phase.HOMING:
            twist = self._homewards(now)
        elif self.phase is Phase.SETTLING:
            self._settle(now)
        elif self.phase is Phase.POLICY:
            twist = self._decide(now)
        elif self.phase is Phase.STOPPED and not self._attended and now - self._since > self.config.settle_s:
            self._finish(self._outcome, self._why)
        elif self.phase is Phase.ENDING:
            by_task = not self._why and self._outcome != "timeout"
            if not by_task or self.parts.has_recorded(self._ended_ns) or now - self._since > self.config.settle_s:
                self._become(Phase.SAVING, self.message)
                self.parts.cut(self._outcome, self.commander, why=self._why)
        elif self.phase is Phase.SAVING and not self.parts.busy:
            self._count()
        self._move(twist)

    def _move(self, twist: Vector) -> None:
        self.twist = twist
        x, y, z, a, b, c = twist
        self.link.move((x, y, z, a, b, c))
        self.measured.commanded(self._clock(), twist if self.phase is Phase.POLICY else NOWHERE)

    def _gripped(self) -> bool:
        """Whether the fingers are where they were sent; a closed hand that holds something never is."""
        return abs((self.link.report.gripper or 0.0) - (self._gripper or 0.0)) < 0.05

    def _grip(self, opening: float) -> None:
        self._gripper, self._gripped_at = opening, self._clock()
        self.link.grip(opening)

    def _wait(self, now: float) -> None:
        """Until all inputs come and the arm may move."""
        if self._moment is None:
            self.message = f"waiting for {', '.join(self._stale) or 'the topics'}"
            if now - self._since > 6 * self.config.lost_after_s and not self._attended:
                self._end(f"waited {now - self._since:.0f} s: {', '.join(self._stale)}; is the arm's node up, and the tracker?")
        elif self.dry_run:
            self._view.begin(self._moment)
            self._become(Phase.POLICY, "a dry run: nothing is commanded")
        elif self.link.permitted and self.link.ready:
            if self._simulated:
                self._prepare()
            else:
                self._by_hand(self._prepare, "Enter: the gripper opens and the arm goes to the start of an episode")
        elif self._simulated and now - self._asked > 1.0 and self.link.state in ("IDLE", "HOLDING", "ENABLED"):
            self._asked = now
            self.link.permit()
        elif not self._simulated or self.link.state == "FAULT":
            self.message = "c permits motion, or clears a fault"
            if self.link.state == "FAULT" and not self._attended:
                self._end(f"the arm is in {self.link.report.state}; somebody must clear it")

    def _decide(self, now: float) -> Vector:
        """The policy's twist; where it has none, it begins from rest when it has one again."""
        twist = self._decided(now)
        if twist == NOWHERE:
            self._slower.begin()
        return twist

    def _decided(self, now: float) -> Vector:
        """The policy's twist, as far as the inputs, the guard and the arm allow one."""
        if self._stale and not self.dry_run:
            if self._stale_since is None:
                self._stale_since = now
                self.tally.stale_stops += 1
            self.message = f"no command: {', '.join(self._stale)}"
            if now - self._stale_since > self._grace_s:
                self._stop(f"no command: {', '.join(self._stale)}", INTERRUPTED)
            return NOWHERE
        if self._stale_since is not None:
            self._stale_since, self.message = None, "all inputs are fresh again"
        if self._moment is None:
            self.message = f"no command: {', '.join(self._stale)}"
            return NOWHERE
        if not self.link.permitted and not self.dry_run:
            if self.link.state not in ("ENABLED", "HOLDING"):
                self._stop(f"the arm stopped: {self.link.report.state}", outcome_of_stop(self.link.report.code))
            elif not self._held:
                self._held = True
                self.tally.holds += 1
                self.message = self.link.report.state
            return NOWHERE  # which is also what an arm that holds waits for
        if self.link.note and not self.dry_run:
            self._stop(self.link.note, INTERRUPTED)
            return NOWHERE
        self._held = False
        observation = np.array(self._view.observe(self._moment), dtype=np.float32)
        self.tally.decisions += 1
        share = self._guarded(observation)
        if share == 0.0:
            return NOWHERE
        action = self._policy(observation).tolist()
        opening = self._view.gripper(self._moment, action)
        if opening is not None and opening != self._gripper and not self.dry_run:
            self._grip(opening)
        elif self._gripper is not None and now - self._gripped_at > GRIP_AGAIN_S and not self._gripped() and not self.dry_run:
            self._grip(self._gripper)  # the arm's node refuses one that comes while it holds
        return tuple(share * v for v in self._slower.twist(self._view.twist(action)))

    def _guarded(self, observation: np.ndarray) -> float:
        """The share of its speed that the guard leaves the policy."""
        guard = self.deployment.guard
        if guard is None:
            return 1.0
        self.distance = guard.distance(observation)
        share = guard.speed(self.distance)
        self.tally.slowed += share < 1.0
        if share == 0.0:
            text = f"the guard stopped the policy: {self.distance:.2f} from what it learned from, at most {guard.stop_at:.2f}"
            if self.dry_run:
                self.message = text
            else:
                self.tally.guard_stops += 1
                self._stop(text)
        elif share < 1.0:
            self.message = f"the guard slows to {share:.0%}: {self.distance:.2f} from what it learned from"
        return share

    def _stop(self, why: str, outcome: str = "failure") -> None:
        """`outcome`: what the episode comes to if nobody goes on with it."""
        self._why, self._outcome = why, outcome
        self._become(Phase.STOPPED, why + (" (drive on by hand, Enter: policy, f: end)" if self._attended else ""))
        self._tell("stopped")

    # Episodes.

    def _by_hand(self, then: Callable[[], None], message: str) -> None:
        self._next = then
        self._become(Phase.BY_HAND, message)

    def _prepare(self) -> None:
        """To the start of the next episode: the arm first, then the scene."""
        home = self.deployment.start()
        if home is None or self.deployment.robot.resets is Resets.ALL or self._moment is None:
            return self._put_back()
        if at_home(self._moment.pose, home, self.deployment.limits, self.config):
            return self._put_back()
        if why := no_way_home(self._moment.pose, home, self.deployment.limits, self.config):
            return self._by_hand(self._prepare, f"{why}: drive the arm back by hand, then Enter")
        self._way = WayHome(self._moment.pose, home, self.deployment.limits, self.config)
        self._grip(1.0)
        self._become(Phase.HOMING, "the arm goes back to its start: up, across, down")
        return None

    def _homewards(self, now: float) -> Vector:
        if not self.link.permitted and self.link.state not in ("ENABLED", "HOLDING"):
            self._become(Phase.WAITING)
        elif now - self._since > self.config.home_limit_s:
            self._by_hand(self._prepare, f"no way back within {self.config.home_limit_s:g} s: drive by hand, or Enter")
            return NOWHERE
        if self._moment is None or self._way is None or now - self._since < GRIPPER_S:
            return NOWHERE
        if not self.link.permitted:  # the arm holds, and waits for a zero command
            return NOWHERE
        twist = self._way.twist(self._moment.pose)
        if twist is None:
            self._put_back()
        return twist or NOWHERE

    def _put_back(self) -> None:
        self._name, self._policy = self.deployment.player(len(self.tally.episodes))
        self._become(Phase.RESETTING)
        self.link.reset()

    def _settle(self, now: float) -> None:
        if now - self._since < self.config.settle_s or self.parts.busy:
            return
        if self._moment is not None and not self.measured.enough:
            self.message = "measuring the arm and its tracker at rest"
            return
        if not self.parts.open:
            if now - self._since > START_PATIENCE_S:
                self._end(self.parts.trouble)
            else:
                self.parts.start(self._name)
            return
        if self._moment is None or not self.link.permitted:
            if now - self._since > START_PATIENCE_S:
                self._become(Phase.WAITING)
            return
        self._view.begin(self._moment)
        self._slower.begin()
        self.total, self._takeovers, self._why = 0.0, 0, ""
        self.began = self._limit_from = now
        self._stale_since, self._held = None, False
        self.commander = self._name
        self._become(Phase.POLICY)
        self._tell("started")

    def _finish(self, outcome: str, why: str = "") -> None:
        self._outcome, self._why = outcome, why
        self._ended_ns = self._moment.stamp_ns if self._moment is not None else 0
        self._become(Phase.ENDING, f"{outcome}{f': {why}' if why else ''}")
        self._played = Played(outcome, self.total, self._clock() - self.began, self._takeovers, why)

    def _count(self) -> None:
        if self._outcome:
            self.tally.episodes.append(self._played)
        self.tally.unrecorded = self.parts.lost
        if len(self.tally.episodes) >= self.episodes:
            self._end("")
        elif self.link.state not in ("ENABLED", "HOLDING"):
            self._become(Phase.WAITING)
        elif self._simulated:
            self._prepare()
        else:
            self._by_hand(self._prepare, f"{self.message}; Enter: the gripper opens and the arm goes back to its start")

    def _end(self, fault: str) -> None:
        self.fault = fault
        self._become(Phase.DONE, fault)

    def close(self, *, latch: bool = False) -> None:
        """No motion, nor a permission to move that nobody uses; what is open is not kept, what is being saved is completed.

        `latch`: it was broken off, so the stop is latched. So it is after a fault.
        """
        if not self.dry_run:
            let_go(self.link, latch=latch or self.broken_off or bool(self.fault))
        self.parts.close()
        self._input.close()
