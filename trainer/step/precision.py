"""Mixed precision: autocast, loss scaling, TF32."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trainer.base.config import ComputeSettings

_DTYPES = {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Mixed precision of one process. fp16 scales losses, so that small gradients don't become 0."""

    def __init__(self, settings: ComputeSettings, device: torch.device) -> None:
        self._dtype = _DTYPES[settings.amp]
        self._device = device
        self._scaler = torch.amp.GradScaler(device.type, enabled=settings.amp == "fp16")

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context that computes in the lower precision, if one is set."""
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Scale a loss for its backward pass."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Unscale the gradients in place, and adapt the scale to whether they were finite."""
        if self._scaler.is_enabled():
            self._scaler.unscale_(optimizer)
            self._scaler.update()

    def state(self) -> dict[str, Any]:
        """Return the scaler's state; empty without scaling."""
        return self._scaler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """Restore the scaler's state; an empty one, of a run without scaling, leaves the scale as it is."""
        if self._scaler.is_enabled() and state:
            self._scaler.load_state_dict(state)


def allow_tf32() -> None:
    """Let matrix products and convolutions use TF32, on devices that have it."""
    # hipBLASLt reads the environment when it is first used.
    os.environ.setdefault("HIPBLASLT_ALLOW_TF32", "1")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
