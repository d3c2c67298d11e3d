"""`--from` with another trainer's checkpoint: weights, epoch and optimizer state from the usual places in it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainer.base.errors import BadRequestError
from trainer.checkpoints.remap import find_weights
from trainer.start.carried import (
    Carried,
    Target,
    check_epochs_left,
    choose_average,
    describe_position,
    make_progress,
)
from trainer.start.fit import Weights, fit_weights
from trainer.start.position import Position

_EPOCHS = ("epoch", "current_epoch", "last_epoch")
_STEPS = ("global_step", "step", "iteration", "iter")
_OPTIMIZERS = ("optimizer_state", "optimizer_state_dict", "optimizer", "optim", "optimizer_states", "optim_state_dict")
_AVERAGES = ("ema_state", "ema_state_dict", "ema", "model_ema", "state_dict_ema")
_NUMBER = re.compile(r"\d+")


def adopt(content: Any, path: Path, target: Target, *, key: str | None, epochs_done: int | None) -> Carried:
    """Turn another trainer's checkpoint into the state from which a new run goes on.

    The optimizer's state is passed on as it is: whether it fits is seen when there is an optimizer.

    Raises:
        BadRequestError: the weights don't fit, or no epoch and no step is known.
    """
    weights = find_weights(content, key).weights
    fit = fit_weights(weights, target.model.state_dict(), needed=target.names)
    if not fit.is_whole:
        raise BadRequestError(
            f"{path} doesn't fit this model, so its training can't go on",
            why=fit.describe(),
            fix="start a new training with the weights that fit: --init FILE --loosely",
        )
    position, interpretation = _find_position(content, path, target, epochs_done)
    check_epochs_left(position, target.plan)
    average = _find_average(content, target)
    state = {
        "model": {name: fit.fitting[name] for name in target.names},
        "order": _order(weights, fit.fitting),
        "optimizer": _find_first(content, _OPTIMIZERS),
        "scaler": {},
        "progress": make_progress(position, target.plan),
        "rng": [],
        "started_from": path.name,
    }
    state["average"] = choose_average({**state, "average": average}, target)
    kept = ["weights", *(["the moving average"] if average and target.has_average else [])]
    unused = len(fit.fitting) - len(target.names)
    kept += [f"but not {unused} weights that aren't trained, which are the recipe's own"] if unused else []
    report = (
        f"goes on from {path.name}, another trainer's: {describe_position(position, target.plan)}",
        interpretation,
        f"kept: {', '.join(kept)}; new: the random states, the loss scale, the best result so far",
    )
    return Carried(state=state, origin=path.name, report=report)


def _find_position(content: Any, path: Path, target: Target, epochs_done: int | None) -> tuple[Position, str]:
    if epochs_done is not None:
        return Position(epoch=epochs_done, step_in_epoch=0), f"{epochs_done:,} epochs are done, as --epochs-done says"
    found = _find_number(content, _EPOCHS)
    if found is not None:
        return _read_epoch(*found, path)
    found = _find_number(content, _STEPS)
    if found is None:
        raise BadRequestError(
            f"{path} doesn't say how far its training was",
            why=f"it has none of {', '.join((*_EPOCHS, *_STEPS))}",
            fix="say after how many epochs it was saved: --epochs-done N",
        )
    name, step = found
    epoch, step_in_epoch = divmod(step, target.plan.steps_per_epoch)
    line = (
        f"'{name}': {step} is read as steps done, in batches of {target.plan.batch_size}: {epoch:,} epochs and "
        f"{step_in_epoch} steps; --epochs-done N says otherwise"
    )
    return Position(epoch=epoch, step_in_epoch=step_in_epoch), line


def _read_epoch(name: str, epoch: int, path: Path) -> tuple[Position, str]:
    """Read an epoch's number as the index of the last one that is done, unless the file's name has that index.

    Training scripts save at the end of epoch N, counted from 0, and go on at N + 1. Some save N + 1 instead, which
    can't be told from the number alone: so it is said.
    """
    numbers = {int(number) for number in _NUMBER.findall(path.stem)}
    is_count = epoch - 1 in numbers and epoch not in numbers
    done = epoch if is_count else epoch + 1
    what = "the number of epochs done" if is_count else "the index of the last epoch done"
    line = f"'{name}': {epoch} is read as {what}: {done:,} epochs are done; --epochs-done N says otherwise"
    return Position(epoch=done, step_in_epoch=0), line


def _find_number(content: Any, names: tuple[str, ...]) -> tuple[str, int] | None:
    if not isinstance(content, Mapping):
        return None
    for name in names:
        value = content.get(name)
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and value == int(value):
            return name, int(value)
    return None


def _find_first(content: Any, names: tuple[str, ...]) -> Any:
    """Return the optimizer's state; of several optimizers (Lightning's list) the only one."""
    values = [content[name] for name in names if isinstance(content, Mapping) and content.get(name)]
    value = values[0] if values else None
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _find_average(content: Any, target: Target) -> Weights | None:
    """Return the moving average of the weights, if the file has one that fits."""
    if not isinstance(content, Mapping):
        return None
    for name in _AVERAGES:
        value = content.get(name)
        items = value.items() if isinstance(value, Mapping) else ()
        tensors = {str(key): item for key, item in items if isinstance(item, torch.Tensor)}
        fit = fit_weights(tensors, target.model.state_dict(), needed=target.names)
        if fit.is_whole:
            return {name: fit.fitting[name] for name in target.names}
    return None


def _order(weights: Weights, fitting: Weights) -> list[str]:
    """List the model's names in the order in which the file has their tensors, which is that of its parameters."""
    names = {id(tensor): name for name, tensor in reversed(list(fitting.items()))}
    return list(dict.fromkeys(names[id(tensor)] for tensor in weights.values()))
