"""Splits a training state into plain JSON and tensors, and joins them again. Pure.

JSON has no tuples, no tensors and only strings as keys; these become objects with a reserved key:

    {"$tuple": [...]}   {"$dict": [[key, value], ...]}   {"$tensor": "name", "layout": "channels_last"}

This process's rows of a sharded tensor are a `Slice` in the state, and look like any other tensor in the JSON.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

State = dict[str, Any]
WEIGHTS = "model"
"""The part of a state whose tensors keep their own names, because other readers of safetensors expect those."""
_LAYOUTS = {"channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d}
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """This process's rows of a sharded tensor: from row `begin` on, out of `total` rows."""

    tensor: torch.Tensor
    begin: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """A state in two parts: `plain` can be written as JSON and refers to `tensors` by name.

    `rows` has (begin, total) of each tensor that is a slice.
    """

    plain: Any
    tensors: dict[str, torch.Tensor]
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)


def flatten(state: State) -> Flat:
    """Split the tensors off a state; tensors that share memory are kept once.

    Raises:
        TypeError: a value is neither plain data nor a tensor; the message says where.
    """
    flattener = _Flattener()
    plain = flattener.encode(state, ())
    return Flat(plain=plain, tensors=flattener.tensors, rows=flattener.rows)


def storage_key(tensor: torch.Tensor) -> Hashable:
    """Return what two tensors have in common if they are the same memory seen the same way.

    Each call of a module's `state_dict` makes new tensor objects of the same memory. Valid while the tensor exists.
    """
    storage = tensor.untyped_storage().data_ptr()
    return tensor.device, storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def unflatten(plain: Any, tensors: Mapping[str, torch.Tensor | Slice]) -> Any:
    """Join what `flatten` split.

    Raises:
        KeyError: a tensor is missing.
    """
    if isinstance(plain, list):
        return [unflatten(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "$tuple" in plain:
        return tuple(unflatten(item, tensors) for item in plain["$tuple"])
    if "$dict" in plain:
        return {key: unflatten(value, tensors) for key, value in plain["$dict"]}
    if "$tensor" in plain:
        return _put_back(tensors[plain["$tensor"]], plain.get("layout"))
    return {key: unflatten(value, tensors) for key, value in plain.items()}


def _put_back(tensor: torch.Tensor | Slice, layout: str | None) -> torch.Tensor | Slice:
    if layout is None or isinstance(tensor, Slice):
        return tensor
    return tensor.contiguous(memory_format=_LAYOUTS[layout])


@dataclass(slots=True)
class _Flattener:
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    _names: dict[Hashable, str] = field(default_factory=dict)

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        """Turn a value into JSON, and collect the tensors in it."""
        if isinstance(value, torch.Tensor):
            return self._take(value, path)
        if isinstance(value, Slice):
            taken = self._take(value.tensor, path)
            self.rows[taken["$tensor"]] = (value.begin, value.total)
            return taken
        if isinstance(value, dict):
            return self._encode_dict(value, path)
        if isinstance(value, (list, tuple)):
            items = [self.encode(item, (*path, str(number))) for number, item in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        if not isinstance(value, _PLAIN):
            raise TypeError(f"{'/'.join(path)} is a {type(value).__name__}, which a checkpoint cannot hold")
        return value

    def _encode_dict(self, value: dict[Any, Any], path: tuple[str, ...]) -> Any:
        items = {key: self.encode(item, (*path, str(key))) for key, item in value.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in items):
            return items
        return {"$dict": [[key, item] for key, item in items.items()]}

    def _take(self, tensor: torch.Tensor, path: tuple[str, ...]) -> dict[str, str]:
        key = storage_key(tensor)
        name = self._names.get(key) or self._new_name(path)
        self._names[key], self.tensors[name] = name, tensor
        layout = _layout(tensor)
        return {"$tensor": name, "layout": layout} if layout else {"$tensor": name}

    def _new_name(self, path: tuple[str, ...]) -> str:
        name = "/".join(path[1:] if path[0] == WEIGHTS else path)
        while name in self.tensors:
            name += "'"
        return name


def _layout(tensor: torch.Tensor) -> str | None:
    if tensor.is_contiguous():
        return None
    return next((name for name, layout in _LAYOUTS.items() if _has_layout(tensor, layout)), None)


def _has_layout(tensor: torch.Tensor, layout: torch.memory_format) -> bool:
    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}[layout]
    return tensor.dim() == dimensions and tensor.is_contiguous(memory_format=layout)
