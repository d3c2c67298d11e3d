"""Undoes the side effects of a failed step, which updated no weight: running statistics and random states."""

import torch
from torch import nn


class StepRollback:
    """Records the state before a step, to restore it. Recording costs a copy of the buffers, and no device sync."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._device = device
        self._live = list(model.buffers())
        self._recorded = [buffer.clone() for buffer in self._live]
        self.record()

    @torch.no_grad()
    def record(self) -> None:
        """Record the state before a step."""
        if self._live:
            torch._foreach_copy_(self._recorded, self._live)
        self._cpu_state = torch.get_rng_state()
        self._device_state = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the recorded state."""
        if self._live:
            torch._foreach_copy_(self._live, self._recorded)
        torch.set_rng_state(self._cpu_state)
        if self._device_state is not None:
            torch.cuda.set_rng_state(self._device_state, self._device)

    @torch.no_grad()
    def restore_buffers_if_skipped(self, skipped: torch.Tensor) -> None:
        """Restore the buffers if `skipped`, a scalar, is not 0: they may have non-finite values like the gradient."""
        for live, recorded in zip(self._live, self._recorded, strict=True):
            live.copy_(torch.where(skipped > 0, recorded, live))
