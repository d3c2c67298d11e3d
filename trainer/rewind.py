"""What a failed step has changed although it never updated a weight: running statistics and random states."""

import torch
from torch import nn


class Rewind:
    """Remembers how a step began. Keeping costs two copies of the buffers' size and nothing is waited for."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._device = device
        self._live = list(model.buffers())
        self._kept = [buffer.clone() for buffer in self._live]
        self.keep()

    @torch.no_grad()
    def keep(self) -> None:
        """Remember how it is now, before a step."""
        if self._live:
            torch._foreach_copy_(self._kept, self._live)
        self._cpu_state = torch.get_rng_state()
        self._device_state = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the step's beginning."""
        if self._live:
            torch._foreach_copy_(self._live, self._kept)
        torch.set_rng_state(self._cpu_state)
        if self._device_state is not None:
            torch.cuda.set_rng_state(self._device_state, self._device)

    @torch.no_grad()
    def restore_buffers_where(self, skipped: torch.Tensor) -> None:
        """Take the buffers back if `skipped`, a scalar, is not 0: what made a gradient infinite is in them too."""
        for live, kept in zip(self._live, self._kept, strict=True):
            live.copy_(torch.where(skipped > 0, kept, live))
