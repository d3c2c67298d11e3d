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
from trainer.base.errors import BadRequestError
from trainer.base.objectives import CLASSIFICATION, accuracy, cross_entropy
from trainer.base.recipe import Hooks, Moment, Recipe, SetMetric, Workload
from trainer.base.setting import setting
from trainer.base.sources import Batch, Sample, SampleSource, StreamSource
from trainer.data.hub import HubDataset, HubStream
from trainer.data.packing import PackedText, mask_documents
from trainer.data.padding import pad_samples
from trainer.data.seeded import seeded
from trainer.data.sources import ArraySource, BucketedByLength, Subset, Transformed, split
from trainer.data.tar import TarSource

__all__ = [
    "CLASSIFICATION",
    "ArraySource",
    "BadRequestError",
    "Batch",
    "BucketedByLength",
    "CheckpointSettings",
    "ComputeSettings",
    "Hooks",
    "HubDataset",
    "HubStream",
    "Moment",
    "OptimizerSettings",
    "PackedText",
    "Recipe",
    "Sample",
    "SampleSettings",
    "SampleSource",
    "ScheduleSettings",
    "SetMetric",
    "Settings",
    "StreamSource",
    "Subset",
    "TarSource",
    "Transformed",
    "ValidateSettings",
    "Workload",
    "accuracy",
    "cross_entropy",
    "mask_documents",
    "pad_samples",
    "seeded",
    "setting",
    "split",
]
