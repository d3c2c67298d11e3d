"""Kills processes that save all the time, at random moments; exits 0 if no file was ever incomplete.

python -m tests.trainer.kill_saves FOLDER KILLS SEED [MEGABYTES]
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from trainer.base.signals import StopFlag
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.store import CheckpointStore, Rating, load_checkpoint

KEEP = 3
FINGERPRINT = {"recipe": "kills"}
DEADLINE_SECONDS = 60.0


def open_store(folder: Path) -> CheckpointStore:
    return CheckpointStore(folder, keep=KEEP, keep_best=2, fingerprint=FINGERPRINT)


def save_forever(folder: Path, first_step: int, elements: int) -> None:
    stop = StopFlag()
    stop.install()
    saver = Saver(open_store(folder))
    parent = os.getppid()
    for step in range(first_step, first_step + 100_000):
        if os.getppid() != parent:  # no process is left to end this one
            os._exit(1)
        weight = torch.full((elements,), float(step))
        rating = Rating(metric="val_loss", value=1 / step, best_is="min")
        best = {"fingerprint": FINGERPRINT, "rating": rating.dump(), "step": step, "model": {"weight": weight}}
        state = {"step": step, "model": {"weight": weight}}
        saver.save(TrainingSnapshot(step=step, state=state, best=best, rating=rating))


def end_at_random(child: int, chance: random.Random) -> None:
    """Wait until the child saves, then SIGKILL it, or press Ctrl-C twice."""
    time.sleep(chance.random() * 0.15)
    if chance.random() < 0.8:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    else:
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            # Again and again: a signal that comes before the last one was delivered is lost.
            os.kill(child, signal.SIGINT)
            time.sleep(0.02)
        status = ended[1]
    assert os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, -signal.SIGINT, 128 + signal.SIGINT), status


def check(folder: Path) -> int:
    """Load every file under a final name; return the newest step."""
    store = open_store(folder)
    for path in (*store.list_steps(), *store.list_best()):
        state = load_checkpoint(path)
        assert bool((state["model"]["weight"] == float(state["step"])).all()), path
        assert int(path.stem.partition("-")[2]) == state["step"], path
    assert len(list(folder.glob("best-*"))) == len(store.list_best())
    return max((int(path.stem.removeprefix("step-")) for path in store.list_steps()), default=0)


def await_temporary_file(folder: Path) -> None:
    """Wait until a save has begun, so that short runs also hit some."""
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while not list(folder.glob(".*.tmp")):
        assert time.monotonic() < give_up_at, "the child saves nothing"
        time.sleep(0.0005)


def main(folder: Path, kills: int, seed: int, elements: int) -> None:
    chance = random.Random(seed)
    leftovers = newest = 0
    for _ in range(kills):
        store = open_store(folder)
        store.prepare()
        assert not list(folder.glob(".*")), "litter after a start"
        child = os.fork()
        if child == 0:
            save_forever(folder, newest + 1, elements)
        await_temporary_file(folder)
        end_at_random(child, chance)
        leftovers += bool(list(folder.glob(".*.tmp")))
        found = check(folder)
        assert found >= newest, f"step {newest} was there, and is {found}"
        newest = found
    sys.stdout.write(f"{kills} kills, {leftovers} inside a save, {newest} saves, no file unreadable\n")
    assert leftovers, "no kill hit a save: the test proves nothing"


if __name__ == "__main__":
    torch.set_num_threads(1)
    megabytes = float(sys.argv[4]) if len(sys.argv) > 4 else 0.8
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(megabytes * 250_000))
