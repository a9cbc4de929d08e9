"""The networks of the learners: a plain MLP, the tanh-squashed Gaussian actor and the critic of the paper's appendix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from cail_core.policy import ACTION_BOUND, Gates

MIN_LOG_STD, MAX_LOG_STD = -5.0, 2.0


def mlp(sizes: Sequence[int], activation: type[nn.Module], generator: torch.Generator, output_gain: float = 1.0) -> nn.Sequential:
    """Linear layers `sizes[0]` → … → `sizes[-1]`, `activation` after all but the last; orthogonal start, zero biases."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        last = i == len(sizes) - 2
        # skip_init: the default start would draw from the global generator.
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
        nn.init.orthogonal_(layer.weight, output_gain if last else math.sqrt(2.0), generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, activation()]
    return nn.Sequential(*layers)


def relu_mlp(theta: Mapping[str, Tensor], name: str, depth: int, x: Tensor) -> Tensor:
    """What an `mlp` with ReLU of `depth` linear layers gives with the parameters `theta`, where it is called `name`.

    Twice as fast as `functional_call` on networks this small.
    """
    for i in range(depth - 1):
        x = functional.linear(x, theta[f"{name}.{2 * i}.weight"], theta[f"{name}.{2 * i}.bias"]).relu()
    return functional.linear(x, theta[f"{name}.{2 * depth - 2}.weight"], theta[f"{name}.{2 * depth - 2}.bias"])


class Standardise(nn.Module):
    """(x − mean) / scale with fixed numbers; the identity until `set` is called. What `gates` hide becomes 0."""

    mean: Tensor
    scale: Tensor
    gates: Gates | None = None

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def set(self, mean: Tensor, scale: Tensor) -> None:
        self.mean.copy_(mean)
        self.scale.copy_(scale)

    def forward(self, x: Tensor) -> Tensor:
        seen = (x - self.mean) / self.scale
        if self.gates is None:
            return seen
        for hidden, columns, low, high in self.gates.indexed:
            asked = x[..., columns]
            here = ((asked >= torch.as_tensor(low)) & (asked <= torch.as_tensor(high))).all(dim=-1, keepdim=True)
            seen = seen * (1.0 - here * torch.as_tensor(hidden))
        return seen


def squash_log_det(u: Tensor) -> Tensor:
    """log |d tanh(u) / du| = log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), exact also where tanh rounds to ±1."""
    return 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))


def unsquash(action: Tensor) -> Tensor:
    """u = tanh⁻¹(a), with a first moved inside ±`ACTION_BOUND`."""
    return torch.atanh(action.clamp(-ACTION_BOUND, ACTION_BOUND))


class TanhGaussianActor(nn.Module):
    """π(a|s): a = tanh(u), u ~ N(m(s), σ²), 2×64 tanh by default.

    σ is one learned number per action, or with `state_dependent_std` a second head of the network.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        generator: torch.Generator,
        *,
        hidden: Sequence[int] = (64, 64),
        activation: type[nn.Module] = nn.Tanh,
        initial_log_std: float = -2.0,
        state_dependent_std: bool = False,
    ) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.standardise = Standardise(observation_dim)
        # The small output gain starts the policy at rest: a ≈ 0 in every state.
        heads = 2 if state_dependent_std else 1
        self.net = mlp([observation_dim, *hidden, heads * action_dim], activation, generator, output_gain=0.01)
        self.log_std = None if state_dependent_std else nn.Parameter(torch.full((action_dim,), initial_log_std))

    def gaussian(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """(m(s), log σ) before squashing."""
        return self.gaussian_at(self.standardise(observation))

    def gaussian_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`gaussian` of observations that are standardised already."""
        out = self.net(x)
        if self.log_std is not None:
            return out, self.log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)
        mean, raw = out.chunk(2, dim=-1)
        return mean, MIN_LOG_STD + 0.5 * (MAX_LOG_STD - MIN_LOG_STD) * (torch.tanh(raw) + 1.0)

    def mode(self, observation: Tensor) -> Tensor:
        """tanh(m(s)): what the policy does without exploration."""
        return torch.tanh(self.gaussian(observation)[0])

    def sample(self, observation: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """An action inside ±`ACTION_BOUND` and its log π(a|s), the very number that `log_prob` gives for it later."""
        mean, log_std = self.gaussian(observation)
        u = mean + log_std.exp() * torch.randn(mean.shape, generator=generator)
        action = torch.tanh(u).clamp(-ACTION_BOUND, ACTION_BOUND)
        return action, self._log_prob(mean, log_std, action)

    def log_prob(self, observation: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) = log N(u; m, σ²) − log(1 − tanh² u) with u = tanh⁻¹(a), summed over the action's entries."""
        return self._log_prob(*self.gaussian(observation), action)

    def reparameterised(self, observation: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A sample a = tanh(m + σ ε) and its log-probability, both differentiable in the network (what SAC needs)."""
        return self.reparameterised_at(self.standardise(observation), generator)

    def reparameterised_at(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`reparameterised` for observations that are standardised already."""
        mean, log_std = self.gaussian_at(x)
        noise = torch.randn(mean.shape, generator=generator)
        u = mean + log_std.exp() * noise
        return torch.tanh(u), _normal_log_prob(noise, log_std) - squash_log_det(u).sum(dim=-1)

    def gaussian_log_prob(self, x: Tensor, u: Tensor) -> Tensor:
        """log N(u; m, σ²) of standardised observations: log π(a|s) but for the squashing, in which no weight takes part."""
        mean, log_std = self.gaussian_at(x)
        return _normal_log_prob((u - mean) * torch.exp(-log_std), log_std)

    @staticmethod
    def _log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        u = unsquash(action)
        return _normal_log_prob((u - mean) * torch.exp(-log_std), log_std) - squash_log_det(u).sum(dim=-1)


def _normal_log_prob(noise: Tensor, log_std: Tensor) -> Tensor:
    """log N(u; m, σ²) with noise = (u − m)/σ, summed over the entries."""
    constant = 0.5 * math.log(2.0 * math.pi) * noise.shape[-1]
    return -0.5 * noise.square().sum(dim=-1) - log_std.sum(dim=-1) - constant


class Critic(nn.Module):
    """V(s), 2×64 tanh by default."""

    def __init__(self, observation_dim: int, generator: torch.Generator, *, hidden: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        self.standardise = Standardise(observation_dim)
        self.net = mlp([observation_dim, *hidden, 1], nn.Tanh, generator)

    def forward(self, observation: Tensor) -> Tensor:
        value: Tensor = self.net(self.standardise(observation)).squeeze(-1)
        return value
