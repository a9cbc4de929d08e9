"""Behaviour cloning as an inner learner: the likelihood of the demonstrated actions, no environment needed."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import functional_call

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.gradient import Parameters, Terms
from cail_core.algorithms.inner.base import PairLearner
from cail_core.rl.networks import TanhGaussianActor


class BehaviourCloning(PairLearner):
    """L_in(θ, β) = E[β(s, a) · −log π_θ(a|s)], with π_θ(·|s) = N(mode_θ(s), σ²) in action space.

    The likelihood is taken where the robot acts, not before the squashing: there an action at its limit lies at
    infinity, and a clipped demonstration would outweigh all others. The outer loss ranks trajectories by
    R'(s, a) = log π_θ(a|s): a good policy finds good demonstrations likelier than bad ones. σ is given, not learned:
    a shrinking σ would stretch the learned returns until the first few pairs in order settle the ranking loss.
    """

    def __init__(self, actor: TanhGaussianActor, sigma: float) -> None:
        super().__init__()
        self.actor = actor
        self.sigma = sigma

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """log π_θ(a|s)."""
        error = (action - self.actor.mode(state)) / self.sigma
        return -(0.5 * error**2 + math.log(self.sigma) + 0.5 * math.log(2 * math.pi)).sum(-1)

    def mode(self, theta: Parameters, state: Tensor) -> Tensor:
        """What π_θ does."""
        net = {name.removeprefix("actor.net."): value for name, value in theta.items()}
        return torch.tanh(functional_call(self.actor.net, net, (self.actor.standardise(state),)))

    def theta(self) -> Parameters:
        """All but the exploration noise, which the likelihood does not look at."""
        return {name: value for name, value in super().theta().items() if name != "actor.log_std"}

    def load(self, theta: Parameters) -> None:
        self.load_state_dict({**self.state_dict(), **theta})

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        out: Tensor = functional_call(self, theta, (batch.state, batch.action))
        return out

    def terms(self, theta: Parameters, demo: Batch, other: Batch) -> Terms:
        reward = self.reward(theta, demo)
        return Terms(-reward, reward.new_zeros(()), reward)
