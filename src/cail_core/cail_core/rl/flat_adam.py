"""Adam on a whole network at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

DECAY_MEAN, DECAY_SQUARE, TINY = 0.9, 0.999, 1e-8


class FlatAdam:
    """Adam (Kingma & Ba 2015) on all parameters of `module` as one vector, with the gradient scaled down to a largest norm.

    The networks here are so small that a step takes as long as it has calls, whatever their arithmetic. So the module's
    parameters become views into one vector, and a step is a handful of calls on that. Load weights into the module in place
    (`load_state_dict` does): a replaced parameter would be left behind.
    """

    def __init__(self, module: nn.Module, rate: float, max_grad_norm: float) -> None:
        self.rate = rate
        self._max_grad_norm = max_grad_norm
        self._parameters = list(module.parameters())
        self._vector = torch.cat([value.detach().flatten() for value in self._parameters])
        parts = torch.split(self._vector, [value.numel() for value in self._parameters])
        for value, part in zip(self._parameters, parts, strict=True):
            value.data = part.view_as(value)
        self._mean, self._square = torch.zeros_like(self._vector), torch.zeros_like(self._vector)
        self._steps = 0

    def descend(self, loss: Tensor) -> None:
        """One step against the gradient of `loss`."""
        slope = torch.cat([part.flatten() for part in torch.autograd.grad(loss, self._parameters)])
        slope *= (self._max_grad_norm / (slope.norm() + 1e-6)).clamp_max(1.0)
        self._steps += 1
        self._mean.lerp_(slope, 1 - DECAY_MEAN)
        self._square.mul_(DECAY_SQUARE).addcmul_(slope, slope, value=1 - DECAY_SQUARE)
        deviation = self._square.div(1 - DECAY_SQUARE**self._steps).sqrt_().add_(TINY)
        self._vector.addcdiv_(self._mean, deviation, value=-self.rate / (1 - DECAY_MEAN**self._steps))

    def state_dict(self) -> dict[str, Tensor | float]:
        return {"mean": self._mean, "square": self._square, "steps": self._steps, "rate": self.rate}

    def load_state_dict(self, state: dict[str, Tensor | float]) -> None:
        self._mean.copy_(torch.as_tensor(state["mean"]))
        self._square.copy_(torch.as_tensor(state["square"]))
        self._steps, self.rate = int(state["steps"]), float(state["rate"])
