"""Making a learner from settings: every feature of a step is put on here, in the one order that works."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from trainer.batch import BatchPlan
from trainer.config import ComputeSettings, OptimizerSettings, Settings
from trainer.distributed import World
from trainer.ema import AveragedModel
from trainer.learner import Learner
from trainer.memory import MicroBatchFile
from trainer.precision import Precision, allow_tf32
from trainer.recipe import Workload
from trainer.recompute import recompute_blocks

Say = Callable[[str], None]


def make_learner(
    settings: Settings, workload: Workload, world: World, plan: BatchPlan, *, restart_file: Path, say: Say
) -> Learner:
    """Put model, optimizer and precision together on this process's device; collective.

    Args:
        settings: the run's.
        workload: the recipe's; its model is the one that is trained.
        world: the processes.
        plan: the batch.
        restart_file: where a process that cannot go on leaves the micro-batch for the next start.
        say: prints a line.
    """
    compute = settings.compute
    if compute.tf32:
        allow_tf32()
    model = _place(workload.model, compute, world)
    model, has_collectives = _synchronise_batchnorm(model, compute, world, say)
    # A copy: taken before blocks recompute, because it would recompute the original's.
    average = AveragedModel(model, decay=settings.ema_decay) if settings.ema_decay else None
    if compute.gradient_checkpointing:
        _recompute(workload, say)
    for_restart = MicroBatchFile(restart_file, asked=settings.micro_batch, per_device=plan.per_device)
    eager = world.wrap(model)
    return Learner(
        world=world,
        model=model,
        eager=eager,
        wrapped=torch.compile(eager) if compute.compile else eager,
        loss=workload.loss,
        optimizer=make_optimizer(settings.optimizer, model),
        precision=Precision(compute, world.device),
        average=average,
        clip_norm=settings.optimizer.clip_norm,
        micro_batch=_agree_on_micro_batch(for_restart, world, plan, say),
        for_restart=for_restart,
        say=say,
        has_collectives=has_collectives,
    )


def make_optimizer(settings: OptimizerSettings, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer that the settings name, over all parameters; fused, so that the device can skip a step."""
    if settings.name == "sgd":
        return torch.optim.SGD(
            model.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
            fused=True,
        )
    return torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )


def _place(model: nn.Module, compute: ComputeSettings, world: World) -> nn.Module:
    model = model.to(world.device)
    if not compute.channels_last:
        return model
    for parameter in model.parameters():
        if parameter.dim() in _CHANNELS_LAST:
            parameter.data = parameter.data.contiguous(memory_format=_CHANNELS_LAST[parameter.dim()])
    return model


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _synchronise_batchnorm(
    model: nn.Module, compute: ComputeSettings, world: World, say: Say
) -> tuple[nn.Module, bool]:
    """Have batch normalisation average over all processes, where asked and possible; tell whether it does."""
    if not compute.sync_batchnorm or world.size == 1:
        return model, False
    if world.device.type != "cuda":
        say("sync_batchnorm left out: torch has it for GPUs only; each process normalises over its own share")
        return model, False
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return converted, True


def _recompute(workload: Workload, say: Say) -> None:
    if workload.blocks:
        recompute_blocks(workload.blocks)
    else:
        say("gradient_checkpointing left out: the recipe names no blocks (Workload.blocks)")


def _agree_on_micro_batch(for_restart: MicroBatchFile, world: World, plan: BatchPlan, say: Say) -> int:
    """Take the smallest micro-batch that any process left for this start, else the planned one."""
    mine = for_restart.read() or plan.micro_batch
    (smallest,) = world.maximum([-min(mine, plan.micro_batch)])
    if -smallest < plan.micro_batch:
        say(f"micro-batch {-smallest} instead of {plan.micro_batch}: an earlier start ran out of memory")
    return -smallest
