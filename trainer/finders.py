"""`find-lr` and `find-batch`: what to set, measured on this machine. Nothing is trained for good."""

from collections.abc import Callable
from typing import Any

import torch

from trainer.assembly import check_settings, make_learner
from trainer.batch import BatchPlan, plan_batch
from trainer.config import Settings
from trainer.contract import RunContract
from trainer.data import Batch, SampleSource, sample_rng, stack_samples
from trainer.distributed import World, joined_world
from trainer.errors import BadRequestError, DeviceMemoryError
from trainer.learner import Learner
from trainer.lr_finder import Suggestion, draw_sweep, repeat_batches, suggest_rate, sweep_learner
from trainer.memory import RESTART_FILE, is_out_of_memory
from trainer.recipe import Recipe, Workload
from trainer.rng import seed_all

CURVE = "lr-finder.png"
MOST_SAMPLES = 4096
_STEPS_TO_FIT = 2  # the second one has the optimizer's state in memory as well
_FINENESS = 32
Say = Callable[[str], None]


def find_learning_rate(
    recipe: Recipe[Any], contract: RunContract, say: Say, *, lowest: float, highest: float, steps: int
) -> Suggestion:
    """Run the range test on a recipe, draw its curve into the output folder, and suggest rates.

    Raises:
        BadRequestError: the batch cannot be trained, or the loss diverged at once.
    """
    with joined_world(contract) as world:
        workload, plan, learner = _prepare(recipe, contract, world, say)
        batches = repeat_batches(learner, workload.train_data, batch_size=plan.batch_size, seed=recipe.settings.seed)
        sweep = sweep_learner(learner, batches, lowest=lowest, highest=highest, steps=steps)
    suggestion = suggest_rate(sweep)
    if world.is_main:
        contract.output_dir.mkdir(parents=True, exist_ok=True)
        draw_sweep(sweep, suggestion, contract.output_dir / CURVE)
        say(f"steepest {suggestion.steepest:.2g}  valley {suggestion.valley:.2g}  "
            f"before divergence {suggestion.before_divergence:.2g}  (batch {plan.batch_size})")  # fmt: skip
        shown = contract.show(contract.output_dir / CURVE)
        say(f"--set optimizer.learning_rate={suggestion.valley:.2g}   curve: {shown}")
    return suggestion


def find_micro_batch(recipe: Recipe[Any], contract: RunContract, say: Say, *, most: int = MOST_SAMPLES) -> int:
    """Find the largest number of samples that one process can compute at once on its device.

    A size fits where two steps do, the second one with the optimizer's state in memory. On a CPU sizes are only
    doubled: close to the limit native code crashes instead of saying that memory ran out.

    Raises:
        BadRequestError: it was started with several processes.
        DeviceMemoryError: not even one sample fits.
    """
    if contract.world_size > 1:
        raise BadRequestError(
            "find-batch measures one process",
            why=f"{contract.world_size} were started, and one that runs out of memory would leave the others waiting",
            fix="start it without torchrun; every process of a run can then use what it finds",
        )
    with joined_world(contract) as world:
        workload, _, learner = _prepare(recipe, contract, world, say)
        fitting, failing = search_largest(
            lambda size: _fits(learner, workload.train_data, size), most=most, is_fine=world.device.type == "cuda"
        )
    if not fitting:
        raise DeviceMemoryError(
            f"not even one sample fits on {world.device}",
            why="a step with one sample ran out of memory",
            fix="use a smaller model, or --set compute.gradient_checkpointing=true",
        )
    limit = "the most that was tried" if fitting == most else f"{failing} run out of memory"
    say(f"{fitting} samples at a time fit on {world.device} ({limit}): --set micro_batch={fitting}")
    return fitting


def search_largest(fits: Callable[[int], bool], *, most: int, is_fine: bool) -> tuple[int, int]:
    """Search the largest size that fits, from 1 to `most`, by doubling.

    Args:
        fits: tries a size.
        most: nothing beyond is tried.
        is_fine: also halve the gap between what fits and what doesn't, until it is a thirtieth.

    Returns:
        The largest size that fitted, 0 for none, and the smallest that didn't, `most` + 1 for none.
    """
    fitting, failing = 0, most + 1
    while failing > most and fitting < most:
        size = min(max(1, 2 * fitting), most)
        fitting, failing = (size, failing) if fits(size) else (fitting, size)
    while is_fine and failing - fitting > max(1, fitting // _FINENESS):
        size = (fitting + failing) // 2
        fitting, failing = (size, failing) if fits(size) else (fitting, size)
    return fitting, failing


def _prepare(recipe: Recipe[Any], contract: RunContract, world: World, say: Say) -> tuple[Workload, BatchPlan, Learner]:
    settings: Settings = recipe.settings
    seed_all(seed=settings.seed, rank=0, step=0)
    workload = recipe.build(settings)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=world.size,
        samples=len(workload.train_data),
        epochs=settings.epochs,
        micro_batch=settings.micro_batch,
    )
    check_settings(settings, workload.model, world)
    nowhere = contract.checkpoint_dir / RESTART_FILE
    learner = make_learner(settings, workload, world, plan, restart_file=nowhere, say=say)
    seed_all(seed=settings.seed, rank=world.rank, step=0)
    return workload, plan, learner


def _fits(learner: Learner, source: SampleSource, size: int) -> bool:
    learner.micro_batch, learner.halves = size, False
    learner.model.train()
    try:
        batch = _make_batch(source, size, learner.world.device)
        for number in range(_STEPS_TO_FIT):
            learner.step(batch, rate=1e-9, number=number)
    except Exception as err:
        if isinstance(err, DeviceMemoryError) or is_out_of_memory(err):
            return False
        raise
    return True


def _make_batch(source: SampleSource, size: int, device: torch.device) -> Batch:
    samples = [
        source.sample(index % len(source), sample_rng(seed=0, epoch=0, index=index % len(source)))
        for index in range(size)
    ]
    return tuple(part.to(device) for part in stack_samples(samples))
