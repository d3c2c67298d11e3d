"""Builds a learner from settings: applies every feature of a step in the one order that works."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainer.base.config import ComputeSettings, Settings
from trainer.base.errors import BadRequestError
from trainer.base.memory import MicroBatchFile
from trainer.base.recipe import Workload, bind_loss
from trainer.group.distributed import ProcessGroup
from trainer.step.batch import BatchPlan
from trainer.step.ema import AveragedModel, identity
from trainer.step.learner import Learner
from trainer.step.optimizers import check_optimizer, make_optimizer
from trainer.step.precision import Precision, allow_tf32
from trainer.step.recompute import recompute_blocks

if TYPE_CHECKING:
    from trainer.step.sharding import Sharding

Say = Callable[[str], None]


def is_sharded(compute: ComputeSettings, group: ProcessGroup) -> bool:
    """Whether the model is sharded over the processes."""
    return compute.fully_shard and group.is_open


def check_settings(settings: Settings, model: nn.Module, group: ProcessGroup) -> None:
    """Check before the run starts that the settings are compatible with one another and with the model.

    Raises:
        BadRequestError: they are not.
    """
    check_optimizer(settings.optimizer, model, group.device)
    if is_sharded(settings.compute, group):
        _check_sharding(settings.compute, model)


def _check_sharding(compute: ComputeSettings, model: nn.Module) -> None:
    scalars = [name for name, parameter in model.named_parameters() if not parameter.dim()]
    if scalars:
        raise BadRequestError(
            "compute.fully_shard does not work with this model",
            why=f"{', '.join(scalars)} has no dimension that could be sharded",
            fix="give such a parameter one dimension of size 1, or leave compute.fully_shard off",
        )
    if compute.amp == "fp16":
        raise BadRequestError(
            "compute.fully_shard does not work with compute.amp=fp16",
            why="each process would adapt its loss scale to the overflows in its own shard",
            fix="use --set compute.amp=bf16, which needs no loss scaling",
        )


def make_learner(
    settings: Settings, workload: Workload, group: ProcessGroup, plan: BatchPlan, *, restart_file: Path, say: Say
) -> Learner:
    """Assemble model, optimizer and precision on this process's device; collective.

    Args:
        settings: the run's.
        workload: the recipe's; its model is the one to train.
        group: the process group.
        plan: the batch.
        restart_file: where a process that runs out of memory writes the micro-batch for the next start.
        say: prints a line.
    """
    compute = settings.compute
    if compute.tf32:
        allow_tf32()
    sharding = _open_sharding(group) if is_sharded(compute, group) else None
    model = workload.model if sharding else _place(workload.model, compute, group)
    model, has_collectives = _synchronise_batchnorm(model, compute, group, say)
    # Copied before the blocks are patched to recompute: the copy would recompute the original's blocks.
    copied = copy.deepcopy(model).requires_grad_(requires_grad=False) if settings.ema_decay else None
    if compute.gradient_checkpointing:
        _recompute(workload, say)
    if sharding:
        _shard(sharding, model, copied, workload, compute, say)
    local = sharding.local_tensors if sharding else identity
    micro_batch_file = MicroBatchFile(restart_file, asked=settings.micro_batch, per_device=plan.per_device)
    eager = model if sharding else group.wrap(model)
    return Learner(
        group=group,
        model=model,
        eager=eager,
        wrapped=torch.compile(eager) if compute.compile and not sharding else eager,
        loss=bind_loss(workload.loss),
        optimizer=make_optimizer(settings.optimizer, model, workload),
        precision=Precision(compute, group.device),
        average=AveragedModel(copied, model, decay=settings.ema_decay, local=local) if copied else None,
        clip_norm=settings.optimizer.clip_norm,
        micro_batch=_all_reduce_micro_batch(micro_batch_file, group, plan, say),
        micro_batch_file=micro_batch_file,
        say=say,
        sharding=sharding,
        has_collectives=has_collectives or sharding is not None,
        trainable_only=workload.trainable_only,
    )


def _place(model: nn.Module, compute: ComputeSettings, group: ProcessGroup) -> nn.Module:
    # A model of fake tensors (trainer.find.forecast) is there already, and can't be moved.
    if any(tensor.device != group.device for tensor in (*model.parameters(), *model.buffers())):
        model = model.to(group.device)
    if not compute.channels_last:
        return model
    for parameter in model.parameters():
        if parameter.dim() in _CHANNELS_LAST:
            parameter.data = parameter.data.contiguous(memory_format=_CHANNELS_LAST[parameter.dim()])
    return model


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _synchronise_batchnorm(
    model: nn.Module, compute: ComputeSettings, group: ProcessGroup, say: Say
) -> tuple[nn.Module, bool]:
    """Convert to SyncBN if the settings ask for it and the device supports it; return whether it was."""
    if not compute.sync_batchnorm or not group.is_open:
        return model, False
    if group.device.type != "cuda":
        say("sync_batchnorm ignored: torch has it for GPUs only; each process normalises over its own share")
        return model, False
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return converted, True


def _open_sharding(group: ProcessGroup) -> "Sharding":
    from trainer.step.sharding import Sharding  # noqa: PLC0415 - most of a second, which only some runs need

    return Sharding(group)


def _shard(
    sharding: "Sharding",
    model: nn.Module,
    copied: nn.Module | None,
    workload: Workload,
    compute: ComputeSettings,
    say: Say,
) -> None:
    """Shard the model and its EMA copy over the processes."""
    say(f"weights, gradients and optimizer state are sharded over {sharding.processes} processes (FSDP2)")
    for setting in ("channels_last", "compile"):
        if getattr(compute, setting):
            say(f"{setting} ignored: fully_shard doesn't support it")
    if not workload.blocks:
        say("the recipe has no blocks (Workload.blocks): each step all-gathers the whole model at once")
    if copied:
        names = {module: name for name, module in model.named_modules()}
        averaged_blocks = [copied.get_submodule(names[block]) for block in workload.blocks]
        sharding.shard_model(copied, averaged_blocks, is_trained=False)
    sharding.shard_model(model, workload.blocks)


def _recompute(workload: Workload, say: Say) -> None:
    if workload.blocks:
        recompute_blocks(workload.blocks)
    else:
        say("gradient_checkpointing ignored: the recipe has no blocks (Workload.blocks)")


def _all_reduce_micro_batch(micro_batch_file: MicroBatchFile, group: ProcessGroup, plan: BatchPlan, say: Say) -> int:
    """Return the smallest micro-batch that any process wrote for this start, else the planned one."""
    mine = micro_batch_file.read() or plan.micro_batch
    (smallest,) = group.all_reduce_max([-min(mine, plan.micro_batch)])
    if -smallest < plan.micro_batch:
        say(f"micro-batch {-smallest} instead of {plan.micro_batch}: an earlier start ran out of memory")
    return -smallest
