"""Settings that every recipe has. Frozen: a run is one complete configuration, made once.

A recipe subclasses `Settings` and adds groups of its own (`model`, `data`, ...).
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

Scalar = bool | int | float | str | None


def setting(
    default: Any,
    *,
    minimum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    may_change: bool = False,
) -> Any:
    """Declare one setting with its default and its bounds.

    Args:
        default: the value when nothing is asked for.
        minimum: the smallest value allowed.
        above: values must be greater than this.
        below: values must be less than this.
        may_change: a run may be resumed with another value, because it doesn't decide what is learnt
            from each step.
    """
    bounds = {"minimum": minimum, "above": above, "below": below}
    return field(default=default, metadata={**bounds, "may_change": may_change})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """How weights are updated. `clip_norm` 0 leaves gradients as they are."""

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = setting(1e-3, above=0)
    weight_decay: float = setting(0.01, minimum=0)
    momentum: float = setting(0.9, minimum=0)
    clip_norm: float = setting(1.0, minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """How the learning rate moves. `final` is the last rate as a share of the peak."""

    name: Literal["cosine", "constant"] = "cosine"
    warmup_steps: int = setting(0, minimum=0)
    final: float = setting(0.01, minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """When checkpoints are written besides at each epoch's end; 0 turns a trigger off."""

    every_steps: int = setting(0, minimum=0, may_change=True)
    every_seconds: float = setting(600.0, minimum=0, may_change=True)
    keep: int = setting(3, minimum=1, may_change=True)
    deadline_margin_seconds: float = setting(20.0, minimum=0, may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every recipe can be told. `batch_size` is global: over all processes."""

    epochs: int = setting(10, minimum=1, may_change=True)
    batch_size: int = setting(64, minimum=1)
    seed: int = setting(0, minimum=0)
    log_every_steps: int = setting(10, minimum=1, may_change=True)
    curves: bool = setting(default=True, may_change=True)
    onnx: bool = setting(default=True, may_change=True)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)


def flatten_settings(settings: Any, *, only_fixed: bool = False) -> dict[str, Any]:
    """List a settings object by dotted key, in order of declaration.

    Args:
        settings: a settings dataclass.
        only_fixed: leave out what a resumed run may change.
    """
    flat: dict[str, Any] = {}
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            inner = flatten_settings(value, only_fixed=only_fixed)
            flat.update({f"{item.name}.{key}": part for key, part in inner.items()})
        elif not (only_fixed and item.metadata.get("may_change")):
            flat[item.name] = value
    return flat
