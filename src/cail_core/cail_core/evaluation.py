"""How good a policy is: returns and successes over episodes that nothing else uses, with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cail_core.errors import BadInput
from cail_core.policy import Mode
from cail_core.tasks.base import Array, BatchEnv, Flags, PlayingEnv, Task

EVALUATION_STREAM = 0x6576616C  # keeps these episodes apart from training's, also under the same seed
STRETCH = 50
"""Steps that environments play on their own at a time."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """One entry per episode. `success` means little for a task whose spec says `has_success` False."""

    returns: Floats
    lengths: NDArray[np.int64]
    success: Flags

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        return float(self.returns.std())

    @property
    def success_rate(self) -> float:
        return float(self.success.mean())

    def mean_interval(self) -> tuple[float, float]:
        """95% interval of the mean return by the bootstrap: returns are often far from Gaussian."""
        n = len(self.returns)
        means = self.returns[np.random.default_rng(0).integers(0, n, (2000, n))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        return float(low), float(high)

    def success_interval(self) -> tuple[float, float]:
        """95% Wilson interval of the success rate; it stays sensible at 0% and 100%."""
        n, z = len(self.success), 1.96
        centre = (self.success_rate + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * math.sqrt(self.success_rate * (1 - self.success_rate) / n + z**2 / (4 * n**2))
        return max(0.0, centre - half), min(1.0, centre + half)


def evaluate(task: Task, policy: Callable[[Array], Array], episodes: int = 100, seed: int = 0, num_envs: int = 20) -> Evaluation:
    """Let `policy` (a batch of observations to a batch of actions) play `episodes` episodes in environments made for this.

    Each environment gives its share of the episodes from its first on: taking whichever episodes end first would favour
    the short ones.
    """
    if episodes < 1:
        raise BadInput(f"expected at least 1 episode to evaluate, given {episodes}")
    n = min(num_envs, episodes, task.spec.most_envs)
    share = np.full(n, episodes // n)
    share[: episodes % n] += 1
    env = task.make_env(n)
    try:
        observation = env.reset(int(np.random.SeedSequence((seed, EVALUATION_STREAM)).generate_state(1)[0]))
        total, length, done = np.zeros(n), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        finished: list[list[tuple[float, int, bool]]] = [[] for _ in range(n)]
        steps = _steps(env, policy, observation)
        while (done < share).any():
            reward, ended, succeeded = next(steps)
            total += reward
            length += 1
            for i in np.flatnonzero(ended):
                if done[i] < share[i]:
                    finished[i].append((float(total[i]), int(length[i]), bool(succeeded[i])))
                total[i], length[i] = 0.0, 0
                done[i] += 1
    finally:
        env.close()
    returns, lengths, success = zip(*(episode for of_env in finished for episode in of_env), strict=True)
    return Evaluation(np.array(returns), np.array(lengths, dtype=np.int64), np.array(success, dtype=np.bool_))


def _steps(env: BatchEnv, policy: Callable[[Array], Array], observation: Array) -> Iterator[tuple[Array, Flags, Flags]]:
    """Reward, end and success of each environment, step after step."""
    while isinstance(env, PlayingEnv) and isinstance(policy, Mode):
        played = env.play(policy.network, STRETCH)
        yield from zip(played.reward, played.terminated | played.truncated, played.success, strict=True)
    while True:
        step = env.step(policy(observation))
        observation = step.observation
        yield step.reward, step.terminated | step.truncated, step.success


def references(task: Task, seed: int) -> dict[str, Callable[[Array], Array]]:
    """What any policy must beat: doing nothing, and acting at random."""
    rng, actions = np.random.default_rng(seed), task.spec.action_dim
    return {"idle": lambda x: np.zeros((len(x), actions), np.float32),
            "random": lambda x: rng.uniform(-1, 1, (len(x), actions)).astype(np.float32)}


def describe(result: Evaluation, has_success: bool) -> str:
    """The lines that `cail eval` prints."""
    low, high = result.mean_interval()
    lines = [
        f"return: {result.mean:.2f} ± {result.std:.2f}",
        f"        95% interval of the mean: {low:.2f} … {high:.2f} ({len(result.returns)} episodes)",
    ]
    if has_success:
        low, high = result.success_interval()
        lines += [f"success: {100 * result.success_rate:.1f}%", f"        95% interval: {100 * low:.1f}% … {100 * high:.1f}%"]
    return "\n".join(lines)


def plot(result: Evaluation, title: str, file: Path) -> None:
    """A histogram of the returns, successes and failures apart, with the mean and its interval."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    groups = [("success", result.success, "#2a9d6f"), ("no success", ~result.success, "#d1495b")]
    if not result.success.any():
        groups = [("episodes", ~result.success, "#3d6fb4")]
    edges = np.histogram_bin_edges(result.returns, bins="auto")
    axes.hist([result.returns[which] for _, which, _ in groups], edges.tolist(), stacked=True,
              color=[colour for _, _, colour in groups], label=[f"{name} ({which.sum()})" for name, which, _ in groups])
    axes.axvline(result.mean, color="black", label=f"mean {result.mean:.2f}")
    axes.axvspan(*result.mean_interval(), color="black", alpha=0.15, label="95% interval of the mean")
    axes.set(xlabel="return of an episode", ylabel="episodes", title=title)
    axes.legend()
    try:
        figure.savefig(file, dpi=120)
    except (OSError, ValueError) as fault:
        raise BadInput(f"{file}: cannot write the plot: {fault}") from None
    finally:
        pyplot.close(figure)
