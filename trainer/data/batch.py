"""Batches: stacking samples, moving them to a device, counting and splitting them. See `trainer.base.sources`."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch, Sample


def stack_samples(samples: Sequence[Sample]) -> Batch:
    """Make a batch: tensors and numbers are stacked, tuples and dicts kept, anything else becomes a list."""
    first = samples[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(list(samples))
    if isinstance(first, Mapping):
        return {key: stack_samples([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack_samples(parts) for parts in zip(*samples, strict=True))
    if isinstance(first, (bool, int, float)):
        return torch.tensor(samples)
    return list(samples)


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """Move a batch's tensors to a device, without waiting for pinned ones."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    return _map_parts(batch, lambda part: move_batch(part, device))


def pin_batch(batch: Batch) -> Batch:
    """Copy a batch's tensors to pinned memory; those on a device stay."""
    if isinstance(batch, torch.Tensor):
        return batch if batch.is_cuda else batch.pin_memory()
    return _map_parts(batch, pin_batch)


def count_samples(batch: Batch) -> int:
    """Count the samples of a batch: the length of its first tensor or list.

    Raises:
        BadRequestError: it has neither.
    """
    for part in _leaves(batch):
        return len(part)
    raise BadRequestError(
        "the recipe's batch has no samples",
        why="a batch holds tensors with the samples along their first dimension, or lists with an entry per sample",
        fix="let the recipe's collate return such a batch",
    )


def split_batch(batch: Batch, size: int) -> list[Batch]:
    """Split a batch into micro-batches of `size` samples."""
    return [slice_batch(batch, begin, begin + size) for begin in range(0, count_samples(batch), size)]


def slice_batch(batch: Batch, begin: int, end: int) -> Batch:
    """Return some of a batch's samples, without a copy."""
    if isinstance(batch, (torch.Tensor, list)):
        return batch[begin:end]
    return _map_parts(batch, lambda part: slice_batch(part, begin, end))


def _map_parts(batch: Batch, function: Any) -> Batch:
    """Apply a function to each part of a nested batch; strings, numbers and other objects stay."""
    if isinstance(batch, Mapping):
        return {key: function(part) for key, part in batch.items()}
    if isinstance(batch, tuple):
        parts = [function(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return [function(part) for part in batch] if isinstance(batch, list) else batch


def _leaves(batch: Batch) -> list[Any]:
    if isinstance(batch, (torch.Tensor, list)):
        return [batch] if not isinstance(batch, torch.Tensor) or batch.dim() else []
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    return [leaf for part in batch for leaf in _leaves(part)] if isinstance(batch, tuple) else []
