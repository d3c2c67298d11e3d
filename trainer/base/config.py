"""The settings that every recipe has. They are frozen: a run has one complete configuration, made once.

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
        default: the value when the user sets none.
        minimum: the smallest value allowed.
        above: values must be greater than this.
        below: values must be less than this.
        may_change: a resumed run may use another value, because the setting doesn't affect what a step learns.
    """
    bounds = {"minimum": minimum, "above": above, "below": below}
    return field(default=default, metadata={**bounds, "may_change": may_change})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """How weights are updated. `clip_norm` 0 turns gradient clipping off.

    `learning_rate` is for a global batch of `base_batch`; `scaling` says how it scales to another batch size. A step
    with a non-finite gradient is skipped; `most_skips` skipped steps in a row end the run.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = setting(1e-3, above=0)
    scaling: Literal["none", "linear", "sqrt"] = "none"
    base_batch: int = setting(0, minimum=0)
    weight_decay: float = setting(0.01, minimum=0)
    momentum: float = setting(0.9, minimum=0)
    clip_norm: float = setting(1.0, minimum=0)
    most_skips: int = setting(20, minimum=1, may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """How the learning rate changes over the run. `final` is the last rate as a share of the peak.

    `start` and `rise` are for one_cycle: its first rate as a share of the peak, and its warm-up as a share of the run
    unless `warmup_steps` sets the length. `gamma` is the factor per epoch of exponential. warm_restarts restarts after
    `period_epochs`, and each period is `period_factor` times as long as the one before.
    """

    name: Literal["cosine", "constant", "one_cycle", "exponential", "warm_restarts"] = "cosine"
    warmup_steps: int = setting(0, minimum=0)
    final: float = setting(0.01, minimum=0)
    start: float = setting(0.04, above=0)
    rise: float = setting(0.3, above=0, below=1)
    gamma: float = setting(0.95, above=0)
    period_epochs: int = setting(10, minimum=1)
    period_factor: int = setting(2, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    """How a step is computed. A resumed run may change the settings that affect results only by rounding.

    `fully_shard` shards weights, gradients and optimizer state over the processes (FSDP), for models too large for
    one device.
    """

    amp: Literal["off", "bf16", "fp16"] = "off"
    tf32: bool = setting(default=False, may_change=True)
    channels_last: bool = setting(default=False, may_change=True)
    compile: bool = setting(default=False, may_change=True)
    gradient_checkpointing: bool = setting(default=False, may_change=True)
    sync_batchnorm: bool = False
    fully_shard: bool = setting(default=False, may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """When checkpoints are written: at whichever trigger fires first; 0 turns a trigger off. The last step is saved.

    `expected_life_hours` is the machine's mean time to failure: where it is set, checkpoints are also written at
    Daly's interval, computed from the measured time of a save. The best epoch so far is always saved, whatever
    `every_epochs` says. `replicas` is how many other nodes keep a copy of each shard of a sharded checkpoint; `none`
    means 1 on spot machines, else 0.
    """

    every_steps: int = setting(0, minimum=0, may_change=True)
    every_seconds: float = setting(600.0, minimum=0, may_change=True)
    every_epochs: int = setting(1, minimum=0, may_change=True)
    expected_life_hours: float = setting(0.0, minimum=0, may_change=True)
    keep: int = setting(3, minimum=1, may_change=True)
    keep_best: int = setting(1, minimum=1, may_change=True)
    replicas: int | None = setting(None, minimum=0, may_change=True)
    deadline_margin_seconds: float = setting(20.0, minimum=0, may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StallSettings:
    """When a step counts as stalled: after `factor` times the median step, at least `seconds`; `factor` 0 turns it off.

    During the first epoch, which compiles kernels and warms caches, only after `first_epoch_minutes`.
    """

    factor: float = setting(20.0, minimum=0, may_change=True)
    seconds: float = setting(60.0, above=0, may_change=True)
    first_epoch_minutes: float = setting(30.0, minimum=0, may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackSettings:
    """Where metrics go besides metrics.jsonl. `peak_tflops` is per device, for MFU; 0 looks it up by device name."""

    tensorboard: bool = setting(default=False, may_change=True)
    wandb: bool = setting(default=False, may_change=True)
    wandb_project: str = setting("kedge", may_change=True)
    peak_tflops: float = setting(0.0, minimum=0, may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Where the best weights are published. An empty setting turns its target off.

    `license` is the Hugging Face Hub's identifier (apache-2.0, mit, cc-by-4.0, ...), `hub_repo` is OWNER/NAME on the
    Hub, `kaggle_dataset` is OWNER/SLUG.
    """

    license: str = setting("", may_change=True)
    hub_repo: str = setting("", may_change=True)
    hub_private: bool = setting(default=True, may_change=True)
    kaggle_dataset: str = setting("", may_change=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of every recipe. `batch_size` is global: over all processes.

    `micro_batch` is how many samples a process computes at once, accumulating gradients until its share is done; 0
    means the whole share. `workers` is the number of loader processes per process. `ema_decay` above 0 keeps a moving
    average of the weights, which is then validated and exported instead of them.
    """

    epochs: int = setting(10, minimum=1, may_change=True)
    batch_size: int = setting(64, minimum=1)
    micro_batch: int = setting(0, minimum=0, may_change=True)
    workers: int = setting(0, minimum=0, may_change=True)
    ema_decay: float = setting(0.0, minimum=0, below=1)
    seed: int = setting(0, minimum=0)
    log_every_steps: int = setting(10, minimum=1, may_change=True)
    curves: bool = setting(default=True, may_change=True)
    onnx: bool = setting(default=True, may_change=True)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    stall: StallSettings = field(default_factory=StallSettings)
    track: TrackSettings = field(default_factory=TrackSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)


def flatten_settings(settings: Any, *, only_fixed: bool = False) -> dict[str, Any]:
    """List a settings object by dotted key, in order of declaration.

    Args:
        settings: a settings dataclass.
        only_fixed: leave out the settings that a resumed run may change.
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


def list_defaults(kind: type[Any]) -> dict[str, Any]:
    """List a settings class's defaults by dotted key; settings without a default are left out."""
    flat: dict[str, Any] = {}
    for item in dataclasses.fields(kind):
        if item.default is not dataclasses.MISSING:
            flat[item.name] = item.default
        elif item.default_factory is not dataclasses.MISSING:
            value = item.default_factory()
            inner = flatten_settings(value) if dataclasses.is_dataclass(value) else {"": value}
            flat.update({f"{item.name}.{key}".rstrip("."): part for key, part in inner.items()})
    return flat
