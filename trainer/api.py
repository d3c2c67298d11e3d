"""Everything that a recipe imports: `from trainer.api import Recipe, Settings, Workload, setting`."""

from trainer.base.config import (
    CheckpointSettings,
    ComputeSettings,
    OptimizerSettings,
    SampleSettings,
    ScheduleSettings,
    Settings,
    ValidateSettings,
)
from trainer.base.objectives import accuracy, cross_entropy
from trainer.base.recipe import Hooks, Moment, Recipe, SetMetric, Workload
from trainer.base.setting import setting
from trainer.base.sources import Batch, Sample, SampleSource, StreamSource

__all__ = [
    "Batch",
    "CheckpointSettings",
    "ComputeSettings",
    "Hooks",
    "Moment",
    "OptimizerSettings",
    "Recipe",
    "Sample",
    "SampleSettings",
    "SampleSource",
    "ScheduleSettings",
    "SetMetric",
    "Settings",
    "StreamSource",
    "ValidateSettings",
    "Workload",
    "accuracy",
    "cross_entropy",
    "setting",
]
