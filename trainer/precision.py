"""What number formats a step computes in: autocast, loss scaling, TF32."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trainer.config import ComputeSettings

_DTYPES = {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Mixed precision of one process. With fp16 losses are scaled, so that small gradients don't become 0."""

    def __init__(self, settings: ComputeSettings, device: torch.device) -> None:
        self._dtype = _DTYPES[settings.amp]
        self._device = device
        self._scaler = torch.amp.GradScaler(device.type, enabled=settings.amp == "fp16")

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute what follows in the lower precision, where one is asked for."""
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Scale a loss for its backward pass."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the gradients their true size, in place; adapt the scale to whether they were finite."""
        if self._scaler.is_enabled():
            self._scaler.unscale_(optimizer)
            self._scaler.update()

    def state(self) -> dict[str, Any]:
        """Take the scale and how long it has been good; empty without scaling."""
        return self._scaler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """Go on with the scale that `state` took."""
        if self._scaler.is_enabled():
            self._scaler.load_state_dict(state)


def allow_tf32() -> None:
    """Let matrix products and convolutions round their inputs to TF32, on devices that have it."""
    # hipBLASLt asks the environment, when it is first used.
    os.environ.setdefault("HIPBLASLT_ALLOW_TF32", "1")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
