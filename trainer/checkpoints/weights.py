"""Matches a state dict to a model, ignoring name prefixes of wrappers (DDP, torch.compile, FSDP). Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from trainer.base.errors import CheckpointMismatchError

# Module names that only wrappers use: torch.compile, FSDP, activation checkpointing.
_HIDDEN_PARTS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# Prefixes of DDP and DataParallel, alone or within a module that calls its model `model`.
_WRAPPERS = ("module.", "model.module.")
_SHOWN = 5
Weights = Mapping[str, torch.Tensor]
Fit = Callable[[Any, torch.Tensor], Any]


def unchanged(weight: Any, _own: torch.Tensor) -> Any:
    """Return a weight unchanged."""
    return weight


def strip_wrappers(weights: Weights) -> dict[str, torch.Tensor]:
    """Rename weights as in the model without its wrappers, in any nesting.

    `module.` is removed only if all names begin with it, because a model may have a part named `module`.

    Raises:
        ValueError: two weights would get the same name.
    """
    names = {name: _show_hidden(name) for name in weights}
    while prefix := next((one for one in _WRAPPERS if _all_begin(names.values(), one)), None):
        names = {name: _show_hidden(bare.removeprefix(prefix)) for name, bare in names.items()}
    if len(set(names.values())) < len(names):
        raise ValueError("several weights differ only by their wrappers")
    return {bare: weights[name] for name, bare in names.items()}


def match_weights(weights: Weights, wanted: Iterable[str]) -> dict[str, torch.Tensor]:
    """Rename weights to a model's names, whatever wrappers either side has.

    Raises:
        CheckpointMismatchError: some are missing or left over; the message names the first few.
    """
    wanted = list(wanted)
    if set(wanted) == set(weights):
        return dict(weights)
    ours, theirs = _by_core(wanted), _by_core(weights)
    missing = [name for core, name in ours.items() if core not in theirs]
    left_over = [name for core, name in theirs.items() if core not in ours]
    if missing or left_over:
        raise CheckpointMismatchError(
            "the weights don't fit this model",
            why="; ".join(filter(None, [_list("missing", missing), _list("not in this model", left_over)])),
            fix="use the settings that they were trained with, or another checkpoint",
        )
    return {name: weights[theirs[core]] for core, name in ours.items()}


def list_saved_names(model: nn.Module, *, trainable_only: bool) -> list[str]:
    """List the names of a model's weights that a checkpoint has: all, or those that training may change."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return [name for name in model.state_dict() if not (trainable_only and name in frozen)]


def load_weights(
    model: nn.Module, weights: Weights, *, fit: Fit = unchanged, names: Iterable[str] | None = None
) -> None:
    """Load weights into a model on any device.

    Args:
        model: the model to load into.
        weights: named with or without wrappers.
        fit: converts a weight to the form of the model's own, its second argument (sharded, for example).
        names: the model's weights to load, and no others; None: all.

    Raises:
        CheckpointMismatchError: they don't fit this model.
    """
    state = model.state_dict()
    wanted = state if names is None else {name: state[name] for name in names}
    matched = {name: fit(weight, wanted[name]) for name, weight in match_weights(weights, wanted).items()}
    try:
        model.load_state_dict(matched, strict=names is None)
    except RuntimeError as err:
        raise CheckpointMismatchError(
            "the weights don't fit this model",
            why=" ".join(str(err).split()),
            fix="use the settings that they were trained with, or another checkpoint",
        ) from err


def _show_hidden(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _HIDDEN_PARTS)


def _all_begin(names: Iterable[str], prefix: str) -> bool:
    names = list(names)
    return bool(names) and all(name.startswith(prefix) for name in names)


def _by_core(names: Iterable[str]) -> dict[str, str]:
    """Map names without any wrapper, inner or outer, to the full names; inner wrappers stay where names would clash."""
    names = list(names)
    bare = [_show_hidden(name) for name in names]
    while prefix := next((one for one in _WRAPPERS if _all_begin(bare, one)), None):
        bare = [name.removeprefix(prefix) for name in bare]
    cores = [".".join(part for part in name.split(".") if part != "module") for name in bare]
    return dict(zip(cores if len(set(cores)) == len(names) else bare, names, strict=True))


def _list(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: {', '.join(names[:_SHOWN])}{more}" if names else ""
