"""A resumed run goes on in the same tracked run, under the name and the tags of the settings."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from tests.trainer import harness
from trainer.report.trackers import TRACKER_FILE, read_tracker_id

ONE_EPOCH = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false")


def test_wandb_run_outside_of_kedge_keeps_its_id_over_a_restart(tmp_path: Path) -> None:
    """The first start lets W&B choose an id, the second uses it, even as a task; name and tags are the settings'."""
    pytest.importorskip("wandb")
    folder = tmp_path / "output"
    settings = (*ONE_EPOCH, "track.wandb=true", "track.name=first try", "track.tags=small,cpu")
    home = str(tmp_path)
    first = harness.run(folder, *settings, HOME=home, WANDB_MODE="offline")
    assert first.code == 0, first.err
    kept = read_tracker_id(folder / "checkpoints" / TRACKER_FILE)
    assert kept
    second = harness.run(folder, *settings, "epochs=2", HOME=home, WANDB_MODE="offline", KEDGE_TASK_ID="task-1")
    assert second.code == 0, second.err
    runs = sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))
    assert [path.name for path in runs] == [f"run-{kept}.wandb"] * 2
    for path in runs:
        content = path.read_bytes()
        assert b"first try" in content
        assert b"small" in content


def test_damaged_id_file_counts_as_none(tmp_path: Path) -> None:
    """The tracker then chooses a new id, and the run is not stopped by it."""
    path = tmp_path / TRACKER_FILE
    assert read_tracker_id(path) is None
    for content in ("{", "[]", "{}", '{"wandb": ""}'):
        path.write_text(content)
        assert read_tracker_id(path) is None
    path.write_text('{"wandb": "mine"}')
    assert read_tracker_id(path) == "mine"


def test_tensorboard_of_a_resumed_run_has_each_step_once(tmp_path: Path) -> None:
    """Steps that were logged but not saved are repeated after a restart, and shown once."""
    folder = tmp_path / "output"
    settings = (*ONE_EPOCH, "track.tensorboard=true", "log_every_steps=1", "checkpoint.every_steps=6")
    assert harness.call(folder, *settings, stop=harness.StopAtLook(10)) == 0
    harness.newest_checkpoint(folder).unlink()  # as if it had been killed: the checkpoint of step 6 is left
    assert harness.call(folder, *settings) == 0
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    steps = [event.step for event in events.Scalars("training/loss")]
    assert steps == list(range(1, 23))
