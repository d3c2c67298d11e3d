"""How a run ends: a full disk, and processes that wait for the main one's outputs."""

import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in its __all__

from tests.trainer import harness, line
from trainer.base.contract import read_contract
from trainer.base.errors import TrainerError
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.report.status import MetricsLog, Status, StatusFile
from trainer.run.ending import announce_outputs, wait_for_outputs
from trainer.run.engine import run_recipe

FULL = Path("/dev/full")


def test_full_disk_under_the_metrics_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to(FULL)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(TrainerError, match=r"metrics\.jsonl could not be written") as caught:
        log.append({"step": 1, "loss": 0.5})
    assert "No space left" in caught.value.why
    assert "--output-dir" in caught.value.fix
    log.close()


def test_status_that_cannot_be_written_is_an_error_with_a_fix(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "gone" / "status.json")
    status = Status(epoch=1, epochs=1, step=0, steps=1, metrics={}, checkpoint=None)
    with pytest.raises(TrainerError, match=r"status\.json could not be written"):
        file.write("running", status)


def test_run_that_loses_its_output_folder_ends_with_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback: what could not be written, and that the status could not say so."""
    calls: list[int] = []

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 6:
            shutil.rmtree(tmp_path / "o")
            (tmp_path / "o").touch()
        mean: torch.Tensor = (model(batch[0]) - batch[1]).square().mean()
        return mean

    contract = read_contract({}, output_dir=tmp_path / "o", checkpoint_dir=tmp_path / "checkpoints")
    with pytest.raises(TrainerError, match="could not be written"):
        run_recipe("digits", line.recipe(loss=loss), contract, StopFlag())
    assert "status.json could not be written" in capsys.readouterr().out
    (tmp_path / "o").unlink()
    run_recipe("digits", line.recipe(), contract, StopFlag())
    assert harness.read_status(tmp_path / "o")["state"] == "succeeded"


def test_other_processes_wait_until_the_main_one_has_written_the_outputs() -> None:
    """However long that takes: a store's timeout doesn't end the wait."""
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=1))
    waiting = threading.Thread(target=wait_for_outputs, args=(store, StopFlag()))
    waiting.start()
    waiting.join(timeout=0.5)
    assert waiting.is_alive()
    announce_outputs(store)
    waiting.join(timeout=harness.TIMEOUT_SECONDS)
    assert not waiting.is_alive()


def test_process_that_is_told_to_stop_does_not_wait_for_the_outputs() -> None:
    stop = StopFlag()
    stop.reason = "SIGTERM"
    wait_for_outputs(HashStore(), stop)


class LostStore(HashStore):
    def check(self, keys: list[str]) -> bool:
        raise RuntimeError(f"connection reset, looking for {keys}")


def test_process_does_not_wait_for_a_main_process_that_is_gone() -> None:
    began = time.monotonic()
    wait_for_outputs(LostStore(), StopFlag())
    assert time.monotonic() - began < harness.TIMEOUT_SECONDS
