"""Compares weights with the tensors of a model: which fit by name and shape, and which don't. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from trainer.checkpoints.weights import strip_wrappers

Weights = Mapping[str, torch.Tensor]
# Prefixes of a module that holds the model: those of Lightning and of common training scripts.
_HOLDERS = ("module.", "model.", "net.", "network.")
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


def fit_weights(weights: Weights, wanted: Weights) -> Fit:
    """Fit weights to a model's tensors, whatever wrappers they were saved under."""
    named = _rename(weights, wanted)
    both = [name for name in wanted if name in named]
    misshapen = [name for name in both if named[name].shape != wanted[name].shape]
    return Fit(
        fitting={name: named[name] for name in both if name not in misshapen},
        missing=tuple(name for name in wanted if name not in named),
        left_over=tuple(name for name in named if name not in wanted),
        misshapen=tuple(f"{name} {_shape(named[name])} instead of {_shape(wanted[name])}" for name in misshapen),
    )


def _rename(weights: Weights, wanted: Weights) -> Weights:
    """Rename weights so that as many as possible have a name of the model."""
    try:
        bare: Weights = strip_wrappers(weights)
    except ValueError:
        bare = weights
    candidates = [weights, bare]
    for holder in _HOLDERS:
        inner = {name.removeprefix(holder): tensor for name, tensor in bare.items()}
        candidates += [inner] if len(inner) == len(bare) else []
        candidates += [{f"{holder}{name}": tensor for name, tensor in bare.items()}]
    return max(candidates, key=lambda named: sum(name in wanted for name in named))


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "scalar"


def _list(what: str, names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{more}"
