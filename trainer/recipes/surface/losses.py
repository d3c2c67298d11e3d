"""The loss: .3 (focal + Dice) + .3 skeleton recall + .2 boundary, with deep supervision at 1/2, 1/4 and 1/8.

Weights, alpha and the smoothing of 1 are those of the original project (bshepp/volumen, src_v2/losses.py, read in
November 2026). Voxels with the label `ignore_index` count nowhere: in the competition, 2 means unlabelled. All is
computed in float32, also under autocast: in 16 bits the logarithm of a small probability is infinite.

Each part is computed for each sample, and then averaged over the samples, so that micro-batches and processes add up to
the gradient of the whole batch. The original pools the voxels of the four patches of a step instead. A sample without
surface has no skeleton to recall, and the Dice of what is predicted there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from trainer.api import setting
from trainer.metrics.distances import signed_distance

# Shape legend: B batch, K classes, Z Y X axes of a volume, N all of its voxels.
SURFACE = 1
_SMOOTH = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The loss and its parts."""

    ignore_index: int = setting(2, "label of voxels that count nowhere (unlabelled ones); -1: none")
    region: float = setting(0.3, "weight of focal + Dice", minimum=0)
    skeleton: float = setting(0.3, "weight of the skeleton's recall", minimum=0)
    boundary: float = setting(0.2, "weight of signed distance x probability", minimum=0)
    alpha: tuple[float, float, float] = setting((0.3, 3.0, 0.3), "of background, surface and the third class")
    gamma: float = setting(2.0, "of the focal loss", minimum=0)
    supervision: tuple[float, ...] = setting((0.5, 0.25, 0.125), "v2: weights of the heads, from 1/2 of the size on")


def surface_loss(
    outputs: torch.Tensor | Sequence[torch.Tensor],
    labels_BZYX: torch.Tensor,
    skeleton_BZYX: torch.Tensor,
    settings: LossSettings,
) -> torch.Tensor:
    """Compute the loss of a network's outputs, a scalar.

    Args:
        outputs: logits (B, 3, Z, Y, X), or several, at 1, 1/2, 1/4, ... of the size. Coarse ones are compared with
            each 2nd, 4th, ... voxel of the labels.
        labels_BZYX: 0 background, 1 surface, 2 a third class or unlabelled.
        skeleton_BZYX: the skeleton that has to be recalled; within the surface.
        settings: weights.
    """
    scales = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    total = scales[0].new_zeros((), dtype=torch.promote_types(scales[0].dtype, torch.float32))
    for level, (logits_BKZYX, weight) in enumerate(zip(scales, (1.0, *settings.supervision), strict=False)):
        step = slice(None, None, 2**level)
        labels, skeleton = labels_BZYX[:, step, step, step], skeleton_BZYX[:, step, step, step]
        total = total + weight * single_scale_loss(logits_BKZYX, labels, skeleton, settings)
    return total


def single_scale_loss(
    logits_BKZYX: torch.Tensor, labels_BZYX: torch.Tensor, skeleton_BZYX: torch.Tensor, settings: LossSettings
) -> torch.Tensor:
    """Compute the weighted sum of the parts for one output, a scalar."""
    with torch.autocast(logits_BKZYX.device.type, enabled=False):
        logits_BKZYX = logits_BKZYX.to(torch.promote_types(logits_BKZYX.dtype, torch.float32))
        counted_BZYX = is_counted(labels_BZYX, settings.ignore_index)
        alpha_K = logits_BKZYX.new_tensor(settings.alpha)
        surface_BZYX = logits_BKZYX.softmax(1)[:, SURFACE]
        focal = focal_loss(logits_BKZYX, labels_BZYX, counted_BZYX, alpha_K, settings.gamma)
        dice = dice_loss(logits_BKZYX, labels_BZYX, counted_BZYX, alpha_K, ignored=settings.ignore_index)
        recall = skeleton_recall_loss(surface_BZYX, skeleton_BZYX)
        boundary = boundary_loss(surface_BZYX, labels_BZYX == SURFACE, counted_BZYX)
        return settings.region * (focal + dice) + settings.skeleton * recall + settings.boundary * boundary


def is_counted(labels_BZYX: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Tell which voxels count, bool, of the labels' shape."""
    # As uint8, -1 would be 255.
    return labels_BZYX.to(torch.int32) != ignore_index


def focal_loss(
    logits_BKZYX: torch.Tensor,
    labels_BZYX: torch.Tensor,
    counted_BZYX: torch.Tensor,
    alpha_K: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Compute the mean of -alpha (1 - p)^gamma log p over the counted voxels, where p is the true class's probability.

    0 for a sample without counted voxels. Lin et al. 2017 (arXiv:1708.02002), equation 5.
    """
    labels_BZYX = torch.where(counted_BZYX, labels_BZYX, 0).long()
    log_p_BZYX = -functional.cross_entropy(logits_BKZYX, labels_BZYX, reduction="none")
    # With gamma below 1 the power has an infinite slope at p = 1.
    missing_BZYX = (1 - log_p_BZYX.exp()).clamp(min=1e-12)
    loss_BZYX = -alpha_K[labels_BZYX] * missing_BZYX.pow(gamma) * log_p_BZYX
    return _mean(loss_BZYX, counted_BZYX)


def dice_loss(
    logits_BKZYX: torch.Tensor,
    labels_BZYX: torch.Tensor,
    counted_BZYX: torch.Tensor,
    alpha_K: torch.Tensor,
    *,
    ignored: int,
) -> torch.Tensor:
    """Compute the mean over the classes, weighted by alpha, of 1 - (2 sum(p t) + 1) / (sum(p) + sum(t) + 1).

    The sums are over the counted voxels of each sample. The class that is ignored has none, and no share in the mean.
    """
    probabilities_BKZYX = logits_BKZYX.softmax(1) * counted_BZYX[:, None]
    losses = []
    classes = [each for each in range(logits_BKZYX.shape[1]) if each != ignored]
    for each in classes:
        p_BZYX, t_BZYX = probabilities_BKZYX[:, each], (labels_BZYX == each).to(logits_BKZYX.dtype)
        overlap_B, size_B = _sum(p_BZYX * t_BZYX), _sum(p_BZYX) + _sum(t_BZYX)
        losses.append((1 - (2 * overlap_B + _SMOOTH) / (size_B + _SMOOTH)).mean())
    weights = alpha_K[classes]
    return (torch.stack(losses) * weights).sum() / weights.sum()


def skeleton_recall_loss(surface_BZYX: torch.Tensor, skeleton_BZYX: torch.Tensor) -> torch.Tensor:
    """Compute 1 minus the share of each sample's skeleton that is predicted; 0 without a skeleton.

    Kirchhoff et al. 2024 (arXiv:2404.03010), equation 2, for one class, smoothed by 1.
    """
    skeleton_BZYX = skeleton_BZYX.to(surface_BZYX.dtype)
    recall_B = (_sum(surface_BZYX * skeleton_BZYX) + _SMOOTH) / (_sum(skeleton_BZYX) + _SMOOTH)
    return 1 - recall_B.mean()


def boundary_loss(surface_BZYX: torch.Tensor, truth_BZYX: torch.Tensor, counted_BZYX: torch.Tensor) -> torch.Tensor:
    """Compute the mean of probability x signed distance to the true surface, over the counted voxels of each sample.

    Kervadec et al. 2019 (arXiv:1812.07032), equation 5. In a sample without surface it is the mean probability, in one
    that is all surface the mean of 1 - probability.
    """
    distance_BZYX = signed_distance(truth_BZYX).to(surface_BZYX.dtype)
    truth_BN = truth_BZYX.flatten(1)
    is_empty, is_full = (~truth_BN.any(1)).view(-1, 1, 1, 1), truth_BN.all(1).view(-1, 1, 1, 1)
    weight_BZYX = torch.where(is_empty, 1.0, torch.where(is_full, -1.0, distance_BZYX))
    loss_BZYX = surface_BZYX * weight_BZYX + is_full.to(surface_BZYX.dtype)
    return _mean(loss_BZYX, counted_BZYX)


def _mean(values_BZYX: torch.Tensor, counted_BZYX: torch.Tensor) -> torch.Tensor:
    """Average the counted voxels of each sample, 0 if there are none, then the samples."""
    kept_BZYX = torch.where(counted_BZYX, values_BZYX, 0)
    return (_sum(kept_BZYX) / _sum(counted_BZYX).clamp(min=1)).mean()


def _sum(values_BZYX: torch.Tensor) -> torch.Tensor:
    """Sum the voxels of each sample, (B,)."""
    return values_BZYX.flatten(1).sum(1)
