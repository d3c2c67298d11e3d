"""The loss and the metrics of a classifier whose batches are (inputs, labels), for recipes that need no others."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainer.base.sources import Batch

# Shape legend: B batch, K classes.


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute the batch's mean cross-entropy, a scalar."""
    inputs, labels_B = batch
    return functional.cross_entropy(model(inputs), labels_B)


def accuracy(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Compute every sample's cross-entropy ("loss") and whether its class is right ("accuracy"), each (B,)."""
    inputs, labels_B = batch
    logits_BK = model(inputs)
    return {
        "loss": functional.cross_entropy(logits_BK, labels_B, reduction="none"),
        "accuracy": (logits_BK.argmax(dim=1) == labels_B).float(),
    }


CLASSIFICATION: Mapping[str, Any] = {"loss": cross_entropy, "metrics": accuracy, "best": "accuracy", "best_is": "max"}
"""What the workload of a classifier has in common with others': `Workload(..., **CLASSIFICATION)`."""
