"""Collate of samples of different lengths: padded to the longest, with a mask."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch, Sample
from trainer.data.batch import stack_samples

# Shape legend: B batch, L length of the longest sample.


def pad_samples(samples: Sequence[Sample], *, padding: float | Mapping[str, float] = 0, multiple_of: int = 1) -> Batch:
    """Make a batch of samples whose tensors differ in length, their first dimension.

    Args:
        samples: tensors, or dicts in which all the tensors to pad have the same length.
        padding: the value after a sample's end; for dicts by key: what has no value is stacked as it is.
        multiple_of: round the length up to a multiple of this.

    Returns:
        A dict: the padded tensors (B, L, ...), those of samples that aren't dicts as "values"; "mask" (B, L), true
        where a sample is, and "lengths" (B,).

    Raises:
        BadRequestError: the samples are neither, or tensors of one sample differ in length, or a key is missing.
    """
    if isinstance(samples[0], torch.Tensor):
        samples, padding = [{"values": sample} for sample in samples], {"values": _number(padding)}
    if not isinstance(padding, Mapping) or not all(isinstance(sample, Mapping) for sample in samples):
        raise _refuse("samples are tensors, or dicts with `padding` by key")
    lengths_B = torch.tensor([_length(sample, padding) for sample in samples])
    length = -(-int(lengths_B.max()) // multiple_of) * multiple_of
    padded = {key: _pad([sample[key] for sample in samples], length, value) for key, value in padding.items()}
    others = stack_samples([{key: part for key, part in sample.items() if key not in padding} for sample in samples])
    mask_BL = torch.arange(length) < lengths_B[:, None]
    return {**others, **padded, "mask": mask_BL, "lengths": lengths_B}


def _pad(tensors: list[torch.Tensor], length: int, value: float) -> torch.Tensor:
    try:
        padded = tensors[0].new_full((len(tensors), length, *tensors[0].shape[1:]), value)
        for row, tensor in zip(padded, tensors, strict=True):
            if tensor.shape[1:] != tensors[0].shape[1:]:
                raise _refuse("tensors differ in more than their first dimension")
            row[: len(tensor)] = tensor
    except RuntimeError as err:
        raise _refuse(f"padding with {value} failed: {err}") from err
    return padded


def _length(sample: Mapping[str, Any], padding: Mapping[str, float]) -> int:
    missing = [key for key in padding if not isinstance(sample.get(key), torch.Tensor) or not sample[key].dim()]
    if missing:
        raise _refuse(f"a sample's {missing[0]} is not a tensor with a length")
    lengths = {key: len(sample[key]) for key in padding}
    if len(set(lengths.values())) != 1:
        raise _refuse(f"a sample's tensors have different lengths: {lengths}")
    return next(iter(lengths.values()))


def _number(padding: float | Mapping[str, float]) -> float:
    if isinstance(padding, Mapping):
        raise _refuse("samples are tensors, which have no keys to pad by")
    return padding


def _refuse(why: str) -> BadRequestError:
    return BadRequestError(
        "the samples of a batch can't be padded", why=why, fix="correct the samples, or write a collate for them"
    )
