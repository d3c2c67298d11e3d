"""The learner: model, optimizer and one optimizer step, which is retried after recoverable failures."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from trainer.base.errors import first_line
from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.checkpoints.weights import list_saved_names, load_weights, unchanged
from trainer.group.distributed import ProcessGroup
from trainer.step.ema import AveragedModel
from trainer.step.gradient import GradientPass, TotalWeight
from trainer.step.optimizers import use_present_options
from trainer.step.precision import Precision
from trainer.step.recovery import Recovery
from trainer.step.rollback import StepRollback
from trainer.step.update import Update

if TYPE_CHECKING:
    from trainer.step.sharding import Sharding  # its imports take most of a second, which only some runs need

logger = logging.getLogger(__name__)
State = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step's figures, scalars on the device; reading them waits for the device.

    `loss` is this process's: the mean over the processes is that of the batch. `grad_norm` is the norm over the whole
    batch before clipping. `skipped` is 1 if the gradient wasn't finite and the weights are unchanged, else 0.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor
    skipped: torch.Tensor


@dataclass(slots=True, kw_only=True)
class Learner:
    """A model in training.

    Attributes:
        model: the model without wrappers; its parts may be compiled, sharded or recomputed in place.
        evaluate_through: calls functions with `evaluated`, with all of its weights.
        sharding: None if each process has the whole model.
        is_as_built: whether the model is as the recipe made it, so that it can be exported.
        trainable_only: whether a checkpoint has only the weights that are trained.
    """

    group: ProcessGroup
    model: nn.Module
    evaluate_through: nn.Module
    gradient: GradientPass
    update: Update
    recovery: Recovery
    precision: Precision
    average: AveragedModel | None
    sharding: "Sharding | None" = None
    is_as_built: bool = True
    trainable_only: bool = False
    rollback: StepRollback = field(init=False)
    saved_names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.rollback = StepRollback(self.model, self.group.device)
        self.saved_names = list_saved_names(self.model, trainable_only=self.trainable_only)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return self.update.optimizer

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return self.update.parameters

    @property
    def micro_batch(self) -> int:
        """The samples that this process computes at once."""
        return self.recovery.micro_batch

    @micro_batch.setter
    def micro_batch(self, size: int) -> None:
        self.recovery.micro_batch = size

    def expect_share(self, samples: int, *, micro_batch: int) -> None:
        """Expect batches of another size from now on, to be computed by micro-batches of this size."""
        self.gradient.share, self.recovery.micro_batch = samples, micro_batch

    @property
    def may_halve(self) -> bool:
        """Whether to halve the micro-batch when memory runs out."""
        return self.recovery.may_halve

    @may_halve.setter
    def may_halve(self, value: bool) -> None:
        self.recovery.may_halve = value

    @property
    def evaluated(self) -> nn.Module:
        """The model to validate and to save as the best: the EMA, if there is one."""
        return self.average.model if self.average else self.model

    def call_evaluated(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return `function(evaluated, *arguments)`, in the precision of training; collective if it is sharded."""
        with self.precision.autocast():
            result: T = self.evaluate_through(function, *arguments)
        return result

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
            moments = use_present_options(moments, self.optimizer)
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
            GroupMemoryError: memory ran out in a pass that can't be repeated, because other processes wait in its
                collectives or it is sharded; the group has to restart, and uses a smaller micro-batch then.
            TrainerError: an operation has no deterministic implementation, and the settings ask for one.
        """
        self.rollback.record()
        total_weight = self.gradient.sum_weights(batch)
        while (loss := self._try_gradient(batch, moment, total_weight)) is None:
            self.rollback.restore()
        self.recovery.compiler.check_use()
        grad_norm, skipped = self.update.apply(rate)
        self.rollback.restore_buffers_if_skipped(skipped)
        if self.average:
            self.average.update(moment.step)
        return StepResult(loss, grad_norm, skipped)

    def _try_gradient(self, batch: Batch, moment: Moment, total_weight: TotalWeight) -> torch.Tensor | None:
        """Compute the gradient; None if it failed and the caller has to retry with what was changed."""
        try:
            return self.gradient.compute(batch, moment, micro_batch=self.micro_batch, total_weight=total_weight)
        except Exception as err:
            answer = self.recovery.plan(err, can_repeat=self.gradient.can_repeat)
            if answer is None:
                raise
            failure = first_line(err)
        # Only now are the failed attempt's tensors freed, because the error referred to them.
        answer()
        logger.info("retrying a step: %s", failure)
        return None


def _match_parameter_strides(optimizer: torch.optim.Optimizer) -> None:
    """Give moments their parameters' strides, which they lack after loading a checkpoint of another memory format.

    torch's fused CPU optimizers walk the memory of both without checking strides (2.13).
    """
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            is_moment = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            if is_moment and value.stride() != parameter.stride():
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value).detach()
