"""An average of the weights over the last steps, which is what gets validated and exported."""

import copy

import torch
from torch import nn


class AveragedModel:
    """A copy of a model whose weights follow it slowly: Polyak averaging with exponential decay.

    The decay begins at 0.1 and grows to its full size, (1 + n) / (10 + n) after n steps (Kingma and Ba's bias
    correction has the same purpose): early on the average isn't held back by the random first weights.
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self.model = copy.deepcopy(model).requires_grad_(requires_grad=False).eval()
        self._decay = decay
        self._ours: list[torch.Tensor] = list(self.model.parameters())
        self._theirs: list[torch.Tensor] = list(model.parameters())
        self._buffers = list(zip(self.model.buffers(), model.buffers(), strict=True))

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move towards the model as it is after its `step`th step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._ours, self._theirs, 1.0 - decay)

    @torch.no_grad()
    def copy_buffers(self) -> None:
        """Take the model's running statistics as they are: they are averages already."""
        for ours, theirs in self._buffers:
            ours.copy_(theirs)
