"""Mean and deviation of a stream of numbers, as they stand so far."""

from __future__ import annotations

import torch
from torch import Tensor


class Running:
    """Of vectors: mean and deviation of all that was added (Chan et al. 1979), in double precision."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._mean = torch.zeros(dim, dtype=torch.float64)
        self._squares = torch.zeros(dim, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Rows of `x` [n, dim]."""
        x = x.double()
        n, total = len(x), self.count + len(x)
        mean = x.mean(dim=0)
        away = mean - self._mean
        self._squares += (x - mean).square().sum(dim=0) + away.square() * self.count * n / total
        self._mean += away * n / total
        self.count = total

    @property
    def mean(self) -> Tensor:
        return self._mean.float()

    @property
    def deviation(self) -> Tensor:
        """1 until something was added; never 0."""
        if self.count == 0:
            return torch.ones_like(self._mean).float()
        return (self._squares / self.count).sqrt().clamp(min=1e-4).float()

    def state_dict(self) -> dict[str, object]:
        return {"count": self.count, "mean": self._mean, "squares": self._squares}

    def load_state_dict(self, state: dict[str, object]) -> None:
        count, mean, squares = state["count"], state["mean"], state["squares"]
        assert isinstance(count, int)
        assert isinstance(mean, Tensor)
        assert isinstance(squares, Tensor)
        self.count, self._mean, self._squares = count, mean, squares


class DiscountedReturn:
    """How large returns are: the deviation of R_t = γ R_{t−1} + r_t over everything so far. Rewards divided by it give a critic
    targets of about 1, whatever the task pays.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self._gamma, self._running = gamma, Running(1)
        self._now = torch.zeros(num_envs)

    def restart(self) -> None:
        """All environments begin anew."""
        self._now = torch.zeros_like(self._now)

    def scale(self, reward: Tensor, ended: Tensor) -> Tensor:
        """Take in rewards and ends of episodes [T, n]; gives the deviation."""
        for r, end in zip(reward, ended, strict=True):
            self._now = self._gamma * self._now + r
            self._running.add(self._now[:, None])
            self._now = self._now * ~end
        return self._running.deviation

    def state_dict(self) -> dict[str, object]:
        return self._running.state_dict()

    def load_state_dict(self, state: dict[str, object]) -> None:
        self._running.load_state_dict(state)
