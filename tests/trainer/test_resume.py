"""Runs that end early, and resume."""

import random
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.box_cache import ALL
from tests.trainer import harness, tiny_run
from tests.trainer.harness import SMALL, STEPS_PER_EPOCH
from trainer.base.config import Settings
from trainer.base.setting import list_defaults
from trainer.base.signals import StopFlag
from trainer.checkpoints.document import write_document
from trainer.checkpoints.store import CheckpointStore, load_checkpoint
from trainer.checkpoints.tree import flatten


@pytest.mark.slow
def test_run_killed_at_random_steps_and_terminated_once_ends_with_the_same_bits(
    small_run: Path, tmp_path: Path
) -> None:
    """SIGKILL in each epoch and SIGTERM in between, each at a random step, where the run waits for it.

    Weights, optimizer, random states and metrics rows end as in the uninterrupted run.
    """
    folder = tmp_path / "output"
    chance = random.Random(20_261_121)
    plan = [
        (chance.randrange(10, 40), signal.SIGKILL),
        (chance.randrange(50, 80), signal.SIGTERM),
        (chance.randrange(100, 125), signal.SIGKILL),
        (chance.randrange(135, 165), signal.SIGKILL),
    ]
    done = 0
    for step, signum in plan:
        # With the recipe's own network.
        process = tiny_run.start_held(folder, *SMALL, hold_at=step - done, processes=1, **{ALL: "1"})
        process.send_signal(signum)
        ended = harness.finish(process)
        assert ended.code == (0 if signum == signal.SIGTERM else -signal.SIGKILL), ended.err
        assert harness.read_status(folder)["state"] == ("stopped" if signum == signal.SIGTERM else "running")
        done = int(harness.newest_checkpoint(folder).stem.removeprefix("step-"))
    last = harness.run(folder, *SMALL)
    assert last.code == 0, last.err
    assert "resumed from step" in last.out
    harness.assert_same_run(folder, small_run)


def test_stop_inside_validation_is_saved_and_the_validation_repeated(small_run: Path, tmp_path: Path) -> None:
    """Stopped at the tenth validation batch: the epoch's steps are kept, its validation isn't counted."""
    folder = tmp_path / "output"
    assert harness.call(folder, *SMALL, stop=harness.StopAtLook(STEPS_PER_EPOCH + 10)) == 0
    status = harness.read_status(folder)
    assert (status["state"], status["epoch"], status["step"]) == ("stopped", 1, STEPS_PER_EPOCH)
    assert not [row for row in harness.read_rows(folder) if "val_loss" in row]
    assert harness.call(folder, *SMALL) == 0
    harness.assert_same_run(folder, small_run)


def test_sigterm_several_times_checkpoints_the_step_it_stopped_at(tmp_path: Path) -> None:
    """Three SIGTERMs count as one: exit 0, state "stopped", the newest checkpoint is the last step's."""
    folder = tmp_path / "output"
    process = harness.start(folder, *SMALL, "epochs=1000", "checkpoint.every_steps=0")
    harness.wait_for_step(folder, 20, process)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
    ended = harness.finish(process)
    assert (ended.code, ended.err) == (0, "")
    status = harness.read_status(folder)
    assert status["state"] == "stopped"
    assert status["step"] >= 20
    assert status["step"] == harness.read_rows(folder)[-1]["step"]
    assert status["checkpoint"] == f"step-{status['step']:08d}.safetensors" == harness.newest_checkpoint(folder).name
    assert "stopped by SIGTERM" in ended.out


def test_sigterm_during_the_imports_stops_quietly(tmp_path: Path) -> None:
    """A SIGTERM while torch is still being imported: exit 0, state "stopped", nothing on stderr."""
    folder = tmp_path / "output"
    process = harness.start(folder, *SMALL, anew=True)
    harness.wait_until(lambda: harness.handles(process, signal.SIGTERM), "handlers", process)
    process.send_signal(signal.SIGTERM)
    ended = harness.finish(process)
    assert (ended.code, ended.err) == (0, "")
    status = harness.read_status(folder)
    assert (status["state"], status["step"], status["checkpoint"]) == ("stopped", 0, None)


def test_second_sigint_ends_the_process_at_once(tmp_path: Path) -> None:
    """The first Ctrl-C asks for a stop; at the second the kernel ends the process, even inside native code."""
    # Started anew: while it imports torch, the first one can't stop it before the second.
    process = harness.start(tmp_path / "output", *SMALL, anew=True)
    # Python has its own SIGINT handler before ours; the handler for SIGTERM is installed last.
    harness.wait_until(lambda: harness.handles(process, signal.SIGTERM), "handlers", process)
    process.send_signal(signal.SIGINT)
    harness.wait_until(lambda: not harness.handles(process, signal.SIGINT), "first SIGINT handled", process)
    process.send_signal(signal.SIGINT)
    ended = harness.finish(process)
    assert ended.code == -signal.SIGINT
    assert "Traceback" not in ended.err


def test_run_checkpoints_and_stops_before_its_deadline(tmp_path: Path) -> None:
    """With 60 s left and a margin of 55, a run that would take much longer is saved and stopped in time."""
    folder = tmp_path / "output"
    deadline = time.time() + 60.0
    settings = (*SMALL, "epochs=10000", "checkpoint.every_steps=0", "checkpoint.deadline_margin_seconds=55")
    assert harness.call(folder, *settings, environ={"KEDGE_DEADLINE": str(deadline)}) == 0
    assert time.time() < deadline
    status = harness.read_status(folder)
    assert status["state"] == "stopped"
    assert status["step"] > 0
    assert harness.newest_checkpoint(folder).name == f"step-{status['step']:08d}.safetensors" == status["checkpoint"]


def test_a_run_whose_deadline_was_moved_goes_on(tmp_path: Path) -> None:
    """The variable says that it is over; the file has the new one, and the run trains to its end."""
    moved = tmp_path / "deadline"
    moved.write_text(f"{time.time() + 3600:.3f}\n")
    environ = {"KEDGE_DEADLINE": str(time.time()), "KEDGE_DEADLINE_FILE": str(moved)}
    assert harness.call(tmp_path / "output", *SMALL, environ=environ) == 0
    assert harness.read_status(tmp_path / "output")["state"] == "succeeded"


class TouchAtLooks(StopFlag):
    """Touches a file at some polls: there is one poll for each step and validation batch."""

    def __init__(self, file: Path, looks: Sequence[int]) -> None:
        self._file = file
        self._looks = looks
        self._look = 0

    @property
    def reason(self) -> str | None:
        self._look += 1
        if self._look in self._looks:
            self._file.touch()
        return None

    @reason.setter
    def reason(self, _reason: str | None) -> None:
        raise AssertionError("no other code sets it")


def test_run_checkpoints_each_time_the_notice_file_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two notices during a run: two checkpoints inside epochs, and the run still completes."""
    folder, notice = tmp_path / "output", tmp_path / "notice"
    settings = [setting for setting in SMALL if "every_steps=7" not in setting]
    told = {"KEDGE_NOTICE_FILE": str(notice)}
    stop = TouchAtLooks(notice, looks=(20, 2 * STEPS_PER_EPOCH))
    assert harness.call(folder, *settings, "epochs=3", "checkpoint.keep=9", environ=told, stop=stop) == 0
    asked = [int(step) for step in re.findall(r"checkpoint at step (\d+); training continues", capsys.readouterr().out)]
    assert len(asked) == 2
    assert 0 < asked[0] < STEPS_PER_EPOCH
    assert STEPS_PER_EPOCH < asked[1] < 2 * STEPS_PER_EPOCH
    names = {path.name for path in (folder / "checkpoints").glob("step-*.safetensors")}
    epoch_ends = {STEPS_PER_EPOCH * epoch for epoch in (1, 2, 3)}
    assert names == {f"step-{step:08d}.safetensors" for step in {*asked, *epoch_ends}}
    assert harness.read_status(folder)["state"] == "succeeded"


def test_checkpoint_from_before_a_setting_existed_can_be_resumed(small_run: Path, tmp_path: Path) -> None:
    """Its missing setting counts as the default, for the best weights too; another value is refused."""
    folder = tmp_path / "output"
    # Stopped in the second epoch: the first one's weights are the best so far.
    assert harness.call(folder, *SMALL, stop=harness.StopAtLook(STEPS_PER_EPOCH + 40)) == 0
    assert harness.read_status(folder)["epoch"] == 2
    for path in (harness.newest_checkpoint(folder), harness.best_checkpoint(folder)):
        state = load_checkpoint(path)
        assert state["fingerprint"].pop("ema_decay") == 0.0
        state["fingerprint"]["a setting that is gone"] = 3
        with path.open("wb") as stream:
            write_document(stream, flatten(state))
    store = CheckpointStore(folder / "checkpoints", keep=1, fingerprint={"ema_decay": 0.0}, defaults={"ema_decay": 0.0})
    assert len(store.list_best()) == 1
    assert harness.call(folder, *SMALL, "ema_decay=0.9") == 2
    assert harness.call(folder, *SMALL) == 0
    harness.assert_same_run(folder, small_run)


def test_settings_without_defaults_are_allowed() -> None:
    """A recipe may have them; they are in every checkpoint's fingerprint."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Mine(Settings):
        data_folder: str
        size: int = 3

    defaults = list_defaults(Mine)
    assert "data_folder" not in defaults
    assert (defaults["size"], defaults["batch_size"], defaults["optimizer.name"]) == (3, 64, "adamw")


def test_damaged_checkpoints_are_set_aside_and_an_earlier_one_is_used(
    small_run: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest is truncated, the one before has a flipped bit inside its weights.

    The third is resumed, both damaged ones are named and set aside, and the run ends with the same bits.
    """
    newest, second, third = sorted((finished / "checkpoints").glob("step-*.safetensors"), reverse=True)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 1
    second.write_bytes(content)
    assert harness.call(finished, *SMALL) == 0
    out = capsys.readouterr().out
    assert f"{newest.name} does not load" in out
    assert f"{second.name} does not load" in out
    assert f"resumed from step {int(third.stem.removeprefix('step-'))} " in out
    assert len(list((finished / "checkpoints").glob("*.damaged"))) == 2
    harness.assert_same_run(finished, small_run)


def test_run_without_an_intact_checkpoint_starts_from_the_beginning(small_run: Path, finished: Path) -> None:
    """All step checkpoints unreadable: trained again to the same bits, without duplicate metrics rows."""
    for path in (finished / "checkpoints").glob("step-*.safetensors"):
        path.write_bytes(b"no checkpoint")
    assert harness.call(finished, *SMALL) == 0
    harness.assert_same_run(finished, small_run)


def test_finished_run_started_again_says_so_and_changes_nothing(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0, "complete", and every file is as it was."""
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert harness.call(finished, *SMALL) == 0
    assert "digits is complete" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_finished_run_may_be_extended_by_epochs(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With epochs=3 the two-epoch run continues: 89 more steps, every step's row once; their rates are others."""
    assert harness.call(finished, *SMALL, "epochs=3") == 0
    assert (
        f"changed since the checkpoint: epochs 2 -> 3 (from step {2 * STEPS_PER_EPOCH} on)" in capsys.readouterr().out
    )
    steps = [row["step"] for row in harness.read_rows(finished) if "val_loss" not in row]
    assert steps == list(range(1, 3 * STEPS_PER_EPOCH + 1))
    assert [row["epoch"] for row in harness.read_rows(finished) if "val_loss" in row] == [1, 2, 3]
    assert harness.read_status(finished)["step"] == 3 * STEPS_PER_EPOCH


def test_checkpoints_of_another_configuration_are_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another model: exit 2, the setting that differs is named with both values, nothing is changed."""
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert harness.call(finished, *SMALL, "model.width=8") == 2
    err = capsys.readouterr().err
    assert "model.width was 6 and is 8" in err
    assert "fix: " in err
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_temporary_files_of_a_killed_save_are_removed_at_the_next_start(finished: Path) -> None:
    """Our temporary files are removed; a user's own hidden file stays."""
    ours = [finished / "checkpoints" / ".step-00000999.safetensors.tmp", finished / ".status.json.tmp"]
    theirs = finished / "checkpoints" / ".notes.tmp"
    for path in (*ours, theirs):
        path.write_bytes(b"half")
    assert harness.call(finished, *SMALL) == 0
    assert not any(path.exists() for path in ours)
    assert theirs.exists()
