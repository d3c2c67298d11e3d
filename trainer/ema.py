"""An average of the weights over the last steps, which is what gets validated and exported."""

from collections.abc import Callable

import torch
from torch import nn

Tensors = list[torch.Tensor]


def all_of(tensors: Tensors) -> Tensors:
    """Return them as they are."""
    return tensors


class AveragedModel:
    """A copy of a model whose weights follow it slowly: Polyak averaging with exponential decay.

    The decay begins at 0.1 and grows to its full size, (1 + n) / (10 + n) after n steps (Kingma and Ba's bias
    correction has the same purpose): early on the average isn't held back by the random first weights.
    """

    def __init__(
        self, copied: nn.Module, model: nn.Module, *, decay: float, local: Callable[[Tensors], Tensors] = all_of
    ) -> None:
        """Make the average of a model.

        Args:
            copied: its copy without gradients, which becomes the average.
            model: the model in training.
            decay: how much of the average stays in each step, in the long run.
            local: takes the part of tensors that this process holds.
        """
        self.model = copied.eval()
        self._decay = decay
        self._local = local
        self._ours: Tensors = list(self.model.parameters())
        self._theirs: Tensors = list(model.parameters())
        self._buffers = list(zip(self.model.buffers(), model.buffers(), strict=True))

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move towards the model as it is after its `step`th step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._local(self._ours), self._local(self._theirs), 1.0 - decay)

    @torch.no_grad()
    def copy_buffers(self) -> None:
        """Take the model's running statistics as they are: they are averages already."""
        for ours, theirs in self._buffers:
            ours.copy_(theirs)
