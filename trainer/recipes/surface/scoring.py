"""What validation measures: each patch's loss and Dice, and the competition's score of some patches."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from trainer.metrics.surfaces import SurfaceScore, surface_score
from trainer.recipes.surface.losses import SURFACE, LossSettings, is_counted, single_scale_loss
from trainer.recipes.surface.patches import Patch, PatchSource

# Shape legend: B batch, K classes, Z Y X axes of a volume.


def measure(network: nn.Module, batch: Patch, settings: LossSettings) -> Mapping[str, torch.Tensor]:
    """Compute each patch's loss, and the Dice of its predicted surface over the labelled voxels, each (B,)."""
    logits_BKZYX = network(batch.raw)
    each = zip(logits_BKZYX, batch.labels, batch.skeleton, strict=True)
    losses = [
        single_scale_loss(logits[None], labels[None], skeleton[None], settings) for logits, labels, skeleton in each
    ]
    predicted_BZYX = predict(logits_BKZYX) & is_counted(batch.labels, settings.ignore_index)
    true_BZYX = batch.labels == SURFACE
    overlap_B = (predicted_BZYX & true_BZYX).flatten(1).sum(1)
    size_B = predicted_BZYX.flatten(1).sum(1) + true_BZYX.flatten(1).sum(1)
    # Nothing predicted where there is nothing is right.
    dice_B = torch.where(size_B > 0, 2 * overlap_B / size_B.clamp(min=1), 1.0)
    return {"loss": torch.stack(losses), "dice": dice_B}


def predict(logits_BKZYX: torch.Tensor) -> torch.Tensor:
    """Return where the surface is the most probable class, (B, Z, Y, X)."""
    return logits_BKZYX.argmax(1) == SURFACE


class ScoreMetric:
    """The competition's score and its parts, averaged over the patches that are marked for it."""

    def __init__(self, ignore_index: int) -> None:
        self._ignore_index = ignore_index
        self._scores: list[list[float]] = []

    def update(self, model: nn.Module, batch: Patch) -> None:
        """Score a batch's marked patches."""
        marked = batch.is_scored.nonzero()[:, 0]
        if not len(marked):
            return
        predicted = predict(model(batch.raw[marked])).cpu().numpy()
        labels = batch.labels[marked].cpu().numpy()
        for predicted_ZYX, labels_ZYX in zip(predicted, labels, strict=True):
            ignored_ZYX = labels_ZYX == self._ignore_index
            self._scores.append(list(surface_score(predicted_ZYX, labels_ZYX == SURFACE, ignored_ZYX)))

    def state(self) -> Any:
        """Return the scores so far."""
        return self._scores

    def merge(self, states: Sequence[Any]) -> Mapping[str, float]:
        """Average over all processes."""
        scores = [score for state in states for score in state]
        return dict(zip(SurfaceScore._fields, np.mean(scores, axis=0).tolist(), strict=True))


def draw_slice(network: nn.Module, patches: PatchSource) -> Mapping[str, Any]:
    """Draw the middle slice of the first held-out patch: the volume, its labels and the prediction, side by side."""
    patch = patches.sample(0, np.random.default_rng(0))
    device = next(network.parameters()).device
    predicted_ZYX = predict(network(patch.raw[None].to(device)))[0].cpu().numpy()
    middle = predicted_ZYX.shape[0] // 2
    # Unlabelled voxels are grey.
    labels_YX = np.array([0, 255, 96], np.uint8)[patch.labels[middle].numpy().clip(max=2)]
    raw_YX = (patch.raw[0, middle].numpy() * 255).astype(np.uint8)
    return {"slice.png": np.concatenate([raw_YX, labels_YX, predicted_ZYX[middle] * np.uint8(255)], axis=1)}
