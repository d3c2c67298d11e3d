"""The history of a run is whole and in one place, although torchrun has given rank 0 to another machine."""

from pathlib import Path

from tests.support.ports import free_port
from tests.trainer import harness, tiny_run
from tests.trainer.tiny_run import STEPS_PER_EPOCH

SETTINGS = ("batch_size=64", "log_every_steps=1", "curves=false", "onnx=false", "model.dropout=0")


def train(folders: list[Path], epochs: int) -> None:
    """Train on as many machines as there are folders, by rank: each has a folder and one process."""
    group = {"WORLD_SIZE": f"{len(folders)}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}"}
    processes = [
        tiny_run.start(
            folder, *SETTINGS, f"epochs={epochs}", hold_at=0, processes=1, RANK=f"{rank}", LOCAL_RANK="0", **group
        )
        for rank, folder in enumerate(folders)
    ]
    for process in processes:
        ended = harness.finish(process)
        assert ended.code == 0, ended.err


def test_metrics_and_status_follow_rank_0(tmp_path: Path) -> None:
    """The new machine of rank 0 has the rows from before, and the old one no half of them; a shared disk keeps all."""
    here, there = tmp_path / "here", tmp_path / "there"
    train([here, there], epochs=1)
    first = harness.read_rows(here)
    assert not (there / "metrics.jsonl").exists()
    train([there, here], epochs=2)
    assert harness.read_rows(there)[: len(first)] == first
    steps = [row["step"] for row in harness.read_rows(there) if "loss" in row]
    assert steps == list(range(1, 2 * STEPS_PER_EPOCH + 1))
    assert not (here / "metrics.jsonl").exists()
    assert not (here / "status.json").exists()
    assert harness.read_status(there)["state"] == "succeeded"
    train([there, there], epochs=3)
    steps = [row["step"] for row in harness.read_rows(there) if "loss" in row]
    assert steps == list(range(1, 3 * STEPS_PER_EPOCH + 1))
    assert harness.read_status(there)["state"] == "succeeded"
