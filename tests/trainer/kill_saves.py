"""Kills a process that saves all the time, at random moments; exits 0 if no file was ever half there."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from trainer.checkpoint import CheckpointStore, load_checkpoint


def save_forever(folder: Path, first_step: int) -> None:
    store = CheckpointStore(folder, keep=3)
    for step in range(first_step, first_step + 10_000):
        state = {"model": {"weight": torch.full((200_000,), float(step))}, "step": step}
        store.save(state, step=step)
        store.save_best(state)


def main(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    leftovers = newest = 0
    for _ in range(kills):
        store = CheckpointStore(folder, keep=3)
        store.prepare()
        assert not list(folder.glob(".*")), "litter after a start"
        child = os.fork()
        if child == 0:
            save_forever(folder, newest + 1)
        time.sleep(0.02 + chance.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        leftovers += len(list(folder.glob(".*.tmp")))
        for path in (*store.list_steps(), *folder.glob("best.pt")):
            state = load_checkpoint(path)
            assert bool((state["model"]["weight"] == float(state["step"])).all()), path
        steps = [int(path.stem.removeprefix("step-")) for path in store.list_steps()]
        assert len(steps) <= 4, steps
        newest = max([newest, *steps])
    sys.stdout.write(f"{kills} kills, {leftovers} inside a save, {newest} saves\n")
    assert leftovers, "no kill hit a save: the test proves nothing"


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
