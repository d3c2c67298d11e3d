"""Checkpoints during the training: what is copied when, what waits, and where errors are raised."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from tests.trainer import harness
from trainer.base.errors import CheckpointWriteError
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.staging import Staging
from trainer.checkpoints.store import CheckpointStore, Rating, load_checkpoint

TIMEOUT_SECONDS = 30.0
KILLS, SEED = 12, 20_261_121


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    made = CheckpointStore(tmp_path / "checkpoints", keep=3, fingerprint={})
    made.prepare()
    return made


@pytest.fixture
def staging() -> Staging:
    return Staging()


@pytest.fixture
def saver(store: CheckpointStore, staging: Staging) -> Iterator[Saver]:
    made = Saver(store, staging=staging)
    yield made
    made.close()


def snapshot(step: int, tensor: torch.Tensor, **more: object) -> TrainingSnapshot:
    return TrainingSnapshot(step=step, state={"model": {"weight": tensor}}, **more)  # type: ignore[arg-type]  # a shorthand


class Gate:
    """Blocks the writer's thread until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.opened.wait(TIMEOUT_SECONDS)


def test_training_continues_while_its_weights_are_written(store: CheckpointStore, saver: Saver) -> None:
    """`save` returns before anything is on disk; the file has the values from the time of the call."""
    weight, gate = torch.zeros(1000), Gate()
    saver.save(snapshot(1, weight, before_write=gate))
    assert gate.entered.wait(TIMEOUT_SECONDS)
    assert saver.is_busy
    assert store.newest_name() is None
    weight.fill_(1)
    gate.opened.set()
    saver.wait()
    assert not load_checkpoint(store.list_steps()[0])["model"]["weight"].any()


def test_second_save_waits_for_the_first(store: CheckpointStore, saver: Saver) -> None:
    """At most one is being written, none is left out, and its copy isn't overwritten."""
    weight, gate = torch.zeros(1000), Gate()
    saver.save(snapshot(1, weight, before_write=gate))
    assert gate.entered.wait(TIMEOUT_SECONDS)
    second = threading.Thread(target=lambda: saver.save(snapshot(2, weight + 2)))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    gate.opened.set()
    second.join(TIMEOUT_SECONDS)
    saver.wait()
    weights = [load_checkpoint(path)["model"]["weight"].unique().tolist() for path in store.list_steps()]
    assert weights == [[2.0], [0.0]]


def test_writers_error_is_raised_once_at_the_next_check(tmp_path: Path, store: CheckpointStore, saver: Saver) -> None:
    """A folder is in the file's place: the save returns, the next check raises, the one after doesn't."""
    blocker = tmp_path / "checkpoints" / "step-00000001.safetensors"
    blocker.mkdir()
    saver.save(snapshot(1, torch.zeros(3)))
    harness.wait_until(lambda: not saver.is_busy, "the writer is done")
    with pytest.raises(CheckpointWriteError, match=r"step-00000001\.safetensors could not be written"):
        saver.check()
    saver.check()
    assert [path.name for path in blocker.parent.iterdir()] == [blocker.name]
    saver.save(snapshot(2, torch.zeros(3)))
    saver.wait()
    assert store.newest_name() == "step-00000002.safetensors"


def test_nothing_is_written_before_the_files_it_relies_on(store: CheckpointStore, saver: Saver) -> None:
    """The metrics can't be synced: no checkpoint relies on them, and an error says why."""

    def fail() -> None:
        raise OSError(28, "No space left on device")

    saver.save(snapshot(1, torch.zeros(3), before_write=fail))
    with pytest.raises(CheckpointWriteError, match="step 1") as caught:
        saver.wait()
    assert "No space left" in caught.value.why
    assert store.newest_name() is None


def test_best_weights_are_written_with_the_state(store: CheckpointStore, saver: Saver) -> None:
    """One save, two files: the whole state, and the rated weights alone."""
    weight = torch.arange(100.0)
    rating = Rating(metric="val_loss", value=0.5, best_is="min")
    best = {"fingerprint": {}, "rating": rating.dump(), "model": {"weight": weight}}
    state = {"model": {"weight": weight}, "optimizer": {0: torch.ones(100)}}
    saver.save(TrainingSnapshot(step=3, state=state, best=best, rating=rating))
    saver.wait()
    assert torch.equal(load_checkpoint(store.list_best()[0])["model"]["weight"], weight)
    assert torch.equal(load_checkpoint(store.list_steps()[0])["optimizer"][0], torch.ones(100))


def test_state_that_grows_after_its_memory_was_reserved_is_kept_whole(store: CheckpointStore, saver: Saver) -> None:
    """Reserved for weights, saved with an optimizer's state of several dtypes and memory orders."""
    state = {"model": {"weight": torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last)}}
    assert not saver.is_reserved
    saver.reserve(state)
    assert saver.is_reserved is True
    grown = {**state, "optimizer": {"step": torch.tensor(3), "half": torch.ones(7).half(), "on": torch.tensor([True])}}
    saver.save(TrainingSnapshot(step=1, state=grown))
    saver.wait()
    read = load_checkpoint(store.list_steps()[0])
    assert torch.equal(read["model"]["weight"], state["model"]["weight"])
    assert {name: value.tolist() for name, value in read["optimizer"].items()} == {
        "step": 3,
        "half": [1.0] * 7,
        "on": [True],
    }


def test_best_weights_share_the_copy_of_the_state_whatever_objects_they_are(
    store: CheckpointStore, saver: Saver, staging: Staging
) -> None:
    """Each state_dict() makes new tensor objects: the same memory is copied once, so the first block is enough.

    The state alone has 16 tensors; with the best weights copied again they would be 20, and 1.3 MB too large.
    """
    model = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.Linear(400, 400))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 400)).sum().backward()
    optimizer.step()
    saver.reserve({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    saver.wait()
    reserved = staging.blocks
    rating = Rating(metric="val_loss", value=0.5, best_is="min")
    best = {"fingerprint": {}, "rating": rating.dump(), "model": model.state_dict()}
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    saver.save(TrainingSnapshot(step=3, state=state, best=best, rating=rating))
    saver.wait()
    assert staging.blocks == reserved
    for path in (*store.list_best(), *store.list_steps()):
        assert torch.equal(load_checkpoint(path)["model"]["1.weight"], model.state_dict()["1.weight"])


def test_slightly_larger_saves_use_the_memory_that_was_reserved(saver: Saver, staging: Staging) -> None:
    """Best weights that aren't in the state, reserved too, and a little state that appears later: one block, kept."""
    state = {"model": {"weight": torch.rand(300_000)}}
    best = {"rating": {}, "fingerprint": {}, "model": {"weight": torch.rand(300_000)}}
    saver.reserve(state, best=best)
    saver.wait()
    reserved = staging.blocks
    rating = Rating(metric="val_loss", value=0.5, best_is="min")
    saver.save(TrainingSnapshot(step=1, state={**state, "late": torch.rand(10_000)}, best=best, rating=rating))
    saver.save(TrainingSnapshot(step=2, state=state))
    saver.wait()
    assert staging.blocks == reserved
    assert len(reserved) == 1


def test_state_that_outgrows_its_memory_gets_a_second_block(
    store: CheckpointStore, saver: Saver, staging: Staging
) -> None:
    """The first block stays where it is; no tensor lies across both, and the file is whole."""
    state = {"model": {"weight": torch.rand(300_000)}}
    saver.save(TrainingSnapshot(step=1, state=state))
    first = staging.blocks
    grown = {**state, "moments": {name: torch.rand(400_001) for name in "ab"}, "flags": torch.ones(3) > 0}
    for step in (2, 3):
        saver.save(TrainingSnapshot(step=step, state=grown))
        assert staging.blocks[:1] == first
        assert len(staging.blocks) == 2
    saver.wait()
    harness.assert_equal(load_checkpoint(store.list_steps()[0]), grown, "grown")


def test_writer_thread_uses_the_runs_own_gpu(store: CheckpointStore) -> None:
    """A new thread starts on the first GPU: pinning and waiting there would make a context on a neighbour's device."""
    chosen: list[tuple[str, torch.device]] = []

    def use(device: torch.device) -> None:
        chosen.append((threading.current_thread().name, device))

    for device in (torch.device("cuda", 3), torch.device("cpu")):
        with closing(Saver(store, device=device, use_device=use)) as saver:
            saver.save(snapshot(1, torch.zeros(3)))
            saver.save(snapshot(2, torch.zeros(3)))
    assert chosen == [("checkpoint_0", torch.device("cuda", 3))]


def test_large_state_of_mixed_dtypes_is_written_from_its_staging_memory(store: CheckpointStore, saver: Saver) -> None:
    """Larger than one direct write, with sizes that aren't whole pages: every byte, in both files."""
    weights = {f"layer{number}": torch.rand(700_001 + number) for number in range(4)}
    counters = {"steps": torch.arange(1_000_003), "flags": torch.arange(5_001) % 3 == 0}
    rating = Rating(metric="val_loss", value=0.5, best_is="min")
    best = {"fingerprint": {}, "rating": rating.dump(), "model": weights}
    saver.save(TrainingSnapshot(step=1, state={"counters": counters, "model": weights}, best=best, rating=rating))
    saver.wait()
    state, kept = load_checkpoint(store.list_steps()[0]), load_checkpoint(store.list_best()[0])
    for name, tensor in weights.items():
        assert torch.equal(state["model"][name], tensor)
        assert torch.equal(kept["model"][name], tensor)
    for name, tensor in counters.items():
        assert torch.equal(state["counters"][name], tensor)


def test_closing_finishes_the_current_save(store: CheckpointStore) -> None:
    """A run that fails for another reason doesn't lose a checkpoint that is being written."""
    saver = Saver(store)
    saver.save(snapshot(5, torch.zeros(100_000)))
    saver.close()
    assert store.newest_name() == "step-00000005.safetensors"


def test_time_of_a_save_is_known_once_it_is_durable(saver: Saver) -> None:
    """0 before the first; then the time of the slowest recent save."""
    assert saver.seconds == 0
    saver.save(snapshot(1, torch.zeros(10)))
    saver.wait()
    assert saver.seconds > 0


def test_processes_killed_during_saves_leave_nothing_unreadable(tmp_path: Path) -> None:
    """SIGKILLs, and double Ctrl-C, at random moments of saves.

    Every file under a final name loads and is consistent, the newest step never decreases, and a start leaves no
    temporary file.
    """
    argv = [sys.executable, "-m", "tests.trainer.kill_saves", str(tmp_path), str(KILLS), str(SEED)]
    ended = subprocess.run(
        argv, env=harness.plain_environ(), cwd=harness.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert f"{KILLS} kills" in ended.stdout
