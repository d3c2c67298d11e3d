"""Says where the samples of a batch differ so that they can't be stacked; only called when stacking has failed."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

_MOST_SHAPES = 4


def find_misfit(samples: Sequence[Any], path: str = "sample") -> str | None:
    """Describe the first part that differs: its place, and the kinds, keys or shapes that occur; None if none does."""
    for describe in (_describe_kind, _describe_shape, _describe_keys):
        seen = list(dict.fromkeys(describe(sample) for sample in samples))
        if len(seen) > 1:
            shown = " and ".join(seen[:_MOST_SHAPES]) + (" ..." if len(seen) > _MOST_SHAPES else "")
            return f"{path} is {shown}"
    if isinstance(samples[0], torch.Tensor):
        return _find_difference(samples, path)
    parts = {place: [_take(sample, place) for sample in samples] for place in _places(samples[0])}
    found = (find_misfit(inner, f"{path}{place}") for place, inner in parts.items())
    return next((misfit for misfit in found if misfit), None)


def _find_difference(tensors: Sequence[torch.Tensor], path: str) -> str | None:
    devices = sorted({f"{tensor.dtype} on {tensor.device}" for tensor in tensors})
    return f"{path} is {' and '.join(devices)}" if len(devices) > 1 else None


def _describe_kind(value: Any) -> str:
    if isinstance(value, (bool, int, float)):
        return "a number"
    return "a dict" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _describe_shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, (torch.Tensor, np.ndarray)) else ""


def _describe_keys(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(str(key) for key in sorted(value, key=str))}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else ""


def _places(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"[{key!r}]" for key in value]
    if isinstance(value, tuple):
        return [f"[{number}]" for number in range(len(value))]
    if is_dataclass(value) and not isinstance(value, type):
        return [f".{item.name}" for item in fields(value) if item.init]
    return []


def _take(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return next(part for key, part in value.items() if f"[{key!r}]" == place)
    return value[int(place[1:-1])] if isinstance(value, tuple) else getattr(value, place[1:])
