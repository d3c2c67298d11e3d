"""Compares weights with the tensors of a model: which fit by name and shape, and which don't. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from trainer.checkpoints.weights import match_loosely

Weights = Mapping[str, torch.Tensor]
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The weights that fit, under the model's names, and the names of what doesn't fit."""

    fitting: dict[str, torch.Tensor]
    missing: tuple[str, ...]
    left_over: tuple[str, ...]
    misshapen: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all weights fit and none is missing."""
        return not (self.missing or self.left_over or self.misshapen)

    def describe(self) -> str:
        """List what doesn't fit: counts, and the first few names."""
        groups = (
            ("missing", self.missing),
            ("not in this model", self.left_over),
            ("of another shape", self.misshapen),
        )
        return "; ".join(_list(what, names) for what, names in groups if names)


def fit_weights(weights: Weights, wanted: Weights, *, needed: Iterable[str] | None = None) -> Fit:
    """Fit weights to a model's tensors, whatever wrappers they were saved under.

    Args:
        weights: from a file.
        wanted: the model's tensors.
        needed: the names of those that may not be missing; None: all.
    """
    required = set(wanted if needed is None else needed)
    match = match_loosely(weights, {name: tuple(tensor.shape) for name, tensor in wanted.items()})
    return Fit(
        fitting=match.weights,
        missing=tuple(name for name in match.missing if name in required),
        left_over=match.left_over,
        misshapen=tuple(
            f"{name} {_show(shape)} instead of {_show(wanted[name].shape)}" for name, shape in match.misshaped.items()
        ),
    )


def _show(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _list(what: str, names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{more}"
