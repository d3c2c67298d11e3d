"""Compares what each process of a group loads of sharded checkpoints with what was written.

FOLDER has shared/SIZE, written by SIZE processes, disk RANK/step-4-shards, and shared/step-00000008.safetensors and the
damaged -09.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.harness import assert_equal
from trainer.base.errors import DamagedCheckpointError
from trainer.checkpoints.loading import load
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.tree import Slice, State
from trainer.group.distributed import ProcessGroup


def make_state(seed: int) -> State:
    """A state with sharded tensors of all kinds, and with values that aren't sharded."""
    draw = torch.Generator().manual_seed(seed)
    model = {
        "weight": torch.randn(7, 3, generator=draw),
        "one": torch.randn(1, 2, generator=draw),
        "bias": torch.randn(4, generator=draw).bfloat16(),
        "scale": torch.tensor(1.5),
    }
    average = {"weight": model["weight"] + 1}
    state = {0: {"step": torch.tensor(3.0), "momentum": torch.randn(7, 3, generator=draw)}}
    return {"model": model, "average": average, "optimizer": {"state": state}, "python": (3, (1, 2)), "fingerprint": {}}


def own(whole: Any, rank: int, size: int) -> Any:
    """One process's part of a state, with slices as their tensors."""
    if isinstance(whole, torch.Tensor) and whole.dim():
        rows = chunk_rows(len(whole), rank, size)
        return whole[rows.start : rows.stop]
    if isinstance(whole, dict):
        return {key: own(value, rank, size) for key, value in whole.items()}
    return whole


def as_tensors(value: Any) -> Any:
    if isinstance(value, Slice):
        return value.tensor
    return {key: as_tensors(item) for key, item in value.items()} if isinstance(value, dict) else value


def compare_all(folder: Path, group: ProcessGroup) -> None:
    """Load all of them, this process's rows and all rows."""
    places = {size: folder / "shared" / str(size) / f"step-{size:08d}" for size in (2, 3, 4)}
    for place in (*places.values(), folder / f"disk {group.rank}" / "step-4-shards" / "step-00000004"):
        whole = make_state(int(place.name.removeprefix("step-")))
        mine = load(place, group, select=lambda total: chunk_rows(total, group.rank, group.size))
        assert_equal(as_tensors(mine), own(whole, group.rank, group.size), str(place))
        assert_equal(load(place, group), whole, str(place))
    _read_whole_files(folder, group)


def _read_whole_files(folder: Path, group: ProcessGroup) -> None:
    """Read files that all see on one disk: one verifies, the others share; as if on GPUs too, where they map the file.

    A damaged one fails on every process.
    """
    for device in (torch.device("cpu"), torch.device("cuda")):
        as_if = replace(group, device=device)
        assert_equal(load(folder / "shared" / "step-00000008.safetensors", as_if), make_state(8), str(device))
        with pytest.raises(DamagedCheckpointError) as refused:
            load(folder / "shared" / "step-00000009.safetensors", as_if)
        assert "fails its checksum" in refused.value.why
