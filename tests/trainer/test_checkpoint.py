"""The checkpoint store by itself."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainer import harness
from trainer.checkpoint import CheckpointStore, load_checkpoint
from trainer.errors import CheckpointWriteError, DamagedCheckpointError

KILLS, SEED = 25, 20_261_121


def test_sigkill_at_random_moments_never_leaves_a_partial_checkpoint(tmp_path: Path) -> None:
    """Processes are killed while saving, several of them inside a write.

    Every file under a final name loads and is consistent, and a start leaves no litter.
    """
    script = Path(__file__).with_name("kill_saves.py")
    argv = [sys.executable, str(script), str(tmp_path), str(KILLS), str(SEED)]
    ended = subprocess.run(argv, env=harness.plain_environ(), capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"{KILLS} kills" in ended.stdout


def test_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    """A file with a pickled call inside is damaged to us, and the call isn't made."""

    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "owned",))

    path = tmp_path / "step-00000001.pt"
    torch.save({"format": 1, "payload": Payload()}, path)
    with pytest.raises(DamagedCheckpointError):
        load_checkpoint(path)
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(DamagedCheckpointError):
        load_checkpoint(path)
    assert not (tmp_path / "owned").exists()


def test_file_of_another_program_is_no_checkpoint(tmp_path: Path) -> None:
    """Something that torch can load but the trainer didn't write is refused by name."""
    path = tmp_path / "step-00000001.pt"
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(DamagedCheckpointError, match="step-00000001"):
        load_checkpoint(path)


def test_pruning_keeps_the_newest_by_step(tmp_path: Path) -> None:
    """Two are kept, by number and not by name or time; best.pt and others' files are left alone."""
    store = CheckpointStore(tmp_path, keep=2)
    store.prepare()
    (tmp_path / "notes.pt").write_text("mine")
    store.save_best({"step": 1})
    for step in (3, 100_000_000, 20):
        store.save({"step": step}, step=step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best.pt",
        "notes.pt",
        "step-00000020.pt",
        "step-100000000.pt",
    ]
    assert store.newest_name() == "step-100000000.pt"


def test_save_that_fails_leaves_the_earlier_ones_and_no_litter(tmp_path: Path) -> None:
    """The folder is gone: one clear error that says where to make room."""
    store = CheckpointStore(tmp_path / "gone", keep=2)
    with pytest.raises(CheckpointWriteError, match="could not be written") as caught:
        store.save({"step": 1}, step=1)
    assert "--checkpoint-dir" in caught.value.fix
