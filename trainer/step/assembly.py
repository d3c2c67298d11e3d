"""Builds a learner from settings: applies every feature of a step in the one order that works."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainer.base.config import ComputeSettings, Settings
from trainer.base.errors import BadRequestError
from trainer.base.memory import MicroBatchFile
from trainer.base.recipe import BuiltWorkload, bind_loss
from trainer.group.distributed import ProcessGroup
from trainer.group.through import Through
from trainer.step.batch import BatchPlan
from trainer.step.compiling import Compiler
from trainer.step.ema import AveragedModel, identity
from trainer.step.gradient import GradientPass
from trainer.step.learner import Learner
from trainer.step.optimizers import check_optimizer, make_optimizer
from trainer.step.precision import Precision, set_numerics
from trainer.step.recompute import recompute_blocks
from trainer.step.recovery import Recovery
from trainer.step.update import Update

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
    if settings.compute.deterministic and settings.compute.benchmark:
        raise BadRequestError(
            "compute.deterministic and compute.benchmark exclude each other",
            why="the fastest algorithm is another one at each start, and its rounding is its own",
            fix="leave one of them off",
        )
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
    settings: Settings, workload: BuiltWorkload, group: ProcessGroup, plan: BatchPlan, *, restart_file: Path, say: Say
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
    set_numerics(compute)
    sharding = _open_sharding(group) if is_sharded(compute, group) else None
    model = workload.model if sharding else _place(workload.model, compute, group)
    model, has_collectives = _synchronise_batchnorm(model, compute, group, say)
    weights = sharding.take_weights(model) if sharding else []
    copied = copy.deepcopy(model).requires_grad_(requires_grad=False) if settings.ema_decay else None
    compiler = _change_in_place(model, copied, workload, compute, say, is_sharded=sharding is not None)
    through, averaged_through = Through(model), Through(copied) if copied else None
    if sharding:
        _shard(sharding, through, averaged_through, workload, compute, say)
        sharding.scatter_weights(weights, model)
        if copied:
            sharding.copy_weights(model, copied)
    elif compute.fully_shard:
        say("fully_shard ignored: there is one process, and nothing to shard its model over")
    precision = Precision(compute, group.device)
    optimizer = make_optimizer(settings.optimizer, model, workload)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    micro_batch_file = MicroBatchFile(restart_file, asked=settings.micro_batch, per_device=plan.per_device)
    local = sharding.local_tensors if sharding else identity
    return Learner(
        group=group,
        model=model,
        evaluate_through=averaged_through or through,
        gradient=GradientPass(
            group=group,
            share=plan.per_device,
            through=through if sharding else group.wrap(through, compute),
            loss=bind_loss(workload.loss),
            weight=workload.weight,
            precision=precision,
            parameters=parameters,
            is_sharded=sharding is not None,
            must_reduce_first=compute.static_graph and not sharding,
            has_collectives=has_collectives or sharding is not None,
        ),
        update=Update(
            optimizer=optimizer,
            parameters=parameters,
            precision=precision,
            clip_norm=settings.optimizer.clip_norm,
            gather=sharding.all_gather if sharding else None,
        ),
        recovery=Recovery(
            group=group,
            micro_batch=_all_reduce_micro_batch(micro_batch_file, group, plan, say),
            micro_batch_file=micro_batch_file,
            compiler=compiler,
            say=say,
        ),
        precision=precision,
        average=AveragedModel(copied, model, decay=settings.ema_decay, local=local) if copied else None,
        sharding=sharding,
        is_as_built=not (sharding or compute.compile or compute.gradient_checkpointing),
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


def _change_in_place(
    model: nn.Module,
    copied: nn.Module | None,
    workload: BuiltWorkload,
    compute: ComputeSettings,
    say: Say,
    *,
    is_sharded: bool,
) -> Compiler:
    """Make blocks recompute, and compile the models, or their blocks where hooks between them can't be compiled."""
    compiler = Compiler(say)
    recomputes = compute.gradient_checkpointing and bool(workload.blocks)
    if recomputes:
        recompute_blocks(workload.blocks)
    elif compute.gradient_checkpointing:
        say("gradient_checkpointing ignored: the recipe has no blocks (Workload.blocks)")
    if not compute.compile:
        return compiler
    by_blocks = recomputes or is_sharded
    if by_blocks and not workload.blocks:
        say("compile ignored: with fully_shard it compiles blocks, and the recipe has none (Workload.blocks)")
    parts = list(workload.blocks) if by_blocks else [model]
    for part in [*parts, *_same_parts(parts, model, copied)]:
        compiler.compile(part)
    return compiler


def _same_parts(parts: Sequence[nn.Module], model: nn.Module, copied: nn.Module | None) -> list[nn.Module]:
    """Return the same parts of the model's copy; none without a copy."""
    if copied is None:
        return []
    names = {module: name for name, module in model.named_modules()}
    return [copied.get_submodule(names[part]) for part in parts]


def _shard(
    sharding: "Sharding",
    through: Through,
    averaged_through: Through | None,
    workload: BuiltWorkload,
    compute: ComputeSettings,
    say: Say,
) -> None:
    """Shard the model and its EMA copy over the processes."""
    say(f"weights, gradients and optimizer state are sharded over {sharding.processes} processes (FSDP2)")
    if compute.channels_last:
        say("channels_last ignored: fully_shard doesn't support it")
    if not workload.blocks:
        say("the recipe has no blocks (Workload.blocks): each step all-gathers the whole model at once")
    if averaged_through:
        blocks = _same_parts(workload.blocks, through.model, averaged_through.model)
        sharding.shard_model(averaged_through, blocks, settings=compute, is_trained=False)
    sharding.shard_model(through, workload.blocks, settings=compute)


def _all_reduce_micro_batch(micro_batch_file: MicroBatchFile, group: ProcessGroup, plan: BatchPlan, say: Say) -> int:
    """Return the smallest micro-batch that any process wrote for this start, else the planned one."""
    mine = micro_batch_file.read() or plan.micro_batch
    (smallest,) = group.all_reduce_max([-min(mine, plan.micro_batch)])
    if -smallest < plan.micro_batch:
        say(f"micro-batch {-smallest} instead of {plan.micro_batch}: an earlier start ran out of memory")
    return -smallest
