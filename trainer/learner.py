"""What learns: model, optimizer and one optimizer step, which is done again where it can be saved."""

# Shape legend: B batch.
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, get_total_norm

from trainer.batch import halve_micro_batch
from trainer.checkpoints.weights import as_it_is, load_weights
from trainer.data import Batch
from trainer.distributed import World
from trainer.ema import AveragedModel
from trainer.errors import DeviceMemoryError, GroupMemoryError, first_line
from trainer.memory import MicroBatchFile, is_out_of_memory
from trainer.precision import Precision
from trainer.rewind import Rewind

if TYPE_CHECKING:
    from trainer.sharding import Sharding  # its imports take most of a second, which only some runs need

logger = logging.getLogger(__name__)
Loss = Callable[[nn.Module, Batch], torch.Tensor]
State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step's figures, scalars on the device: nobody has waited for them yet.

    `loss` is the mean of this process's share, `grad_norm` the norm before clipping over the whole batch, `skipped` 1
    where the gradient wasn't finite and the weights stayed as they were, else 0.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor
    skipped: torch.Tensor


@dataclass(slots=True, kw_only=True)
class Learner:
    """A model in training. `model` is bare, `eager` averages its gradients, `wrapped` is that, compiled or not.

    `sharding` is how the model is divided over the processes, None where each has all of it. `has_collectives` says
    that the forward pass has some (SyncBN, or a divided model), so that one process can't do it again alone.
    """

    world: World
    model: nn.Module
    eager: nn.Module
    wrapped: Any
    loss: Loss
    optimizer: torch.optim.Optimizer
    precision: Precision
    average: AveragedModel | None
    clip_norm: float
    micro_batch: int
    for_restart: MicroBatchFile
    say: Callable[[str], None]
    sharding: "Sharding | None" = None
    has_collectives: bool = False
    halves: bool = True
    """Whether memory that runs out is answered with half the micro-batch."""
    is_reducing: bool = False
    parameters: list[nn.Parameter] = field(init=False)
    rewind: Rewind = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.rewind = Rewind(self.model, self.world.device)
        self._watch_forward()

    @property
    def evaluated(self) -> nn.Module:
        """The model that is validated and kept as the best: the average, where there is one."""
        return self.average.model if self.average else self.model

    def state(self) -> State:
        """Take what a checkpoint keeps; tensors are those in use, or this process's rows of them."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.model.state_dict() if self.average else None,
            "scaler": self.precision.state(),
        }
        return self.sharding.slice_state(state) if self.sharding else state

    def evaluated_weights(self) -> State:
        """Take the weights that are kept as the best, or this process's rows of them."""
        weights = self.evaluated.state_dict()
        return self.sharding.slice_state(weights) if self.sharding else weights

    def load(self, state: State) -> None:
        """Go on from what `state` took.

        Raises:
            CheckpointMismatchError: the weights are not this model's.
        """
        sharding, moments = self.sharding, state["optimizer"]
        fit = sharding.divide_like if sharding else as_it_is
        load_weights(self.model, state["model"], fit=fit)
        self.optimizer.load_state_dict(sharding.divide_optimizer(moments, self.optimizer) if sharding else moments)
        _lay_out_like_parameters(self.optimizer)
        if self.average and state.get("average"):
            load_weights(self.average.model, state["average"], fit=fit)
        self.precision.load(state.get("scaler") or {})

    def prepare_evaluation(self) -> None:
        """Make `evaluated` ready, with the main process's running statistics; collective."""
        self.world.copy_buffers(self.model)
        if self.average:
            self.average.copy_buffers()
        self.evaluated.eval()

    def smallest_micro_batch(self) -> int:
        """Tell how many samples fit at once on every process; collective."""
        (smallest,) = self.world.maximum([-self.micro_batch])
        return -smallest

    def step(self, batch: Batch, *, rate: float, number: int) -> StepResult:
        """Make one optimizer step from this process's share of a batch; collective.

        Where memory runs out, or the compiler fails, the step is done again from its beginning with half the
        micro-batch, or without the compiler. The other processes wait in their reduction meanwhile and needn't know.

        Args:
            batch: this process's share.
            rate: the learning rate.
            number: steps done before this one.

        Raises:
            DeviceMemoryError: memory ran out and nothing is left to halve.
            GroupMemoryError: the gradients were being reduced; the group has to start again, and finds the smaller
                micro-batch.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.rewind.keep()
        while (loss := self._try_gradient(batch)) is None:
            self.rewind.restore()
        grad_norm, skipped = self._update()
        self.rewind.restore_buffers_where(skipped)
        if self.average:
            self.average.follow(number)
        return StepResult(loss, grad_norm, skipped)

    def _try_gradient(self, batch: Batch) -> torch.Tensor | None:
        """Compute the gradient; None where it failed and something was changed so that it may work now."""
        try:
            return self._gradient(batch)
        except Exception as err:
            answer = self._answer(err)
            if answer is None:
                raise
            failure = first_line(err)
        # Only here the failed attempt's tensors are gone, which the error held on to.
        answer()
        logger.info("a step is done again: %s", failure)
        return None

    def _gradient(self, batch: Batch) -> torch.Tensor:
        """Add up the gradient of all micro-batches; the last one's backward pass reduces it over the processes."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # what zero_grad does, without its profiler's hook
        self.is_reducing = self.has_collectives
        if len(batch[0]) <= self.micro_batch:
            return self._backward(batch, 1)
        parts = list(zip(*(torch.split(tensor_B, self.micro_batch) for tensor_B in batch), strict=True))
        total = torch.zeros((), device=self.world.device)
        for part in parts[:-1]:
            with self._not_reducing():
                total += self._backward(part, len(parts))
        return total + self._backward(parts[-1], len(parts))

    def _not_reducing(self) -> AbstractContextManager[None]:
        if isinstance(self.eager, DistributedDataParallel):
            return self.eager.no_sync()
        return nullcontext()

    def _watch_forward(self) -> None:
        """Note when a forward pass has armed the gradients' hooks: from there on the backward pass has collectives."""
        eager = self.eager
        if not isinstance(eager, DistributedDataParallel):
            return

        def note(*_: object) -> None:
            self.is_reducing |= bool(eager.require_backward_grad_sync)

        self.wrapped.register_forward_hook(note)

    def _backward(self, part: Batch, parts: int) -> torch.Tensor:
        with self.precision.autocast():
            loss = self.loss(self.wrapped, part)
        if parts > 1:
            loss = loss / parts
        self.precision.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.detach()

    def _update(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Update the weights, unless the gradient isn't finite; the device decides, nobody waits for it.

        The gradient is the whole batch's, so that all processes come to the same decision.
        """
        self.precision.unscale(self.optimizer)
        if self.clip_norm:
            grad_norm = clip_grad_norm_(self.parameters, self.clip_norm)
        else:
            grad_norm = get_total_norm([item.grad for item in self.parameters if item.grad is not None])
        if self.sharding:
            grad_norm = self.sharding.gather_whole(grad_norm)
        # 1 for infinity and NaN, in two small operations; single precision is what fused optimizers read.
        skipped = (grad_norm * 0).ne_(0).float()
        # How torch's own GradScaler makes a fused optimizer skip a step.
        self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        return grad_norm, skipped

    def _answer(self, err: Exception) -> Callable[[], None] | None:
        """Choose what to change before the step is done again; None where nothing helps."""
        if is_out_of_memory(err):
            return self._answer_memory(err)
        if _is_compilers(err) and self.wrapped is not self.eager and not self.is_reducing:
            return self._give_up_compiling
        return None

    def _answer_memory(self, err: Exception) -> Callable[[], None]:
        smaller = halve_micro_batch(self.micro_batch) if self.halves else None
        if smaller is None:
            raise DeviceMemoryError(
                f"out of memory on {self.world.device} with a micro-batch of {self.micro_batch}",
                why=first_line(err),
                fix="use a smaller model, --set compute.gradient_checkpointing=true, or a device with more memory",
            ) from err
        if self.is_reducing and self.world.size > 1:
            self.for_restart.write(smaller)
            raise GroupMemoryError(
                f"out of memory on {self.world.device} while the gradients were being reduced",
                why=first_line(err),
                fix=f"start again (torchrun --max-restarts does): the next start uses micro_batch={smaller}",
            ) from err
        return partial(self._use_micro_batch, smaller)

    def _use_micro_batch(self, size: int) -> None:
        ratio = self.micro_batch // size
        self.micro_batch = size
        if self.world.device.type == "cuda":
            torch.cuda.empty_cache()
        self._tell(f"out of memory: micro-batch {size * ratio} -> {size}, accumulation x {ratio}, same global batch")

    def _give_up_compiling(self) -> None:
        self.wrapped = self.eager
        self._watch_forward()
        self._tell("torch.compile failed here: going on without it")

    def _tell(self, line: str) -> None:
        """Say it where only the main process speaks, and from the others as a warning."""
        if self.world.is_main:
            self.say(line)
        else:
            logger.warning("rank %d: %s", self.world.rank, line)


def _lay_out_like_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Give moments their parameters' strides, which a checkpoint of another memory format has not.

    torch's fused optimizers on the CPU go through the memory of both without looking (2.13).
    """
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            is_moment = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            if is_moment and value.stride() != parameter.stride():
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value).detach()


def _is_compilers(err: Exception) -> bool:
    # Its module takes a second to import, and is there once something was compiled.
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(err, exceptions.TorchDynamoException)
