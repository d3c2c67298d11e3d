"""How exactly a device computes: mixed precision and its loss scale, TF32, deterministic algorithms."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trainer.base.config import ComputeSettings
from trainer.base.errors import TrainerError, first_line

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


def set_numerics(settings: ComputeSettings) -> None:
    """Set what torch keeps per process: TF32, deterministic algorithms, the search for the fastest ones.

    Deterministic algorithms are only switched on here, because a recipe may have done so itself.
    """
    _set_tf32(allowed=settings.tf32)
    torch.backends.cudnn.benchmark = settings.benchmark
    if settings.deterministic:
        # cuBLAS reads this when it is first used; with it, its workspaces don't change the order of sums.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(mode=True)
        torch.backends.cudnn.deterministic = True


def _set_tf32(*, allowed: bool) -> None:
    """Set TF32 for matrix products and convolutions; torch's own default has it on for convolutions only.

    torch 2.9 has new settings besides the old ones. Where only the new ones are set, reading an old one raises, also
    in torch's own `cudnn.flags` (2.13). The old ones set both; the new ones then say the same.
    """
    if allowed:
        # hipBLASLt reads the environment when it is first used.
        os.environ.setdefault("HIPBLASLT_ALLOW_TF32", "1")
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    for backend in _list_fp32_backends():
        backend.fp32_precision = "tf32" if allowed else "ieee"


def _list_fp32_backends() -> list[Any]:
    """List what has the new setting: nothing before torch 2.9."""
    convolutions = [getattr(torch.backends.cudnn, name, None) for name in ("conv", "rnn")]
    if None in convolutions:
        return []
    return [torch.backends.cuda.matmul, *convolutions]


def explain_nondeterminism(err: Exception) -> TrainerError | None:
    """Turn torch's error about an operation without a deterministic implementation into one with a fix, else None."""
    texts = ("does not have a deterministic implementation", "Deterministic behavior was enabled")
    if not isinstance(err, RuntimeError) or not any(text in str(err) for text in texts):
        return None
    return TrainerError(
        "an operation of the model or the loss is not deterministic",
        why=first_line(err),
        fix="replace this operation, or use --set compute.deterministic=false",
    )
