"""`find-lr` and `find-batch`: measure a learning rate and a micro-batch on this machine. No weights are saved."""

from collections.abc import Callable
from typing import Any

import torch

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, DeviceMemoryError
from trainer.base.memory import RESTART_FILE, is_out_of_memory
from trainer.base.recipe import Moment, Recipe, Workload
from trainer.base.rng import seed_all
from trainer.base.sources import Batch, SampleSource
from trainer.data.batch import move_batch, stack_samples
from trainer.data.loader import BatchLoader
from trainer.data.seeded import sample_rng
from trainer.find.lr_finder import Suggestion, draw_sweep, repeat_batches, suggest_rate, sweep_learner
from trainer.group.distributed import ProcessGroup, process_group
from trainer.step.assembly import check_settings, make_learner
from trainer.step.batch import BatchPlan, plan_batch
from trainer.step.learner import Learner

CURVE = "lr-finder.png"
MOST_SAMPLES = 4096
_STEPS_TO_FIT = 2  # the optimizer's state is in memory only from the second step on
_REFINEMENT = 32
Say = Callable[[str], None]


def find_learning_rate(
    recipe: Recipe[Any], contract: RunContract, say: Say, *, lowest: float, highest: float, steps: int
) -> Suggestion:
    """Run the range test on a recipe, draw its curve into the output folder, and suggest rates.

    Raises:
        BadRequestError: the batch cannot be trained, or the loss diverged immediately.
    """
    with process_group(contract) as group:
        workload, plan, learner = _prepare(recipe, contract, group, say)
        loader = BatchLoader(
            workload.train_data,
            collate=workload.collate,
            seed=recipe.settings.seed,
            device=group.device,
            rank=group.rank,
            world_size=group.size,
            workers=recipe.settings.workers,
        )
        batches = repeat_batches(loader, batch_size=plan.batch_size)
        sweep = sweep_learner(learner, batches, lowest=lowest, highest=highest, steps=steps)
    suggestion = suggest_rate(sweep)
    if group.is_main:
        contract.output_dir.mkdir(parents=True, exist_ok=True)
        draw_sweep(sweep, suggestion, contract.output_dir / CURVE)
        say(f"steepest {suggestion.steepest:.2g}  valley {suggestion.valley:.2g}  "
            f"before divergence {suggestion.before_divergence:.2g}  (batch {plan.batch_size})")  # fmt: skip
        shown = contract.path_for_user(contract.output_dir / CURVE)
        say(f"--set optimizer.learning_rate={suggestion.valley:.2g}   curve: {shown}")
    return suggestion


def find_micro_batch(recipe: Recipe[Any], contract: RunContract, say: Say, *, most: int = MOST_SAMPLES) -> int:
    """Find the largest micro-batch that one process can compute on its device.

    A size fits if two steps succeed, the second with the optimizer's state in memory. On a CPU sizes are only doubled,
    because close to the limit native code crashes instead of reporting that memory ran out.

    Raises:
        BadRequestError: it was started with several processes.
        DeviceMemoryError: not even one sample fits.
    """
    if contract.world_size > 1:
        raise BadRequestError(
            "find-batch measures one process",
            why=f"{contract.world_size} were started, and one that runs out of memory would leave the others waiting",
            fix="start it without torchrun; every process of a run can use the result",
        )
    with process_group(contract) as group:
        workload, _, learner = _prepare(recipe, contract, group, say)
        fitting, failing = search_largest(
            lambda size: _fits(learner, workload, size), most=most, refine=group.device.type == "cuda"
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


def _prepare(
    recipe: Recipe[Any], contract: RunContract, group: ProcessGroup, say: Say
) -> tuple[Workload, BatchPlan, Learner]:
    settings: Settings = recipe.settings
    seed_all(seed=settings.seed, rank=0, step=0)
    workload = recipe.build(settings)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=group.size,
        samples=len(workload.train_data),
        epochs=settings.epochs,
        micro_batch=settings.micro_batch,
        max_steps=settings.max_steps,
    )
    check_settings(settings, workload.model, group)
    nowhere = contract.checkpoint_dir / RESTART_FILE
    learner = make_learner(settings, workload, group, plan, restart_file=nowhere, say=say)
    seed_all(seed=settings.seed, rank=group.rank, step=0)
    return workload, plan, learner


def _fits(learner: Learner, workload: Workload, size: int) -> bool:
    learner.micro_batch, learner.may_halve = size, False
    learner.model.train()
    try:
        batch = _make_batch(workload, size, learner.group.device)
        for number in range(_STEPS_TO_FIT):
            learner.step(batch, rate=1e-9, moment=Moment(step=number))
    except Exception as err:
        if isinstance(err, DeviceMemoryError) or is_out_of_memory(err):
            return False
        raise
    return True


def _make_batch(workload: Workload, size: int, device: torch.device) -> Batch:
    source = workload.train_data
    assert isinstance(source, SampleSource)
    samples = [
        source.sample(index % len(source), sample_rng(seed=0, epoch=0, index=index % len(source)))
        for index in range(size)
    ]
    return move_batch((workload.collate or stack_samples)(samples), device)
