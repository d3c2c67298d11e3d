"""`surface` on generated sheets: the Dice of the predicted surface on a scroll that wasn't trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.learning.bar import LearningBar
from trainer.generators.surface import HELD_OUT
from trainer.recipes.surface.patches import PatchSource, split_by_scroll
from trainer.recipes.surface.volumes import VolumeStore

SIDE = 16
_SMALL = (f"data.patch={SIDE}", "data.patches=8", "model.depth=2", "workers=0", "optimizer.learning_rate=0.004")


def constant_dice(folder: Path) -> float:
    """Compute the best Dice of a constant prediction on the same patches: surface everywhere, or nowhere."""
    _, names = split_by_scroll(folder, HELD_OUT)
    store = VolumeStore(folder)
    patches = PatchSource(names, store, side=SIDE, per_volume=2, centred=0.8, dilation=0, augments=False)
    labels = [patches.sample(index, np.random.default_rng(0)).labels.numpy() for index in range(len(patches))]
    counts = [((each == 1).sum(), (each != 2).sum()) for each in labels]
    everywhere = np.mean([2 * true / (true + labelled) if labelled else 1.0 for true, labelled in counts])
    nowhere = np.mean([true == 0 for true, _ in counts])
    return float(max(everywhere, nowhere))


SHORT = LearningBar(
    recipe="surface",
    count=4,
    settings=(*_SMALL, "model.base_filters=4", "epochs=5", "data.scored_patches=0"),
    metric="val_dice",
    better="max",
    reach=0.6,
    untrained=constant_dice,
)
BAR = LearningBar(
    recipe="surface",
    count=12,
    settings=(*_SMALL, "model.base_filters=8", "epochs=8", "data.validation_patches=8"),
    metric="val_dice",
    better="max",
    reach=0.8,
    untrained=constant_dice,
)
