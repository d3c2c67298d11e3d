"""What a recipe is: frozen settings, and a function from them to a workload.

# trainer/recipes/NAME.py
def recipe() -> Recipe[MySettings]:
    return Recipe(settings=MySettings(epochs=12), build=build_workload)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from torch import nn

from trainer.base.config import Settings
from trainer.base.data import Batch, SampleSource

# Shape legend: B batch.
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, its data, its loss and its metrics.

    `loss` returns the batch's mean, a scalar. `metrics` returns per-sample values by name, each (B,); one of them is
    "loss". `best` is the metric that selects the best weights, `best_is` its direction. `export_inputs` are example
    inputs for the ONNX export, batch first, at least two samples; None turns the export off. `flops_per_sample` is the
    number of operations in one sample's forward and backward pass, for MFU; None where unknown
    (`trainer.report.flops` counts them). `blocks` are the model's parts, in order: gradient checkpointing recomputes
    each of them in the backward pass, and FSDP shards each of them separately. `data` is a line for the model card:
    what the data are, and who made them.
    """

    model: nn.Module
    train_data: SampleSource
    validation_data: SampleSource
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    metrics: Callable[[nn.Module, Batch], Mapping[str, torch.Tensor]]
    best: str = "loss"
    best_is: Literal["min", "max"] = "min"
    export_inputs: Batch | None = None
    flops_per_sample: float | None = None
    blocks: Sequence[nn.Module] = ()
    data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Generic[S]):
    """The default settings of a training, and the function that builds its workload.

    `build` is called when the settings are final and the random generators are seeded.
    """

    settings: S
    build: Callable[[S], Workload]
