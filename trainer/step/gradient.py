"""Computes the gradient of the global batch: accumulated over micro-batches, averaged over processes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.data.batch import split_batch
from trainer.group.distributed import ProcessGroup
from trainer.group.through import Through
from trainer.step.precision import Precision

Loss = Callable[[nn.Module, Batch, Moment], torch.Tensor]
Weight = Callable[[Batch], float | torch.Tensor]
TotalWeight = float | torch.Tensor | None


@dataclass(slots=True, kw_only=True)
class GradientPass:
    """The forward and backward passes of a step.

    Attributes:
        share: this process's samples of a batch; a batch of another size isn't seen to be one unless it is split.
        through: calls the loss with the model (`trainer.group.through.Through`), in DDP's forward pass if wrapped.
        weight: how much a batch's mean counts; None: all micro-batches and processes count the same.
        must_reduce_first: the first backward pass can't leave out the all-reduce (DDP's static graph).
        has_collectives: the forward pass has collectives (SyncBN, or a sharded model).
        is_reducing: whether the current pass has, or may have, joined a collective: it can't be repeated alone then.
    """

    group: ProcessGroup
    share: int
    through: nn.Module
    loss: Loss
    weight: Weight | None
    precision: Precision
    parameters: list[nn.Parameter]
    is_sharded: bool = False
    must_reduce_first: bool = False
    has_collectives: bool = False
    is_reducing: bool = False
    call: Callable[..., torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        is_alone = isinstance(self.through, Through) and not self.is_sharded
        self.call = self.through.forward if is_alone else self.through  # without hooks a module's call is not needed

    @property
    def can_repeat(self) -> bool:
        """Whether this process may repeat a failed pass: no other one waits for it, and FSDP holds nothing of it."""
        return not self.is_sharded and (self.group.size == 1 or not self.is_reducing)

    def sum_weights(self, batch: Batch) -> TotalWeight:
        """Sum the batch's weight over the processes; None if the recipe has no weights. Collective."""
        if self.weight is None:
            return None
        mine = self.weight(batch)
        if isinstance(mine, torch.Tensor):
            return self.group.all_reduce_sum(mine.detach().double())
        (total,) = self.group.all_reduce_sums([float(mine)])
        return total

    def compute(self, batch: Batch, moment: Moment, *, micro_batch: int, total_weight: TotalWeight) -> torch.Tensor:
        """Accumulate the gradient of all micro-batches; the last backward pass all-reduces it.

        Returns:
            This process's share of the loss, a scalar on the device: the mean over the processes is the batch's.
        """
        for parameter in self.parameters:
            parameter.grad = None  # what zero_grad does, without its profiler's hook
        self.is_reducing = self.has_collectives
        parts = [batch] if micro_batch >= self.share else split_batch(batch, micro_batch, samples=self.share)
        losses = [
            self._backward(part, moment, len(parts), total_weight, reduces=number == len(parts))
            for number, part in enumerate(parts, start=1)
        ]
        return losses[0] if len(losses) == 1 else sum(losses, start=torch.zeros((), device=self.group.device))

    def _backward(
        self, part: Batch, moment: Moment, parts: int, total_weight: TotalWeight, *, reduces: bool
    ) -> torch.Tensor:
        # DDP notes a static graph in the first pass, which has to reduce then (torch 2.13): the sum is the same.
        reduces = reduces or self.must_reduce_first
        with self._reduction(reduces=reduces):
            with self.precision.autocast():
                loss: torch.Tensor = self.call(self.loss, part, moment)
            if isinstance(self.through, DistributedDataParallel):
                self.is_reducing |= reduces  # the gradients' hooks are armed now
            if self.weight is not None and total_weight is not None:
                # DDP and FSDP average over the processes: the world size makes a sum of it.
                loss = weigh_loss(loss, divide_weight(self.weight(part) * self.group.size, total_weight))
            elif parts > 1:
                loss = loss / parts
            self.precision.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.must_reduce_first = False
        return loss.detach()

    def _reduction(self, *, reduces: bool) -> AbstractContextManager[None]:
        """Return a context whose backward pass reduces gradients over the processes, or only accumulates them."""
        if self.is_sharded:
            self.through.set_requires_gradient_sync(reduces)  # type: ignore[operator]  # a method of FSDP's modules
        if isinstance(self.through, DistributedDataParallel) and not reduces:
            return self.through.no_sync()
        return nullcontext()


def weigh_loss(loss: torch.Tensor, weight: float | torch.Tensor) -> torch.Tensor:
    """Multiply a loss by its weight; 0 if the weight is 0, even if the loss is NaN, as a mean over nothing is."""
    if not isinstance(weight, torch.Tensor):
        return loss * weight if weight else loss.masked_fill(torch.ones_like(loss, dtype=torch.bool), 0.0)
    return torch.where(weight != 0, loss * weight.to(loss), 0.0)


def divide_weight(weight: float | torch.Tensor, total: float | torch.Tensor) -> float | torch.Tensor:
    """Return a weight's share of the total; 0 of a total of 0, without waiting for the device."""
    if isinstance(total, torch.Tensor):
        return torch.where(total != 0, weight / total, 0.0)
    return weight / total if total else 0.0
