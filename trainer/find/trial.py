"""What the measurements share: a recipe's learner without a run, and batches of any size."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import torch

from trainer.base.config import AUTO, Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError
from trainer.base.memory import RESTART_FILE
from trainer.base.recipe import BuiltWorkload, Recipe, Workload
from trainer.base.rng import seed_all
from trainer.base.sources import Batch, Sample, StreamSource
from trainer.data.batch import move_batch, stack_samples
from trainer.data.seeded import sample_rng
from trainer.group.distributed import ProcessGroup
from trainer.step.assembly import check_settings, make_learner
from trainer.step.batch import BatchPlan, plan_batch
from trainer.step.learner import Learner

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A recipe's workload, its batch, and a learner that saves nothing."""

    workload: BuiltWorkload
    plan: BatchPlan
    learner: Learner


def prepare_trial(
    recipe: Recipe[Any], workload: BuiltWorkload, contract: RunContract, group: ProcessGroup, say: Say
) -> Trial:
    """Make the learner of a workload, as a run would.

    Raises:
        BadRequestError: the batch or the settings can't be trained.
    """
    settings = _with_any_rate(recipe.settings)
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
    return Trial(workload=workload, plan=plan, learner=learner)


def _with_any_rate(settings: Settings) -> Settings:
    """Return the settings with a number as learning rate: the steps of a trial have rates of their own."""
    if settings.optimizer.learning_rate != AUTO:
        return settings
    return replace(settings, optimizer=replace(settings.optimizer, learning_rate=1.0))


def make_batch(workload: Workload, size: int, device: torch.device) -> Batch:
    """Make a batch of the first training samples, repeated if there are too few, as the recipe collates it."""
    samples = list(islice(_repeat_samples(workload), size))
    return move_batch((workload.collate or stack_samples)(samples), device)


def _repeat_samples(workload: Workload) -> Iterator[Sample]:
    source = workload.train_data
    for epoch in count():
        got = 0
        for sample in _stream_samples(source, epoch) if isinstance(source, StreamSource) else _samples(workload, epoch):
            got += 1
            yield sample
        if not got:
            raise BadRequestError(
                "the recipe has no training samples",
                why="its training data are empty",
                fix="check the recipe's data settings",
            )


def _samples(workload: Workload, epoch: int) -> Iterator[Sample]:
    source: Any = workload.train_data
    for index in range(len(source)):
        yield source.sample(index, sample_rng(seed=0, epoch=epoch, index=index))


def _stream_samples(source: StreamSource, epoch: int) -> Iterator[Sample]:
    return iter(source.open(epoch=epoch, rank=0, world_size=1, seed=0))
