"""Each process of a group loads its rows of sharded checkpoints and compares them; a test starts it with torchrun.

python join_shards.py FOLDER, with FOLDER/shared/SIZE, written by SIZE processes, FOLDER/disk RANK/step-4-shards, and
FOLDER/shared/step-00000008.safetensors and the damaged -09;
python join_shards.py FOLDER same SEED, with FOLDER/disk RANK/step-00000001.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.harness import assert_equal
from trainer.base.contract import read_contract
from trainer.base.errors import DamagedCheckpointError
from trainer.base.hard_exit import hard_exit
from trainer.checkpoints.loading import load
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.tree import Slice, State
from trainer.group.distributed import ProcessGroup, process_group


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


def compare_one(folder: Path, seed: int) -> None:
    with process_group(read_contract(os.environ, output_dir=folder)) as group:
        place = folder / f"disk {group.rank}" / "step-00000001"
        assert_equal(load(place, group), make_state(seed), str(place))


def main(folder: Path) -> None:
    with process_group(read_contract(os.environ, output_dir=folder)) as group:
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


if __name__ == "__main__":
    if sys.argv[2:3] == ["same"]:
        compare_one(Path(sys.argv[1]), int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]))
    hard_exit(0)
