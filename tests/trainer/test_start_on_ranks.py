"""Weights and checkpoints that a run starts from reach every process, sharded or not."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.trainer import harness
from tests.trainer.divided_run import build
from trainer.checkpoints.loading import load
from trainer.group.distributed import ALONE

SCRIPT = str(Path(__file__).with_name("started_run.py"))


def test_two_processes_start_from_the_main_ones_weights_and_from_checkpoints_of_each_other(tmp_path: Path) -> None:
    """FSDP and DDP with --init, then each goes on from the other's checkpoint, the first with another batch.

    A foreign file is read by the main process too.
    """
    torch.manual_seed(5)
    weights = {name: tensor + 1.0 for name, tensor in build(0).model.state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    ended = harness.run_script(SCRIPT, str(tmp_path), str(tmp_path / "weights.safetensors"), processes=2)
    assert ended.code == 0, ended.err
    for folder in ("sharded", "replicated", "again", "resharded", "foreign"):
        found = load_file(tmp_path / folder / "model.safetensors")  # the average's
        state = load(harness.newest_checkpoint(tmp_path / folder), ALONE)
        for name, expected in weights.items():
            assert torch.allclose(found[name], expected, atol=1e-5), (folder, name)
            assert torch.allclose(state["model"][name], expected, atol=1e-5), (folder, name)
    assert [row["step"] for row in harness.read_rows(tmp_path / "again") if "lr" in row] == [3, 4]
    assert [row["step"] for row in harness.read_rows(tmp_path / "resharded") if "lr" in row] == [2]
    assert ended.out.count("kept: the optimizer's moments of 10 parameters") == 3
    assert ended.out.count("started from weights.safetensors: 10 tensors loaded") == 2
