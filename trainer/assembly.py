"""Making a learner from settings: every feature of a step is put on here, in the one order that works."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainer.batch import BatchPlan
from trainer.config import ComputeSettings, OptimizerSettings, Settings
from trainer.distributed import World
from trainer.ema import AveragedModel, all_of
from trainer.errors import BadRequestError
from trainer.learner import Learner
from trainer.memory import MicroBatchFile
from trainer.precision import Precision, allow_tf32
from trainer.recipe import Workload
from trainer.recompute import recompute_blocks

if TYPE_CHECKING:
    from trainer.sharding import Sharding

Say = Callable[[str], None]


def is_divided(compute: ComputeSettings, world: World) -> bool:
    """Tell whether the processes divide the model between them."""
    return compute.fully_shard and world.size > 1


def check_settings(settings: Settings, model: nn.Module, world: World) -> None:
    """Make sure, before anything is touched, that what is asked for works together, and with the model.

    Raises:
        BadRequestError: it doesn't.
    """
    halves = {torch.bfloat16, torch.float16} & {parameter.dtype for parameter in model.parameters()}
    if halves and settings.optimizer.name == "sgd" and world.device.type == "cpu":
        raise BadRequestError(
            "optimizer.name=sgd does not train this model on a CPU",
            why=f"torch's fused SGD leaves most {halves.pop()} weights there as they are (torch 2.13)",
            fix="use --set optimizer.name=adamw, or single precision weights with --set compute.amp=bf16",
        )
    if is_divided(settings.compute, world):
        _check_divided(settings.compute, model)


def _check_divided(compute: ComputeSettings, model: nn.Module) -> None:
    scalars = [name for name, parameter in model.named_parameters() if not parameter.dim()]
    if scalars:
        raise BadRequestError(
            "compute.fully_shard does not work with this model",
            why=f"{', '.join(scalars)} has no rows that could be divided",
            fix="give such a parameter one dimension of size 1, or leave compute.fully_shard off",
        )
    if compute.amp == "fp16":
        raise BadRequestError(
            "compute.fully_shard does not work with compute.amp=fp16",
            why="each process would scale its losses by what overflows in its own rows",
            fix="use --set compute.amp=bf16, which needs no scaling",
        )


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
    sharding = _open_sharding(world) if is_divided(compute, world) else None
    model = workload.model if sharding else _place(workload.model, compute, world)
    model, has_collectives = _synchronise_batchnorm(model, compute, world, say)
    # Taken before blocks recompute, because it would recompute the original's.
    copied = copy.deepcopy(model).requires_grad_(requires_grad=False) if settings.ema_decay else None
    if compute.gradient_checkpointing:
        _recompute(workload, say)
    if sharding:
        _divide(sharding, model, copied, workload, compute, say)
    local = sharding.local_rows if sharding else all_of
    for_restart = MicroBatchFile(restart_file, asked=settings.micro_batch, per_device=plan.per_device)
    eager = model if sharding else world.wrap(model)
    return Learner(
        world=world,
        model=model,
        eager=eager,
        wrapped=torch.compile(eager) if compute.compile and not sharding else eager,
        loss=workload.loss,
        optimizer=make_optimizer(settings.optimizer, model),
        precision=Precision(compute, world.device),
        average=AveragedModel(copied, model, decay=settings.ema_decay, local=local) if copied else None,
        clip_norm=settings.optimizer.clip_norm,
        micro_batch=_agree_on_micro_batch(for_restart, world, plan, say),
        for_restart=for_restart,
        say=say,
        sharding=sharding,
        has_collectives=has_collectives or sharding is not None,
    )


def make_optimizer(settings: OptimizerSettings, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer that the settings name, over all parameters; fused, so that the device can skip a step."""
    if settings.name == "sgd":
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
            fused=True,
        )
        if settings.momentum:
            # The first step takes what is in them where it is skipped, and they are not cleared (torch 2.13).
            for parameter in model.parameters():
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer
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


def _open_sharding(world: World) -> "Sharding":
    from trainer.sharding import Sharding  # noqa: PLC0415 - most of a second, which only some runs need

    return Sharding(world)


def _divide(
    sharding: "Sharding",
    model: nn.Module,
    copied: nn.Module | None,
    workload: Workload,
    compute: ComputeSettings,
    say: Say,
) -> None:
    """Divide the model, and the copy of it that is averaged, over the processes."""
    say(f"weights, gradients and optimizer state are divided over {sharding.processes} processes (FSDP2)")
    for setting in ("channels_last", "compile"):
        if getattr(compute, setting):
            say(f"{setting} left out: not with fully_shard")
    if not workload.blocks:
        say("the recipe names no blocks (Workload.blocks): each step gathers the whole model at once")
    if copied:
        names = {module: name for name, module in model.named_modules()}
        twins = [copied.get_submodule(names[block]) for block in workload.blocks]
        sharding.divide(copied, twins, is_trained=False)
    sharding.divide(model, workload.blocks)


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
