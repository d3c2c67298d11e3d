"""ONNX export, verified by comparing onnxruntime's outputs with torch's."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.onnx.errors import OnnxExporterError

from trainer.base.errors import ExportError, first_line
from trainer.base.files import TEMPORARY_SUFFIX

# Since 1.31 onnxruntime sends telemetry to Microsoft as soon as it is imported (its Privacy.md, Disabling Telemetry).
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

# Shape legend: B batch; the rest of a tensor's shape belongs to the recipe.

# With float32 and a few dozen layers, rounding differs by about 1e-6 of the largest output; a wrong
# operator by much more than 1e-3 of it.
RELATIVE_TOLERANCE = 1e-3
Names = tuple[Sequence[str], Sequence[str]]


def export_onnx(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, *, names: Names | None = None) -> float:
    """Export a model in inference mode with a dynamic batch size, and check the file.

    Args:
        model: maps `inputs` to one tensor, batch first, or to a tuple of them.
        inputs: example inputs, batch first, at least two samples.
        path: the file to write; a model that fails its check never gets this name.
        names: of the inputs and of the outputs; None: `input` or `input_0`, ..., and the same for the outputs.

    Returns:
        The largest absolute difference between onnxruntime and torch, over two batch sizes.

    Raises:
        ExportError: the difference is larger than rounding explains.
    """
    was_training = model.training
    model = model.cpu().eval()
    temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
    try:
        _export(model, inputs, temporary, names or _number(model, inputs))
        differences = [_check(model, inputs, temporary), _check(model, _first(inputs), temporary)]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        model.train(was_training)
    return max(differences)


def _number(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Names:
    def number(name: str, count: int) -> list[str]:
        return [name] if count == 1 else [f"{name}_{place}" for place in range(count)]

    return number("input", len(inputs)), number("output", len(_compute(model, inputs)))


def _export(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, names: Names) -> None:
    batch = torch.export.Dim("batch", min=1)
    try:
        with _quiet_exporter():
            torch.onnx.export(
                model,
                inputs,
                str(path),
                dynamo=True,
                dynamic_shapes=tuple({0: batch} for _ in inputs),
                input_names=list(names[0]),
                output_names=list(names[1]),
                external_data=False,
                verbose=False,
            )
    except OnnxExporterError as err:
        raise ExportError(
            "the model could not be exported to ONNX",
            why=first_line(err.__cause__ or err),
            fix="use --set onnx=false: training is done, and the weights are safe in best-*.safetensors",
        ) from err


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter's own warnings: a missing torchvision, its own deprecations, a shared axis."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message="# The axis name: batch will not be used")
            yield
    finally:
        log.setLevel(level)


def _check(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> float:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {node.name: tensor.numpy() for node, tensor in zip(session.get_inputs(), inputs, strict=True)}
    outputs = zip(_compute(model, inputs), session.run(None, feeds), strict=True)
    return max(_compare(ours.numpy(), np.asarray(theirs), path.name) for ours, theirs in outputs)


def _compare(ours: NDArray[Any], theirs: NDArray[Any], name: str) -> float:
    difference = float(np.abs(theirs - ours).max())
    allowed = RELATIVE_TOLERANCE * max(1.0, float(np.abs(ours).max()))
    if not difference <= allowed:
        raise ExportError(
            f"{name} gives other outputs than the trained model",
            why=f"outputs differ by up to {difference:.2e}, and {allowed:.2e} is allowed",
            fix="use --set onnx=false, and report the recipe's model: its weights are safe in best-*.safetensors",
        )
    return difference


@torch.no_grad()
def _compute(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    outputs = model(*inputs)
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def _first(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor[:1] for tensor in inputs)
