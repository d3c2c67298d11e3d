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
from trainer.base.objectives import CLASSIFICATION, accuracy, cross_entropy
from trainer.base.recipe import Hooks, Moment, Recipe, SetMetric, Workload
from trainer.base.setting import setting
from trainer.base.sources import Batch, Sample, SampleSource, StreamSource
from trainer.data.order import order_by_length, order_by_shard
from trainer.data.padding import pad_samples
from trainer.data.seeded import seeded
from trainer.data.sources import ArraySource, BucketedByLength, Subset, Transformed, split

__all__ = [
    "CLASSIFICATION",
    "ArraySource",
    "Batch",
    "BucketedByLength",
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
    "Subset",
    "Transformed",
    "ValidateSettings",
    "Workload",
    "accuracy",
    "cross_entropy",
    "order_by_length",
    "order_by_shard",
    "pad_samples",
    "seeded",
    "setting",
    "split",
]
