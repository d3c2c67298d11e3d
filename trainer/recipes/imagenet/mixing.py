"""Mixup, the loss of mixed pictures, and the metrics.

Zhang et al. 2018 (arXiv:1710.09412), section 2: pictures and labels are mixed with a share from Beta(a, a). Here each
picture has its own share, drawn with its other random numbers, and is mixed with the one before it in the batch.
"""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional

from trainer.api import Batch, Sample
from trainer.data.batch import stack_samples

# Shape legend: B batch, C channels, H height, W width, K classes.


def mix_samples(samples: list[Sample]) -> Batch:
    """Make a batch of a process's whole share, so that it is the same for any micro-batch.

    Returns:
        Of samples with shares: mixed pictures (B, C, H, W), classes (B,), the others' classes (B,), shares (B,).
        Of samples without: pictures and classes.
    """
    batch = stack_samples(samples)
    if len(batch) == 2:
        return batch
    pictures_BCHW, labels_B, shares_B = batch
    others_BCHW = pictures_BCHW.roll(1, 0)
    torch.lerp(others_BCHW, pictures_BCHW, shares_B[:, None, None, None], out=pictures_BCHW)
    return pictures_BCHW, labels_B, labels_B.roll(1), shares_B


def smoothed_cross_entropy(smoothing: float) -> Callable[[nn.Module, Batch], torch.Tensor]:
    """Make the loss: cross-entropy with label smoothing (Szegedy et al. 2016, arXiv:1512.00567, section 7).

    Of a mixed picture it is the mean of both classes' cross-entropies, weighted with their shares.
    """

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        scores_BK, labels_B, mixed = model(batch[0]), batch[1], batch[2:]
        loss_B = functional.cross_entropy(scores_BK, labels_B, reduction="none", label_smoothing=smoothing)
        if mixed:
            others_B, shares_B = mixed
            other_B = functional.cross_entropy(scores_BK, others_B, reduction="none", label_smoothing=smoothing)
            loss_B = torch.lerp(other_B, loss_B, shares_B)
        return loss_B.mean()

    return loss


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Compute every picture's cross-entropy (without smoothing), and whether it is in the top 1 and 5, each (B,)."""
    scores_BK, labels_B = model(batch[0]), batch[1]
    hits_B5 = (scores_BK.topk(min(5, scores_BK.shape[1])).indices == labels_B[:, None]).float()
    loss_B = functional.cross_entropy(scores_BK, labels_B, reduction="none")
    return {"loss": loss_B, "top1": hits_B5[:, 0], "top5": hits_B5.sum(1)}
