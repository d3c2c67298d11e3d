"""Fits a saved optimizer state to the optimizer of this run: by the parameters' names, every shape checked.

An optimizer's state numbers its parameters in the order of its groups. Settings, or another program, may have grouped
them otherwise; a moment that is given to another parameter would go unnoticed if the shapes are equal.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from trainer.checkpoints.tree import Slice

State = dict[str, Any]
# An option that only this kind of optimizer has in its groups.
_KINDS = {"betas": "adam", "ns_steps": "muon", "dampening": "sgd"}
_MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "muon": ("momentum_buffer",), "sgd": ("momentum_buffer",)}


class UnusableMomentsError(ValueError):
    """The saved state can't be used with this optimizer; the message says why."""


def arrange_moments(
    saved: Any, optimizer: torch.optim.Optimizer, model: nn.Module, *, order: Sequence[str], is_ours: bool
) -> State:
    """Number a saved optimizer state as this run's optimizer does.

    Args:
        saved: its `state_dict()`.
        optimizer: this run's.
        model: this run's, without wrappers.
        order: the saved model's tensors in their order, under this model's names.
        is_ours: groups of the same sizes have the same parameters in them.

    Raises:
        UnusableMomentsError: it belongs to another optimizer or to other parameters.
    """
    groups = _read_groups(saved)
    theirs, kinds = _find_kinds(groups), _find_kinds(optimizer.param_groups)
    if theirs != kinds:
        raise UnusableMomentsError(f"those of {_join(theirs)} are no use to {_join(kinds)}")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    our_names = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    their_names = _name_parameters(groups, model, our_names, optimizer, order=order, is_ours=is_ours)
    numbers = [number for group in groups for number in group["params"]]
    moments = {name: saved["state"][number] for number, name in zip(numbers, their_names, strict=True)
               if number in saved["state"]}  # fmt: skip
    if kinds:
        _check_names(moments, kinds, has_momentum=any(group.get("momentum", 1) for group in optimizer.param_groups))
        _check_shapes(moments, dict(model.named_parameters()))
    arranged = {number: moments[name] for number, name in enumerate(our_names) if name in moments}
    return {"state": arranged, "param_groups": optimizer.state_dict()["param_groups"]}


def _read_groups(saved: Any) -> list[Mapping[str, Any]]:
    if not isinstance(saved, Mapping) or not isinstance(saved.get("state"), Mapping):
        raise UnusableMomentsError("they are not those of a torch optimizer")
    groups = saved.get("param_groups")
    are_groups = isinstance(groups, (list, tuple)) and all(
        isinstance(group, Mapping) and isinstance(group.get("params"), (list, tuple)) for group in groups
    )
    if not are_groups or not all(isinstance(values, Mapping) for values in saved["state"].values()):
        raise UnusableMomentsError("they are not those of a torch optimizer")
    return list(groups)  # type: ignore[arg-type]  # seen above


def _find_kinds(groups: Sequence[Mapping[str, Any]]) -> set[str]:
    """Name an optimizer, or those in it, by the options of its groups; empty for one that we don't know."""
    return {kind for group in groups for option, kind in _KINDS.items() if option in group}


def _join(kinds: set[str]) -> str:
    return " and ".join(sorted(kinds)) or "an unknown optimizer"


def _name_parameters(
    groups: Sequence[Mapping[str, Any]],
    model: nn.Module,
    our_names: list[str],
    optimizer: torch.optim.Optimizer,
    *,
    order: Sequence[str],
    is_ours: bool,
) -> list[str]:
    """Name the saved parameters, in the order of their groups."""
    count = sum(len(group["params"]) for group in groups)
    sizes = [len(group["params"]) for group in groups]
    if all(len(group.get("param_names", ())) == len(group["params"]) for group in groups):
        return [str(name) for group in groups for name in group["param_names"]]
    if is_ours and sizes == [len(group["params"]) for group in optimizer.param_groups]:
        return our_names
    if len(groups) > 1:
        raise UnusableMomentsError(f"their parameters are in {len(groups)} groups, without names")
    parameters = dict(model.named_parameters())
    every = [name for name in order if name in parameters]
    trained = [name for name in every if parameters[name].requires_grad]
    found = next((names for names in (every, trained) if len(names) == count), None)
    if found is None:
        raise UnusableMomentsError(f"they are of {count} parameters, and the model has {len(every)}")
    return found


def _check_names(moments: Mapping[str, Mapping[str, Any]], kinds: set[str], *, has_momentum: bool) -> None:
    """Check that each parameter has the moments of its optimizer, which would else fail at its first step."""
    needed = [_MOMENTS[kind] for kind in kinds if has_momentum or kind != "sgd"]
    for name, values in moments.items():
        if needed and not any(all(values.get(what) is not None for what in names) for names in needed):
            raise UnusableMomentsError(f"{name} has none of {', '.join(needed[0])}")
    if needed and not moments:
        raise UnusableMomentsError("there are none")


def _check_shapes(moments: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, nn.Parameter]) -> None:
    for name, values in moments.items():
        if name not in parameters:
            raise UnusableMomentsError(f"the model has no {name}")
        for what, value in values.items():
            shape = _shape(value)
            if shape and what != "step" and shape != tuple(parameters[name].shape):
                raise UnusableMomentsError(
                    f"{what} of {name} is {_render(shape)} instead of {_render(tuple(parameters[name].shape))}"
                )


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, Slice):
        return (value.total, *value.tensor.shape[1:])
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _render(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)
