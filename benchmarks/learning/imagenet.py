"""Six drawn shapes, told apart by a ResNet of 18 layers; the best constant has one of six right."""

from __future__ import annotations

from pathlib import Path

from benchmarks.learning.bar import LearningBar


def most_frequent_share(data: Path) -> float:
    """Return the accuracy of always naming the class that is most frequent in val/."""
    counts = [len(list(folder.iterdir())) for folder in (data / "val").iterdir()]
    return max(counts) / sum(counts)


_SETTINGS = (
    "model.depth=18",
    "data.pixels=32",
    "data.augmentation=plain",
    "loss.mixup=0",
    "workers=0",
    "schedule.name=one_cycle",
    "schedule.warmup_epochs=0",
    "batch_size=16",
    "optimizer.learning_rate=0.8",
)

BAR = LearningBar(
    recipe="imagenet",
    count=600,
    settings=(*_SETTINGS, "epochs=6"),
    metric="val_top1",
    better="max",
    reach=0.75,
    untrained=most_frequent_share,
)
SHORT = LearningBar(
    recipe="imagenet",
    count=240,
    settings=(*_SETTINGS, "epochs=4"),
    metric="val_top1",
    better="max",
    reach=0.35,
    untrained=most_frequent_share,
)
