"""The features of a step by name, and a run of a tiny network with any of them, on whichever device there is.

A case is a set of features. It trains 8 steps, saving every second one while the next steps run, then resumes from the
checkpoint in the middle of an epoch: both have to end with the same weights.
"""

import itertools
import json
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in its __all__
from torch.nn import functional

from tests.trainer import harness
from trainer.base.config import CheckpointSettings, OptimizerSettings, Settings
from trainer.base.contract import read_contract
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.checkpoints.loading import load
from trainer.group.distributed import ALONE
from trainer.report.profile import ProfileRequest
from trainer.run.engine import run_recipe

# Shape legend: B batch, C channels, H height, W width, K classes.
SAMPLES, BATCH, CLASSES = 32, 8, 2
STEPS, RESUMED_FROM = 8, 6
FITTING = 4
"""The largest micro-batch that fits, where memory runs out."""
_KERNEL_CYCLES = 20_000_000
_PEBIBYTE = 1 << 50


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature. `tolerance` is how far, relatively, it may move the losses of the first epoch."""

    name: str
    settings: tuple[str, ...] = ()
    tolerance: float = 2e-3
    excludes: tuple[str, ...] = ()
    has_cpu: bool = True


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(name="fp16", settings=("compute.amp=fp16",), tolerance=0.1, excludes=("bf16", "fsdp")),
        Feature(name="bf16", settings=("compute.amp=bf16",), tolerance=0.1),
        Feature(name="tf32", settings=("compute.tf32=on",), tolerance=0.05),
        # Slow to compile, and tests/trainer/test_compiling.py does so on a CPU.
        Feature(name="compile", settings=("compute.compile=on",), tolerance=0.02, has_cpu=False),
        Feature(name="channels_last", settings=("compute.channels_last=on",)),
        Feature(name="gradient_checkpointing", settings=("compute.gradient_checkpointing=on",)),
        Feature(name="ema", settings=("ema_decay=0.9",)),
        Feature(name="sync_batchnorm", settings=("compute.sync_batchnorm=on",)),
        Feature(name="fsdp", settings=("compute.fully_shard=on",)),
        Feature(name="deterministic", settings=("compute.deterministic=on",)),
        Feature(name="saves_under_a_long_kernel", settings=("checkpoint.every_steps=1",)),
        # Batch normalisation sees half of the batch at once.
        # A sharded step isn't repeated: its processes start again (tests/trainer/test_memory.py).
        Feature(name="out_of_memory", tolerance=0.5, excludes=("fsdp",)),
        Feature(name="profile"),
    )
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: the losses of its steps and of its validations, and the newest checkpoint."""

    losses: list[float]
    validated: list[float]
    state: dict[str, Any]
    folder: Path
    names: frozenset[str] = field(default_factory=frozenset)


class Pictures:
    """Noise, brighter at the top or at the bottom: that is the class."""

    def __len__(self) -> int:
        return SAMPLES

    def sample(self, index: int, _rng: np.random.Generator) -> Batch:
        generator = torch.Generator().manual_seed(index)
        picture_CHW = 0.3 * torch.randn(3, 8, 8, generator=generator)
        picture_CHW[:, 4 * (index % 2) : 4 * (index % 2) + 4] += 1
        return picture_CHW, torch.tensor(index % 2)


class Net(nn.Module):
    """Two blocks of convolution and batch normalisation, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self._block(3, 8), self._block(8, 8)])
        self.head = nn.Linear(8 * 4, CLASSES)

    @staticmethod
    def _block(channels_in: int, channels_out: int) -> nn.Module:
        conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU())

    def forward(self, pictures_BCHW: torch.Tensor) -> torch.Tensor:
        features_BCHW = pictures_BCHW
        for block in self.blocks:
            features_BCHW = block(features_BCHW)
        pooled_BCHW = functional.avg_pool2d(features_BCHW, 4)
        logits_BK: torch.Tensor = self.head(pooled_BCHW.flatten(1))
        return logits_BK


def list_cases(*, most: int = 2, has_gpu: bool = True) -> list[frozenset[str]]:
    """List each feature alone and all pairs that don't exclude each other."""
    names = [name for name, feature in FEATURES.items() if has_gpu or feature.has_cpu]
    cases = itertools.chain.from_iterable(itertools.combinations(names, count) for count in range(1, most + 1))
    return [frozenset(case) for case in cases if not _is_excluded(case)]


def describe(case: Collection[str]) -> str:
    """Name a case as a test's id."""
    return "-".join(name for name in FEATURES if name in case) or "plain"


def tolerance_of(case: Collection[str]) -> float:
    """Return how far a case's losses may be from the plain run's."""
    return max((FEATURES[name].tolerance for name in case), default=1e-6)


def train(case: Collection[str], folder: Path) -> Outcome:
    """Train with some features, or resume, on this process's device."""
    assignments = [setting for name in case for setting in FEATURES[name].settings]
    settings = Settings(
        epochs=2,
        batch_size=BATCH,
        log_every_steps=1,
        curves=False,
        onnx=False,
        optimizer=OptimizerSettings(learning_rate=0.02),
        checkpoint=CheckpointSettings(every_steps=2, keep=STEPS, keep_best=STEPS),
    )
    recipe = Recipe(settings=apply_overrides(settings, assignments), build=lambda _: build(case))
    profile = ProfileRequest(first=2, last=3) if "profile" in case else None
    with _globals_restored(case), _group_of_one(case):
        run_recipe("digits", recipe, read_contract({}, output_dir=folder), StopFlag(), profile=profile)
    rows = harness.read_rows(folder)
    return Outcome(
        losses=[row["loss"] for row in rows if "loss" in row],
        validated=[row["val_loss"] for row in rows if "val_loss" in row],
        state=load(harness.newest_checkpoint(folder), ALONE),
        folder=folder,
        names=frozenset(case),
    )


def build(case: Collection[str]) -> Workload:
    """Build the network, with a loss that takes long or runs out of memory if the case says so."""
    model = Net()

    def loss(net: nn.Module, batch: Batch) -> torch.Tensor:
        pictures_BCHW, labels_B = batch
        device = pictures_BCHW.device
        if "out_of_memory" in case and len(labels_B) > FITTING:
            torch.empty(_PEBIBYTE, dtype=torch.uint8, device=device)
        if "saves_under_a_long_kernel" in case and device.type == "cuda":
            torch.cuda._sleep(_KERNEL_CYCLES)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return functional.cross_entropy(net(pictures_BCHW), labels_B)

    return Workload(
        model=model,
        train_data=Pictures(),
        validation_data=Pictures(),
        loss=loss,
        metrics=lambda net, batch: {"loss": functional.cross_entropy(net(batch[0]), batch[1], reduction="none")},
        blocks=list(model.blocks),
    )


def resume_from_the_middle(whole: Outcome, folder: Path) -> Outcome:
    """Resume a copy of a run from a checkpoint that was written while it went on."""
    shutil.copytree(whole.folder, folder)
    for path in (folder / "checkpoints").iterdir():
        if path.name.startswith(("step-", "best-")) and int(path.name[5:13]) > RESUMED_FROM:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running"}))
    return train(whole.names, folder)


def largest_difference(ours: Outcome, theirs: Outcome) -> float:
    """Return the largest difference between two runs' last weights; 0 if they are equal to the bit."""
    pairs = [(value, theirs.state["model"][name]) for name, value in ours.state["model"].items()]
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel())


@contextmanager
def _globals_restored(case: Collection[str]) -> Iterator[None]:
    """Undo what a run sets for its whole process and the next one doesn't."""
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=False)
        torch.backends.cudnn.deterministic = False
        if "compile" in case:
            torch.compiler.reset()


@contextmanager
def _group_of_one(case: Collection[str]) -> Iterator[None]:
    """Open a process group of this process alone, for what needs one: it shards and synchronises over one process."""
    if not {"fsdp", "sync_batchnorm"} & set(case):
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store = HashStore()
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _is_excluded(case: Collection[str]) -> bool:
    return any(other in FEATURES[name].excludes for name in case for other in case)
