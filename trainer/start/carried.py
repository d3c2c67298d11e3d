"""`--from` with a checkpoint of ours: what a new run keeps of it, and what is new."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainer.base.errors import BadRequestError, CheckpointMismatchError
from trainer.checkpoints.tree import Slice
from trainer.checkpoints.weights import match_weights
from trainer.start.position import Position, convert_position
from trainer.step.batch import BatchPlan

State = dict[str, Any]
_PARTS = frozenset({"fingerprint", "progress", "model", "optimizer", "rng"})
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The new run: its settings as in a fingerprint, its model, batches, training samples and processes.

    `names` are those of the model's weights that a checkpoint has: all, or only those that are trained.
    """

    fingerprint: Mapping[str, Any]
    model: nn.Module
    names: tuple[str, ...]
    plan: BatchPlan
    samples: int
    processes: int

    @property
    def frozen_names(self) -> tuple[str, ...]:
        """Those that a checkpoint leaves out, sorted."""
        return tuple(sorted(self.model.state_dict().keys() - set(self.names)))

    @property
    def has_average(self) -> bool:
        """Whether the run has a moving average of its weights."""
        return bool(self.fingerprint.get("ema_decay"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A checkpoint's state as the new run loads it, and the lines that say what was kept."""

    state: State
    origin: str
    report: tuple[str, ...]


def is_ours(content: Any) -> bool:
    """Whether a file's content is a whole checkpoint of this trainer."""
    return isinstance(content, Mapping) and content.keys() >= _PARTS


def carry_over(state: State, path: Path, target: Target) -> Carried:
    """Turn a checkpoint of any of our runs into the state from which a new run goes on.

    Raises:
        CheckpointMismatchError: its model's tensors are others.
        BadRequestError: all epochs of the new run are done in it.
    """
    check_tensors(state["model"], target)
    old, progress = state["fingerprint"], state["progress"]
    batch_size = int(old.get("batch_size", target.plan.batch_size))
    position = convert_position(
        epoch=progress["epoch"],
        step_in_epoch=progress["step_in_epoch"],
        batch_size=batch_size,
        plan=target.plan,
        samples=target.samples,
    )
    check_epochs_left(position, target.plan)
    same_random = _has_same_random_states(state, target)
    is_same_optimizer = old.get("optimizer.name") == target.fingerprint.get("optimizer.name")
    report = [
        f"goes on from {path.name}: {describe_position(position, target.plan)}",
        f"kept: {', '.join(_list_kept(state, target, same_random=same_random))}",
        f"new: {', '.join(_list_new(state, target, same_random=same_random))}",
    ]
    report += _describe_batches(position, progress["step"], batch_size, target)
    report += _describe_order(old, position, target)
    return Carried(
        state={
            **state,
            "progress": make_progress(position, target.plan, means=progress if position.step_in_epoch else None),
            "average": choose_average(state, target),
            "optimizer": state["optimizer"] if is_same_optimizer else None,
            "rng": state["rng"] if same_random else [],
            "started_from": path.name,
        },
        origin=path.name,
        report=tuple(report),
    )


def check_tensors(weights: Mapping[str, Any], target: Target) -> None:
    """Check that weights are those of the run's model, by name and shape.

    Raises:
        CheckpointMismatchError: they aren't; the message names the first few.
    """
    state = target.model.state_dict()
    wanted = {name: state[name] for name in target.names}
    matched = match_weights(weights, wanted)
    wrong = [
        f"{name} is {_shape(matched[name])} and must be {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if _shape(matched[name]) != tuple(tensor.shape)
    ]
    if wrong:
        raise CheckpointMismatchError(
            "the weights don't fit this model",
            why=", ".join(wrong[:_SHOWN]),
            fix="use --init FILE --loosely to start with the weights that fit",
        )


def check_epochs_left(position: Position, plan: BatchPlan) -> None:
    """Check that something is left to train.

    Raises:
        BadRequestError: all epochs are done.
    """
    if position.epoch >= plan.epochs or position.step(plan) > plan.total_steps:
        raise BadRequestError(
            f"nothing is left to train: {position.epoch} epochs are done in this checkpoint",
            why=f"the new run has {plan.epochs} epochs in all, and {plan.total_steps} steps",
            fix=f"for example --set epochs={2 * position.epoch}, or --init to start at epoch 1 with these weights",
        )


def make_progress(position: Position, plan: BatchPlan, *, means: Mapping[str, Any] | None = None) -> State:
    """Make the progress of a run that starts at a position; its best result is still open."""
    empty = {"totals": [0.0, 0.0, 0.0], "steps": 0}
    return {
        "epoch": position.epoch,
        "step_in_epoch": position.step_in_epoch,
        "step": position.step(plan),
        "skipped_in_a_row": 0,
        "best": None,
        "best_epoch": 0,
        "metrics": {},
        "window": empty,
        "whole_epoch": means["whole_epoch"] if means else empty,
    }


def choose_average(state: Mapping[str, Any], target: Target) -> Any:
    """Return the weights that the moving average starts from: the old average, else the weights; None without one."""
    return (state.get("average") or state["model"]) if target.has_average else None


def describe_position(position: Position, plan: BatchPlan) -> str:
    """Say where the run goes on."""
    return f"epoch {position.epoch + 1} of {plan.epochs}, {position.step_in_epoch} of {plan.steps_per_epoch} steps in"


def _list_kept(state: State, target: Target, *, same_random: bool) -> list[str]:
    kept = ["weights", "the position"]
    kept += ["the moving average"] if target.has_average and state.get("average") else []
    return kept + (["the random states"] if same_random else [])


def _list_new(state: State, target: Target, *, same_random: bool) -> list[str]:
    old, ours = state["fingerprint"], target.fingerprint
    new = [f"{key} {old[key]} -> {ours[key]}" for key in ours if key in old and old[key] != ours[key]]
    if target.has_average and not state.get("average"):
        new.append("a moving average, from these weights on")
    if not same_random:
        new.append(f"the random states ({len(state['rng'])} processes before, now {target.processes})")
    return [*new, "the best result so far"]


def _has_same_random_states(state: State, target: Target) -> bool:
    is_same_seed = state["fingerprint"].get("seed") == target.fingerprint.get("seed")
    return is_same_seed and len(state["rng"]) == target.processes


def _describe_batches(position: Position, step: int, batch_size: int, target: Target) -> list[str]:
    if batch_size == target.plan.batch_size:
        return []
    line = (
        f"step {step:,} in batches of {batch_size} is step {position.step(target.plan):,} in batches of "
        f"{target.plan.batch_size}: the schedule goes on at the same share of the run"
    )
    return [f"{line}; {position.repeated} samples of this epoch are seen twice" if position.repeated else line]


def _describe_order(old: Mapping[str, Any], position: Position, target: Target) -> list[str]:
    if not position.step_in_epoch or old.get("seed") == target.fingerprint.get("seed"):
        return []
    seen = position.step_in_epoch * target.plan.batch_size
    return [f"another seed is another order: of this epoch up to {seen} samples are seen twice, and as many not at all"]


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, Slice):
        return (value.total, *value.tensor.shape[1:])
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()
