"""`find-lr` and `find-batch`: measure a learning rate and a micro-batch on this machine. No weights are saved."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch

from trainer.base.config import OptimizerSettings, Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, DeviceMemoryError
from trainer.base.memory import is_out_of_memory
from trainer.base.recipe import Moment, Recipe
from trainer.data.loader import BatchLoader
from trainer.find.lr_finder import (
    LearningRateSweep,
    Suggestion,
    draw_sweep,
    repeat_batches,
    suggest_rate,
    sweep_learner,
)
from trainer.find.trial import Say, Trial, make_batch, prepare_trial
from trainer.group.distributed import ProcessGroup, process_group
from trainer.step.batch import BatchPlan
from trainer.step.build import build_workload
from trainer.step.schedule import scale_learning_rate

CURVE = "lr-finder.png"
MOST_SAMPLES = 4096
_STEPS_TO_FIT = 2  # the optimizer's state is in memory only from the second step on
_REFINEMENT = 32


def find_learning_rate(
    recipe: Recipe[Any], contract: RunContract, say: Say, *, lowest: float, highest: float, steps: int
) -> Suggestion:
    """Run the range test on a recipe, draw its curve into the output folder, and suggest rates.

    Raises:
        BadRequestError: the batch cannot be trained, or the loss diverged immediately.
    """
    with process_group(contract) as group:
        trial = prepare_trial(recipe, build_workload(recipe, group), contract, group, say)
        plan, factor = trial.plan, factor_to_peak(recipe.settings.optimizer, trial.plan)
        sweep = sweep_trial(trial, recipe.settings, lowest=lowest, highest=highest, steps=steps)
    suggestion = suggest_rate(sweep)
    if group.is_main:
        contract.output_dir.mkdir(parents=True, exist_ok=True)
        draw_sweep(sweep, suggestion, contract.output_dir / CURVE)
        say(f"steepest {suggestion.steepest:.2g}  valley {suggestion.valley:.2g}  "
            f"before divergence {suggestion.before_divergence:.2g}  (batch {plan.batch_size})")  # fmt: skip
        shown = contract.path_for_user(contract.output_dir / CURVE)
        say(f"--set optimizer.learning_rate={suggestion.valley / factor:.2g}   curve: {shown}")
    return suggestion


def sweep_trial(
    trial: Trial, settings: Settings, *, lowest: float = 1e-6, highest: float = 1.0, steps: int = 200
) -> LearningRateSweep:
    """Run the range test on a trial, with the training batches of its first epochs; collective."""
    group = trial.learner.group
    loader = BatchLoader(
        trial.workload.train_data,
        collate=trial.workload.collate,
        seed=settings.seed,
        device=group.device,
        rank=group.rank,
        world_size=group.size,
        workers=settings.workers,
    )
    with closing(loader), closing(repeat_batches(loader, batch_size=trial.plan.batch_size)) as batches:
        return sweep_learner(trial.learner, batches, lowest=lowest, highest=highest, steps=steps)


def factor_to_peak(settings: OptimizerSettings, plan: BatchPlan) -> float:
    """Return the peak rate of this batch as a multiple of optimizer.learning_rate."""
    return scale_learning_rate(replace(settings, learning_rate=1.0), batch_size=plan.batch_size)


def find_micro_batch(recipe: Recipe[Any], contract: RunContract, say: Say, *, most: int = MOST_SAMPLES) -> int:
    """Find the largest micro-batch that one process can compute on its device.

    A size fits if two steps succeed, the second with the optimizer's state in memory. On a CPU sizes are only doubled,
    because close to the limit native code crashes instead of reporting that memory ran out.

    Several processes try the same sizes, and a size fits if it fits on all of them. Their steps reduce no gradients: a
    process that runs out of memory leaves no other one waiting. With DDP a run needs up to one more set of gradients
    where it accumulates them.

    Raises:
        BadRequestError: the model is to be sharded over several processes.
        DeviceMemoryError: not even one sample fits.
    """
    _check_not_sharded(recipe.settings, contract)
    with process_group(contract) as group:
        alone = ProcessGroup(rank=0, size=1, device=group.device)
        trial = prepare_trial(recipe, build_workload(recipe), contract, alone, say)
        if group.size > 1:
            say(f"{group.size} processes try the same sizes, each for itself: their gradients are not reduced")
        fitting, failing = search_largest(
            lambda size: _fits(trial, size, group), most=most, refine=group.device.type == "cuda"
        )
    if not fitting:
        raise DeviceMemoryError(
            f"not even one sample fits on {group.device}",
            why="a step with one sample ran out of memory",
            fix="use a smaller model, or --set compute.gradient_checkpointing=true",
        )
    limit = "the largest size tried" if fitting == most else f"{failing} run out of memory"
    say(f"a micro-batch of {fitting} fits on {group.device} ({limit}): --set micro_batch={fitting}")
    return fitting


def search_largest(fits: Callable[[int], bool], *, most: int, refine: bool) -> tuple[int, int]:
    """Find the largest size that fits, from 1 to `most`, by doubling.

    Args:
        fits: tries a size.
        most: the largest size to try.
        refine: after doubling, bisect the gap between what fits and what doesn't, down to a thirtieth.

    Returns:
        The largest size that fits (0: none), and the smallest that doesn't (`most` + 1: none).
    """
    fitting, failing = 0, most + 1
    while failing > most and fitting < most:
        size = min(max(1, 2 * fitting), most)
        fitting, failing = (size, failing) if fits(size) else (fitting, size)
    while refine and failing - fitting > max(1, fitting // _REFINEMENT):
        size = (fitting + failing) // 2
        fitting, failing = (size, failing) if fits(size) else (fitting, size)
    return fitting, failing


def _fits(trial: Trial, size: int, group: ProcessGroup) -> bool:
    """Try a size on every process; it fits if it fits everywhere. Collective."""
    (failed,) = group.all_reduce_max([int(not _fits_here(trial, size))])
    return not failed


def _fits_here(trial: Trial, size: int) -> bool:
    learner = trial.learner
    device = learner.group.device
    learner.expect_share(size, micro_batch=size)
    learner.may_halve = False
    learner.model.train()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what another size left in pieces would make this one fail
    try:
        batch = make_batch(trial.workload, size, device)
        for number in range(_STEPS_TO_FIT):
            learner.step(batch, rate=1e-9, moment=Moment(step=number))
    except Exception as err:
        if isinstance(err, DeviceMemoryError) or is_out_of_memory(err):
            return False
        raise
    return True


def _check_not_sharded(settings: Settings, contract: RunContract) -> None:
    if settings.compute.fully_shard and contract.world_size > 1:
        raise BadRequestError(
            "find-batch can't measure a sharded model",
            why="each forward pass has collectives: a process that runs out of memory would leave the others waiting",
            fix="leave compute.fully_shard off to measure the whole model; its shards need less memory",
        )
