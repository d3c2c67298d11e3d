"""Batches: stacking samples, moving them to a device, counting and splitting them. See `trainer.base.sources`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch, Sample
from trainer.data.misfits import find_misfit

_NUMBERS = "biufc"  # NumPy's kinds of numbers: torch has tensors of them
_PLAIN = (True, True, False)


def stack_samples(samples: Sequence[Sample]) -> Batch:
    """Make a batch: tensors, arrays and numbers are stacked; tuples, dicts and dataclasses kept; the rest is listed.

    Raises:
        BadRequestError: the samples differ in structure, or their tensors in shape; the message says where.
    """
    try:
        return _stack(samples)
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as err:
        misfit = find_misfit(samples)
        if misfit is None:
            raise
        raise BadRequestError(
            f"the samples of a batch don't stack: {misfit}",
            why="the tensors of a batch's samples are stacked, so they need the same shape and place in each sample",
            fix="pad or crop them, or give the workload a collate (pad_samples in trainer.data.padding; or lists)",
        ) from err


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """Move a batch's tensors to a device, without waiting for pinned ones, and other objects by their own `to`."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if moves_itself(batch):
        return batch.to(device)
    return map_parts(batch, lambda part: move_batch(part, device))


def moves_itself(part: Any) -> bool:
    """Whether a part of a batch is no tensor, but has a `to`: packed sequences, graphs, tensor dicts."""
    return not isinstance(part, torch.Tensor) and callable(getattr(part, "to", None))


def count_samples(batch: Batch) -> int:
    """Count the samples of a batch: the length of its first tensor or list.

    Raises:
        BadRequestError: it has neither.
    """
    count = _length(batch)
    if count is not None:
        return count
    raise BadRequestError(
        "the recipe's batch has no samples",
        why="a batch holds tensors with the samples along their first dimension, or lists with an entry per sample",
        fix="let the recipe's collate return such a batch",
    )


def split_batch(batch: Batch, size: int, *, samples: int) -> list[Batch]:
    """Split a batch of so many samples into micro-batches of `size` samples.

    Raises:
        BadRequestError: a part of the batch hasn't one row or entry per sample; the message names it.
    """
    misfit = "it has no samples" if _length(batch) is None else _find_uneven(batch, samples, "batch")
    if misfit:
        raise BadRequestError(
            f"the batch of {samples} samples can't be split into micro-batches of {size}: {misfit}",
            why="micro_batch needs a batch whose tensors have the samples along their first dimension, and whose lists "
            "have an entry per sample",
            fix="let the collate return such a batch (a tuple or dict of its tensors, not a list), or leave "
            "micro_batch at 0 with a batch_size that fits",
        )
    return [slice_batch(batch, begin, begin + size) for begin in range(0, samples, size)]


def can_split(batch: Batch, samples: int) -> bool:
    """Whether each part of a batch of so many samples has a row or an entry per sample, or is for the whole batch."""
    return _length(batch) is not None and _find_uneven(batch, samples, "batch") is None


def slice_batch(batch: Batch, begin: int, end: int) -> Batch:
    """Return some of a batch's samples, without a copy; what isn't per sample stays whole."""
    if isinstance(batch, torch.Tensor):
        return batch[begin:end] if batch.dim() else batch
    if isinstance(batch, list):
        return batch[begin:end]
    return map_parts(batch, lambda part: slice_batch(part, begin, end))


def map_parts(batch: Batch, function: Callable[[Any], Any]) -> Batch:
    """Apply a function to each part of a nested batch; strings, numbers and other objects stay."""
    if isinstance(batch, tuple):  # first: to be a Mapping takes longer to tell
        return _as_tuple(type(batch), [function(part) for part in batch])
    if isinstance(batch, Mapping):
        return {key: function(part) for key, part in batch.items()}
    if isinstance(batch, list):
        return [function(part) for part in batch]
    if _is_record(batch):
        return type(batch)(**{name: function(getattr(batch, name)) for name in _names(batch)})
    return batch


def _stack(samples: Sequence[Sample]) -> Batch:
    first = samples[0]
    if isinstance(first, torch.Tensor):
        return _stack_tensors(samples)
    if isinstance(first, tuple):
        return _as_tuple(type(first), [_stack(parts) for parts in zip(*samples, strict=True)])
    if isinstance(first, Mapping):
        if any(len(sample) != len(first) for sample in samples):
            raise KeyError
        return {key: _stack([sample[key] for sample in samples]) for key in first}
    if _is_record(first):
        return type(first)(**{name: _stack([getattr(item, name) for item in samples]) for name in _names(first)})
    return _stack_leaves(samples)


def _stack_tensors(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    first = tensors[0]
    plain = (first.dtype, *_PLAIN)
    if get_worker_info() is None or not first.nbytes or any(_kind(tensor) != plain for tensor in tensors):
        return torch.stack(list(tensors))
    # In shared memory at once, as torch's own collate does: the worker's queue would copy it there.
    storage: Any = first.untyped_storage()
    shared = storage._new_shared(first.nbytes * len(tensors), device=first.device)
    out = torch.empty(0, dtype=first.dtype).set_(shared).resize_(len(tensors), *first.shape)
    return torch.stack(list(tensors), out=out)


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device.type == "cpu", tensor.layout == torch.strided, tensor.requires_grad


def _stack_leaves(leaves: Sequence[Any]) -> Batch:
    if isinstance(leaves[0], (bool, int, float)):
        return torch.tensor(leaves)
    if not isinstance(leaves[0], (np.ndarray, np.generic)) or leaves[0].dtype.kind not in _NUMBERS:
        return list(leaves)
    if any(np.shape(leaf) != np.shape(leaves[0]) for leaf in leaves):
        raise ValueError
    return torch.from_numpy(np.stack(leaves))


def _as_tuple(kind: type[Any], parts: list[Any]) -> Any:
    return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)


def _is_record(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _names(record: Any) -> list[str]:
    return [item.name for item in fields(record) if item.init]


def _find_uneven(part: Batch, samples: int, place: str) -> str | None:
    """Say which part of a batch can't be split by samples; None if all can, or are for the whole batch."""
    if isinstance(part, (torch.Tensor, list)):
        length = _length(part)
        return None if length in (None, samples) else f"{place} has {length} rows"
    if isinstance(part, Mapping):
        inner = [(value, f"{place}[{key!r}]") for key, value in part.items()]
    elif isinstance(part, tuple):
        inner = [(value, f"{place}[{number}]") for number, value in enumerate(part)]
    elif _is_record(part):
        inner = [(getattr(part, name), f"{place}.{name}") for name in _names(part)]
    else:
        return f"{place} is a {type(part).__name__}" if moves_itself(part) else None
    return next((found for found in (_find_uneven(value, samples, where) for value, where in inner) if found), None)


def _length(batch: Batch) -> int | None:
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else None
    if isinstance(batch, list):
        return len(batch)
    for part in _parts(batch):
        length = _length(part)
        if length is not None:
            return length
    return None


def _parts(batch: Batch) -> Any:
    if isinstance(batch, tuple):
        return batch
    if isinstance(batch, Mapping):
        return batch.values()
    return (getattr(batch, name) for name in _names(batch)) if _is_record(batch) else ()
