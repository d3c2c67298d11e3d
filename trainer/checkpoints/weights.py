"""A state dict under whatever wrappers it was saved: DDP's, torch.compile's and FSDP's names are seen through. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from trainer.errors import CheckpointMismatchError

# Names that no model has for a part of its own: torch.compile, FSDP, activation checkpointing.
_HIDDEN_PARTS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# DDP and DataParallel, alone or held by something that calls its model `model`.
_WRAPPERS = ("module.", "model.module.")
_SHOWN = 5
Weights = Mapping[str, torch.Tensor]
Fit = Callable[[Any, torch.Tensor], Any]


def as_it_is(weight: Any, _own: torch.Tensor) -> Any:
    """Put a weight into a model unchanged."""
    return weight


def strip_wrappers(weights: Weights) -> dict[str, torch.Tensor]:
    """Name weights as the bare model does, in any nesting of wrappers.

    `module.` goes where all names begin with it, so that a part of the model that is called so keeps its name.

    Raises:
        ValueError: two weights would get the same name.
    """
    names = {name: _show_hidden(name) for name in weights}
    while prefix := next((one for one in _WRAPPERS if _all_begin(names.values(), one)), None):
        names = {name: _show_hidden(bare.removeprefix(prefix)) for name, bare in names.items()}
    if len(set(names.values())) < len(names):
        raise ValueError("several weights differ by their wrappers only")
    return {bare: weights[name] for name, bare in names.items()}


def match_weights(weights: Weights, wanted: Iterable[str]) -> dict[str, torch.Tensor]:
    """Give weights the names that a model has for them, wrapped or not, on either side and in any nesting.

    Raises:
        CheckpointMismatchError: some are missing, or left over; the first few are named.
    """
    wanted = list(wanted)
    if set(wanted) == set(weights):
        return dict(weights)
    ours, theirs = _by_core(wanted), _by_core(weights)
    missing = [name for core, name in ours.items() if core not in theirs]
    left_over = [name for core, name in theirs.items() if core not in ours]
    if missing or left_over:
        raise CheckpointMismatchError(
            "the weights are not this model's",
            why="; ".join(filter(None, [_list("missing", missing), _list("not known here", left_over)])),
            fix="use the settings that they were trained with, or another checkpoint",
        )
    return {name: weights[theirs[core]] for core, name in ours.items()}


def load_weights(model: nn.Module, weights: Weights, *, fit: Fit = as_it_is) -> None:
    """Load weights into a model on whatever device it is.

    Args:
        model: gets the weights.
        weights: under any wrappers' names.
        fit: makes a weight into what goes in the place of the model's own, its second argument.

    Raises:
        CheckpointMismatchError: they are not this model's.
    """
    wanted = model.state_dict()
    matched = {name: fit(weight, wanted[name]) for name, weight in match_weights(weights, wanted).items()}
    try:
        model.load_state_dict(matched)
    except RuntimeError as err:
        raise CheckpointMismatchError(
            "the weights are not this model's",
            why=" ".join(str(err).split()),
            fix="use the settings that they were trained with, or another checkpoint",
        ) from err


def _show_hidden(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _HIDDEN_PARTS)


def _all_begin(names: Iterable[str], prefix: str) -> bool:
    names = list(names)
    return bool(names) and all(name.startswith(prefix) for name in names)


def _by_core(names: Iterable[str]) -> dict[str, str]:
    """Map names without any wrapper, inside or outside, to the names; as they are where that makes two equal."""
    names = list(names)
    bare = [_show_hidden(name) for name in names]
    while prefix := next((one for one in _WRAPPERS if _all_begin(bare, one)), None):
        bare = [name.removeprefix(prefix) for name in bare]
    cores = [".".join(part for part in name.split(".") if part != "module") for name in bare]
    return dict(zip(cores if len(set(cores)) == len(names) else bare, names, strict=True))


def _list(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: {', '.join(names[:_SHOWN])}{more}" if names else ""
