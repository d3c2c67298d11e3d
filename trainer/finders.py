"""`find-lr` and `find-batch`: what to set, measured on this machine. Nothing is trained for good."""

from collections.abc import Callable
from typing import Any

import torch

from trainer.assembly import check_compute, make_learner
from trainer.batch import BatchPlan, plan_batch
from trainer.config import Settings
from trainer.contract import RunContract
from trainer.data import Batch, SampleSource, sample_rng, stack_samples
from trainer.distributed import World, joined_world
from trainer.errors import BadRequestError, DeviceMemoryError
from trainer.learner import Learner
from trainer.lr_finder import Suggestion, draw_sweep, repeat_batches, suggest_rate, sweep_learner
from trainer.memory import RESTART_FILE
from trainer.recipe import Recipe, Workload
from trainer.rng import seed_all

CURVE = "lr-finder.png"
MOST_SAMPLES = 4096
_STEPS_TO_FIT = 2  # the second one has the optimizer's state in memory as well
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
        say(f"--set optimizer.learning_rate={suggestion.valley:.2g}   curve: {contract.output_dir / CURVE}")
    return suggestion


def find_micro_batch(recipe: Recipe[Any], contract: RunContract, say: Say, *, most: int = MOST_SAMPLES) -> int:
    """Find the largest number of samples that one process can compute at once on its device.

    Sizes are doubled until memory runs out; the answer is the last one that fitted twice, the second time with the
    optimizer's state.

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
        fitting = 0
        while (size := max(1, 2 * fitting)) <= most and _fits(learner, workload.train_data, size):
            fitting = size
    if not fitting:
        raise DeviceMemoryError(
            f"not even one sample fits on {world.device}",
            why="a step with one sample ran out of memory",
            fix="use a smaller model, or --set compute.gradient_checkpointing=true",
        )
    limit = "the most that was tried" if 2 * fitting > most else f"{2 * fitting} run out of memory"
    say(f"{fitting} samples at a time fit on {world.device} ({limit}): --set micro_batch={fitting}")
    return fitting


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
    check_compute(settings.compute, workload.model, world)
    nowhere = contract.checkpoint_dir / RESTART_FILE
    learner = make_learner(settings, workload, world, plan, restart_file=nowhere, say=say)
    seed_all(seed=settings.seed, rank=world.rank, step=0)
    return workload, plan, learner


def _fits(learner: Learner, source: SampleSource, size: int) -> bool:
    batch = _make_batch(source, size, learner.world.device)
    learner.micro_batch = size
    learner.model.train()
    try:
        for number in range(_STEPS_TO_FIT):
            learner.step(batch, rate=1e-9, number=number)
    except DeviceMemoryError:
        return False
    return learner.micro_batch == size


def _make_batch(source: SampleSource, size: int, device: torch.device) -> Batch:
    samples = [
        source.sample(index % len(source), sample_rng(seed=0, epoch=0, index=index % len(source)))
        for index in range(size)
    ]
    return tuple(part.to(device) for part in stack_samples(samples))
