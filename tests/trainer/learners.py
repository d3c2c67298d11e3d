"""A small learner without a run."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.trainer import harness
from trainer.base.config import Settings
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import BuiltWorkload, Moment
from trainer.base.sources import Batch
from trainer.data.sources import ArraySource
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.step.assembly import make_learner
from trainer.step.batch import plan_batch
from trainer.step.learner import Learner

# Shape legend: B batch, F features, K classes.
FEATURES, CLASSES = 6, 3
FAST = 1e-2
COMPILER_WARNS = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method:DeprecationWarning", "ignore:The .grad attribute of a Tensor:UserWarning"
)
"""The compiler uses what torch itself has deprecated, and looks at gradients that aren't kept (2.13)."""
# Ranks may be threads, which have one generator.
_drawing = threading.Lock()


class SmallNet(nn.Module):
    """Linear, batch norm, dropout, linear: all kinds of state that a step has."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(values_BF))
        return logits_BK


def mean_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    values_BF, labels_B = batch
    return functional.cross_entropy(model(values_BF), labels_B)


def make_learner_of(
    assignments: Sequence[str] = (), *, model: nn.Module | None = None, folder: Path = Path("nowhere"),
    said: list[str] | None = None, changes: Mapping[str, Any] | None = None,
    group: ProcessGroup = ALONE,
) -> Learner:  # fmt: skip
    """Make a learner on the CPU for a batch of 8; `changes` are fields of its workload."""
    settings = apply_overrides(Settings(batch_size=8), assignments)
    with _drawing:
        torch.manual_seed(0)
        net = model or SmallNet()
    source = ArraySource(torch.zeros(8, 1, 8, 8), torch.zeros(8))
    workload = BuiltWorkload(
        model=net,
        train_data=source,
        validation_data=source,
        loss=mean_loss,
        metrics=lambda *_: {},
        blocks=[part for name, part in net.named_children() if name == "block"],
    )
    workload = replace(workload, **(changes or {}))
    plan = plan_batch(
        batch_size=settings.batch_size, world_size=group.size, samples=64, epochs=1, micro_batch=settings.micro_batch
    )
    say = (said if said is not None else []).append
    return make_learner(settings, workload, group, plan, restart_file=folder / "micro-batch.json", say=say)


def random_batches(*, batch_size: int = 8, seed: int = 1) -> Iterator[Batch]:
    """Yield random batches endlessly, from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        values_BF = torch.randn(batch_size, FEATURES, generator=generator)
        yield values_BF, torch.randint(CLASSES, (batch_size,), generator=generator)


class PlainNet(nn.Module):
    """No batch norm and no dropout: splitting a batch changes only rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(values_BF))
        return logits_BK


def train_steps(learner: Learner, steps: int = 5) -> dict[str, torch.Tensor]:
    batches = random_batches()
    learner.model.train()
    for number in range(steps):
        learner.step(next(batches), rate=FAST, moment=Moment(step=number))
    return harness.copy_state(dict(learner.model.state_dict()))


def seeded(make: object) -> nn.Module:
    """Make a model with the same initial weights each time."""
    with _drawing:
        torch.manual_seed(0)
        model = make()  # type: ignore[operator]
    assert isinstance(model, nn.Module)
    return model
