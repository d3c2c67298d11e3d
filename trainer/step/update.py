"""Updates the weights with a gradient, unless it isn't finite."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, get_total_norm

from trainer.step.optimizers import can_skip_on_device
from trainer.step.precision import Precision


@dataclass(slots=True, kw_only=True)
class Update:
    """Clips the gradient and lets the optimizer step.

    The gradient is that of the whole batch, so all processes decide alike whether to skip. `gather` makes a whole
    tensor of a sharded one.
    """

    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    precision: Precision
    clip_norm: float
    gather: Callable[[torch.Tensor], torch.Tensor] | None = None
    skips_on_device: bool = field(init=False)
    """Whether the optimizer itself skips a step if told so by a tensor on the device; else the host waits for it."""

    def __post_init__(self) -> None:
        self.skips_on_device = can_skip_on_device(self.optimizer)

    def apply(self, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the optimizer's step; return the gradient's norm before clipping, and 1 if it was skipped, else 0."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        self.precision.unscale(self.optimizer)
        grad_norm = self._clip()
        # 1 for infinity and NaN, in two small operations; float32, because fused optimizers read that.
        skipped = (grad_norm * 0).ne_(0).float()
        if self.skips_on_device:
            # The attribute by which torch's own GradScaler makes a fused optimizer skip a step.
            self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
            self.optimizer.step()
        elif not skipped.item():
            self.optimizer.step()
        return grad_norm, skipped

    def _clip(self) -> torch.Tensor:
        if self.clip_norm:
            grad_norm = clip_grad_norm_(self.parameters, self.clip_norm)
        else:
            grad_norm = get_total_norm([item.grad for item in self.parameters if item.grad is not None])
        return self.gather(grad_norm) if self.gather else grad_norm
