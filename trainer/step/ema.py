"""EMA: an exponential moving average of the weights, which is validated and exported instead of them."""

from collections.abc import Callable

import torch
from torch import nn

Tensors = list[torch.Tensor]


def identity(tensors: Tensors) -> Tensors:
    """Return the tensors unchanged."""
    return tensors


class AveragedModel:
    """The exponential moving average of a model's weights (Polyak averaging with exponential decay).

    The decay starts at 0.1 and grows to its full value, (1 + n) / (10 + n) after n steps, so that the random initial
    weights don't dominate the average early on (Kingma and Ba's bias correction has the same purpose).
    """

    def __init__(
        self, copied: nn.Module, model: nn.Module, *, decay: float, local: Callable[[Tensors], Tensors] = identity
    ) -> None:
        """Make the average of a model.

        Args:
            copied: a copy of it without gradients, which becomes the average.
            model: the model in training.
            decay: the share of the average that each step keeps, in the long run.
            local: returns this process's shards of tensors.
        """
        self.model = copied.eval()
        self._decay = decay
        self._local = local
        self._ours: Tensors = list(self.model.parameters())
        self._theirs: Tensors = list(model.parameters())
        self._trained = model

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average after the model's `step`th step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._local(self._ours), self._local(self._theirs), 1.0 - decay)

    @torch.no_grad()
    def copy_buffers(self) -> None:
        """Copy the model's running statistics, which are averages already."""
        # Looked up each time: a model may assign new tensors to its buffers.
        for ours, theirs in zip(self.model.buffers(), self._trained.buffers(), strict=True):
            ours.copy_(theirs)
