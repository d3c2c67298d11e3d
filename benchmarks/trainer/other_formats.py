"""What the safetensors package and torch.distributed.checkpoint (DCP) do with the same weights, each at its best.

DCP writes safetensors files through its HuggingFaceStorageWriter: its other writer pickles. Neither has checksums.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import (  # type: ignore[attr-defined]  # public, but not in its __all__
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
    async_save,
    load,
    save,
)

from trainer.checkpoints.tree import State

SAFETENSORS, DCP = "weights.safetensors", "dcp"


def safetensors_durable(folder: Path, state: State) -> float:
    """Time `save_file` and an fsync."""
    begin = time.perf_counter()
    save_file(state["model"], folder / SAFETENSORS)
    descriptor = os.open(folder / SAFETENSORS, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - begin


def safetensors_load(path: Path) -> State:
    """Read all bytes: `load_file` alone only maps the file."""
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def dcp_durable(folder: Path, state: State) -> float:
    """Time a save, which syncs its files."""
    begin = time.perf_counter()
    save(state["model"], storage_writer=_writer(folder), no_dist=True)
    return time.perf_counter() - begin


def dcp_stall(folder: Path, state: State) -> float:
    """Time how long the loop waits for `async_save`."""
    begin = time.perf_counter()
    saving = async_save(state["model"], storage_writer=_writer(folder), no_dist=True)
    took = time.perf_counter() - begin
    assert isinstance(saving, Future)
    saving.result()
    return took


def dcp_load(path: Path) -> State:
    """Read into new tensors; they must be known before."""
    with torch.no_grad():
        into: dict[str, Any] = {name: torch.empty_like(tensor) for name, tensor in load_file(path).items()}
    load(into, storage_reader=HuggingFaceStorageReader(str(path.parent)), no_dist=True)
    return into


def _writer(folder: Path) -> HuggingFaceStorageWriter:
    return HuggingFaceStorageWriter(str(folder / DCP), save_distributed=True)
