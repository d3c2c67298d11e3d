"""The learner: model, optimizer and one optimizer step, which is retried after recoverable failures."""

# Shape legend: B batch.
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, get_total_norm

from trainer.base.errors import DeviceMemoryError, GroupMemoryError, first_line
from trainer.base.memory import MicroBatchFile, is_out_of_memory
from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.checkpoints.weights import list_saved_names, load_weights, unchanged
from trainer.data.batch import count_samples, split_batch
from trainer.group.distributed import ProcessGroup
from trainer.step.batch import halve_micro_batch
from trainer.step.ema import AveragedModel
from trainer.step.optimizers import can_skip_on_device, match_optimizer_state
from trainer.step.precision import Precision
from trainer.step.rollback import StepRollback

if TYPE_CHECKING:
    from trainer.step.sharding import Sharding  # its imports take most of a second, which only some runs need

logger = logging.getLogger(__name__)
Loss = Callable[[nn.Module, Batch, Moment], torch.Tensor]
State = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step's figures, scalars on the device; reading them waits for the device.

    `loss` is the mean over this process's share, `grad_norm` the norm over the whole batch before clipping. `skipped`
    is 1 if the gradient wasn't finite and the weights are unchanged, else 0.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor
    skipped: torch.Tensor


@dataclass(slots=True, kw_only=True)
class Learner:
    """A model in training: `model` has no wrappers, `eager` is its DDP wrapper, `wrapped` is `eager`, maybe compiled.

    `sharding` is None if each process has the whole model. `has_collectives`: the forward pass has collectives (SyncBN,
    or a sharded model), so that one process can't retry it alone.
    """

    group: ProcessGroup
    model: nn.Module
    eager: nn.Module
    wrapped: Any
    loss: Loss
    optimizer: torch.optim.Optimizer
    precision: Precision
    average: AveragedModel | None
    clip_norm: float
    micro_batch: int
    micro_batch_file: MicroBatchFile
    say: Callable[[str], None]
    sharding: "Sharding | None" = None
    has_collectives: bool = False
    may_halve: bool = True
    """Whether to halve the micro-batch when memory runs out."""
    trainable_only: bool = False
    """Whether a checkpoint has only the weights that are trained."""
    is_reducing: bool = False
    parameters: list[nn.Parameter] = field(init=False)
    rollback: StepRollback = field(init=False)
    saved_names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.rollback = StepRollback(self.model, self.group.device)
        self.saved_names = list_saved_names(self.model, trainable_only=self.trainable_only)
        self._watch_forward()

    @property
    def evaluated(self) -> nn.Module:
        """The model to validate and to save as the best: the EMA, if there is one."""
        return self.average.model if self.average else self.model

    def state(self) -> State:
        """Return the state for a checkpoint; its tensors are those in use (not copies), or this process's rows."""
        state = {
            "model": self._saved_weights(self.model),
            "optimizer": self.optimizer.state_dict(),
            "average": self._saved_weights(self.average.model) if self.average else None,
            "scaler": self.precision.state(),
        }
        return self.sharding.local_state(state) if self.sharding else state

    def evaluated_weights(self) -> State:
        """Return the weights to save as the best, or this process's rows of them."""
        weights = self._saved_weights(self.evaluated)
        return self.sharding.local_state(weights) if self.sharding else weights

    def load(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            CheckpointMismatchError: the weights don't fit this model.
        """
        sharding, moments = self.sharding, state["optimizer"]  # None: new ones
        fit = sharding.shard_like if sharding else unchanged
        load_weights(self.model, state["model"], fit=fit, names=self._names_to_load())
        if moments is not None:
            moments = match_optimizer_state(moments, self.optimizer)
            moments = sharding.shard_optimizer_state(moments, self.optimizer) if sharding else moments
            self.optimizer.load_state_dict(moments)
            _match_parameter_strides(self.optimizer)
        if self.average and state.get("average"):
            load_weights(self.average.model, state["average"], fit=fit, names=self._names_to_load())
        self.precision.load(state.get("scaler") or {})

    def _saved_weights(self, model: nn.Module) -> State:
        weights = model.state_dict()
        return {name: weights[name] for name in self.saved_names}

    def _names_to_load(self) -> list[str] | None:
        return self.saved_names if self.trainable_only else None

    def prepare_evaluation(self) -> None:
        """Prepare `evaluated`, with the main process's running statistics; collective."""
        self.group.broadcast_buffers(self.model)
        if self.average:
            self.average.copy_buffers()
        self.evaluated.eval()

    def call_evaluated(self, function: Callable[[nn.Module, Any], T], batch: Any) -> T:
        """Call a function with `evaluated` and a batch, in the precision of training."""
        with self.precision.autocast():
            return function(self.evaluated, batch)

    def smallest_micro_batch(self) -> int:
        """Return the smallest micro-batch over all processes; collective."""
        (smallest,) = self.group.all_reduce_max([-self.micro_batch])
        return -smallest

    def step(self, batch: Batch, *, rate: float, moment: Moment) -> StepResult:
        """Make one optimizer step on this process's share of a batch; collective.

        If memory runs out or the compiler fails, the step is retried from its start with half the micro-batch or
        without the compiler. The other processes just wait in the all-reduce meanwhile.

        Args:
            batch: this process's share.
            rate: the learning rate.
            moment: where the run is before this step.

        Raises:
            DeviceMemoryError: memory ran out and the micro-batch can't be halved any more.
            GroupMemoryError: memory ran out during the all-reduce of gradients; the group has to restart, and uses a
                smaller micro-batch then.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        self.rollback.record()
        while (loss := self._try_gradient(batch, moment)) is None:
            self.rollback.restore()
        grad_norm, skipped = self._update()
        self.rollback.restore_buffers_if_skipped(skipped)
        if self.average:
            self.average.update(moment.step)
        return StepResult(loss, grad_norm, skipped)

    def _try_gradient(self, batch: Batch, moment: Moment) -> torch.Tensor | None:
        """Compute the gradient; None if it failed and the caller has to retry with what was changed."""
        try:
            return self._gradient(batch, moment)
        except Exception as err:
            answer = self._recover_from(err)
            if answer is None:
                raise
            failure = first_line(err)
        # Only now are the failed attempt's tensors freed, because the error referred to them.
        answer()
        logger.info("retrying a step: %s", failure)
        return None

    def _gradient(self, batch: Batch, moment: Moment) -> torch.Tensor:
        """Accumulate the gradient of all micro-batches; the last backward pass all-reduces it."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # what zero_grad does, without its profiler's hook
        self.is_reducing = self.has_collectives
        if count_samples(batch) <= self.micro_batch:
            return self._backward(batch, 1, moment)
        parts = split_batch(batch, self.micro_batch)
        total = torch.zeros((), device=self.group.device)
        for part in parts[:-1]:
            with self._without_reduction():
                total += self._backward(part, len(parts), moment)
        return total + self._backward(parts[-1], len(parts), moment)

    def _without_reduction(self) -> AbstractContextManager[None]:
        if isinstance(self.eager, DistributedDataParallel):
            return self.eager.no_sync()
        return nullcontext()

    def _watch_forward(self) -> None:
        """Note when a forward pass has armed the gradients' hooks: the backward pass after it has collectives."""
        eager = self.eager
        if not isinstance(eager, DistributedDataParallel):
            return

        def note(*_: object) -> None:
            self.is_reducing |= bool(eager.require_backward_grad_sync)

        self.wrapped.register_forward_hook(note)

    def _backward(self, part: Batch, parts: int, moment: Moment) -> torch.Tensor:
        with self.precision.autocast():
            loss = self.loss(self.wrapped, part, moment)
        if parts > 1:
            loss = loss / parts
        self.precision.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.detach()

    def _update(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Update the weights unless the gradient isn't finite; decided on the device, without a sync.

        The gradient is that of the whole batch, so all processes decide alike.
        """
        self.precision.unscale(self.optimizer)
        if self.clip_norm:
            grad_norm = clip_grad_norm_(self.parameters, self.clip_norm)
        else:
            grad_norm = get_total_norm([item.grad for item in self.parameters if item.grad is not None])
        if self.sharding:
            grad_norm = self.sharding.all_gather(grad_norm)
        # 1 for infinity and NaN, in two small operations; float32, because fused optimizers read that.
        skipped = (grad_norm * 0).ne_(0).float()
        # The attribute by which torch's own GradScaler makes a fused optimizer skip a step.
        self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
        if can_skip_on_device(self.optimizer) or not bool(skipped):
            self.optimizer.step()
        return grad_norm, skipped

    def _recover_from(self, err: Exception) -> Callable[[], None] | None:
        """Choose what to change before a retry; None if nothing helps."""
        if is_out_of_memory(err):
            return self._recover_from_out_of_memory(err)
        if _is_compiler_error(err) and self.wrapped is not self.eager and not self.is_reducing:
            return self._give_up_compiling
        return None

    def _recover_from_out_of_memory(self, err: Exception) -> Callable[[], None]:
        smaller = halve_micro_batch(self.micro_batch) if self.may_halve else None
        if smaller is None:
            raise DeviceMemoryError(
                f"out of memory on {self.group.device} with a micro-batch of {self.micro_batch}",
                why=first_line(err),
                fix="use a smaller model, --set compute.gradient_checkpointing=true, or a device with more memory",
            ) from err
        if self.is_reducing and self.group.size > 1:
            self.micro_batch_file.write(smaller)
            raise GroupMemoryError(
                f"out of memory on {self.group.device} during the all-reduce of gradients",
                why=first_line(err),
                fix=f"start again, as torchrun --max-restarts does: the next start uses micro_batch={smaller}",
            ) from err
        return partial(self._use_micro_batch, smaller)

    def _use_micro_batch(self, size: int) -> None:
        ratio = self.micro_batch // size
        self.micro_batch = size
        if self.group.device.type == "cuda":
            torch.cuda.empty_cache()
        self._report(f"out of memory: micro-batch {size * ratio} -> {size}, accumulation x {ratio}, same global batch")

    def _give_up_compiling(self) -> None:
        self.wrapped = self.eager
        self._watch_forward()
        self._report("torch.compile failed: continuing without it")

    def _report(self, line: str) -> None:
        """Print a line on the main process, log it as a warning on the others."""
        if self.group.is_main:
            self.say(line)
        else:
            logger.warning("rank %d: %s", self.group.rank, line)


def _match_parameter_strides(optimizer: torch.optim.Optimizer) -> None:
    """Give moments their parameters' strides, which they lack after loading a checkpoint of another memory format.

    torch's fused CPU optimizers walk the memory of both without checking strides (2.13).
    """
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            is_moment = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            if is_moment and value.stride() != parameter.stride():
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value).detach()


def _is_compiler_error(err: Exception) -> bool:
    # The module takes a second to import; it has been imported if anything was compiled.
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(err, exceptions.TorchDynamoException)
