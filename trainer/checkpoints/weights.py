"""Matches a state dict to a model, ignoring what wrappers (DDP, torch.compile, FSDP) add to names. Pure.

With a model at hand, its own names decide which parts of a name are a wrapper's: a part of the model may really be
called `module` or `model`. Without one (`remap`), only `module.` in front of all names is taken for a wrapper's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import nn

from trainer.base.errors import CheckpointMismatchError

# Module names that only wrappers use: torch.compile, FSDP, activation checkpointing.
_HIDDEN_PARTS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# Prefixes of DDP and DataParallel, alone or within a module that calls its model `model`.
_WRAPPERS = ("module.", "model.module.")
# Names in front of all others that a wrapper may have added: DDP's, and those of modules that hold the model.
_OUTER_PARTS = ("module", "model", "net", "network")
_SHOWN = 5
Weights = Mapping[str, torch.Tensor]
Fit = Callable[[Any, torch.Tensor], Any]
Cores = dict[str, str]
"""Names without what wrappers added -> full names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Weights under a model's names, and what doesn't fit.

    `missing` has names of the model, `left_over` names of the weights. Of weights of another shape than the model's,
    `misshaped` has the shape, by the model's name; they aren't among the `weights`.
    """

    weights: dict[str, torch.Tensor]
    missing: tuple[str, ...]
    left_over: tuple[str, ...]
    misshaped: dict[str, tuple[int, ...]]


def unchanged(weight: Any, _own: torch.Tensor) -> Any:
    """Return a weight unchanged."""
    return weight


def strip_wrappers(weights: Weights) -> dict[str, torch.Tensor]:
    """Rename weights as in the model without its wrappers, in any nesting, without knowing the model.

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
    views = product(_list_views(weights), _list_views(wanted))
    found = next(((theirs, ours) for theirs, ours in views if theirs.keys() == ours.keys()), None)
    if found:
        theirs, ours = found
        return {name: weights[theirs[core]] for core, name in ours.items()}
    closest = match_loosely(weights, dict.fromkeys(wanted))
    both = (_list("missing", closest.missing), _list("not in this model", closest.left_over))
    raise CheckpointMismatchError(
        "the weights don't fit this model",
        why="; ".join(filter(None, both)),
        fix="use the settings that they were trained with, or another checkpoint",
    )


def match_loosely(weights: Weights, wanted: Mapping[str, tuple[int, ...] | None]) -> Match:
    """Rename those weights that a model has, whatever wrappers either side has; shapes help to tell them.

    Args:
        weights: named with or without wrappers.
        wanted: the model's names with their shapes; None: any shape.
    """

    def fits(their_name: str, our_name: str) -> bool:
        shape = wanted[our_name]
        return shape is None or tuple(weights[their_name].shape) == tuple(shape)

    def count_matches(views: tuple[Cores, Cores]) -> tuple[int, int]:
        theirs, ours = views
        shared = theirs.keys() & ours.keys()
        return sum(fits(theirs[core], ours[core]) for core in shared), len(shared)

    pairs = product(_list_views(weights, partly=True), _list_views(wanted, partly=True))
    theirs, ours = max(pairs, key=count_matches)  # of equally good ones, the first strips the least
    shared = {name: theirs[core] for core, name in ours.items() if core in theirs}
    used = set(shared.values())
    return Match(
        weights={name: weights[other] for name, other in shared.items() if fits(other, name)},
        missing=tuple(name for name in wanted if name not in shared),
        left_over=tuple(name for name in weights if name not in used),
        misshaped={name: tuple(weights[other].shape) for name, other in shared.items() if not fits(other, name)},
    )


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


def _list_views(names: Iterable[str], *, partly: bool = False) -> Iterator[Cores]:
    """Yield the names with less and less of what wrappers may have added; names that would clash aren't yielded.

    If the names of two sides agree in such views, they do so in one way only: stripping one more part from all names
    of one side makes them shorter. So it doesn't matter which pair of views is found first.

    Args:
        names: full names.
        partly: names without the part that is stripped are left out; otherwise it is stripped only from all names.
    """
    names = list(names)
    plain = dict(zip(names, names, strict=True))
    shown = {_show_hidden(name): name for name in names}
    # Where only some names have to agree, `module` within a name is taken for the model's own.
    inner = {} if partly else {_drop_inner_modules(core): name for core, name in shown.items()}
    starts = [view for view in (plain, shown, inner) if len(view) == len(names)]
    for start in starts:
        yield from _strip_outer(start, partly=partly)


def _strip_outer(cores: Cores, *, partly: bool) -> Iterator[Cores]:
    """Yield the names themselves, then without outer parts, for as long as there are any."""
    yield cores
    for part in _OUTER_PARTS:
        prefix = f"{part}."
        stripped = {core.removeprefix(prefix): name for core, name in cores.items() if core.startswith(prefix)}
        if stripped and (partly or len(stripped) == len(cores)):
            yield from _strip_outer(stripped, partly=partly)


def _show_hidden(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _HIDDEN_PARTS)


def _drop_inner_modules(name: str) -> str:
    """Remove DDP's `module` wherever it is; as the last part it is a weight's own name."""
    *parts, last = name.split(".")
    return ".".join([*(part for part in parts if part != "module"), last])


def _all_begin(names: Iterable[str], prefix: str) -> bool:
    names = list(names)
    return bool(names) and all(name.startswith(prefix) for name in names)


def _list(what: str, names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: {', '.join(names[:_SHOWN])}{more}" if names else ""
