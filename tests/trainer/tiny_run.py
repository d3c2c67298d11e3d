"""Trains a tiny network, which can wait for a signal at one of its steps; `make nightly` trains the recipe's own.

python -m tests.trainer.tiny_run FOLDER HOLD_AT [SETTING ...]

In its training pass HOLD_AT the last rank waits for SIGTERM or SIGKILL, and the others wait for it in the all-reduce: a
run can't be over before its test sends the signal. It waits once, not again after a restart; 0: never.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from tests.support.box_cache import ALL
from tests.trainer import harness
from trainer.base.hard_exit import hard_exit
from trainer.base.objectives import cross_entropy
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.recipes import digits

# Shape legend: B batch, C channels, H height, W width, K classes.
COMMAND = ("-m", "tests.trainer.tiny_run")
STEPS_PER_EPOCH = 22
"""With batch_size=64."""
PASSES_PER_STEP = 2
"""Of each of two ranks, with batch_size=64 and micro_batch=16."""


class TinyNet(nn.Module):
    """All kinds of state that a step has, in as few kernels as possible: each takes the compiler two seconds.

    A class of its own: of those that torch has, the compiler leaves the code alone below a DDP wrapper.
    """

    def __init__(self, *, dropout: float) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 10)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(images_BCHW.flatten(1)))
        return logits_BK


def start(folder: Path, *settings: str, hold_at: int = 0, processes: int = 1, **environ: str) -> subprocess.Popen[str]:
    """Start a run on processes of its own."""
    words = [*COMMAND[1:], str(folder), str(hold_at), *settings]
    if processes > 1:
        words = [*harness.TORCHRUN_OF, str(processes), "-m", *words]
    return harness.start_python(words, env=harness.plain_environ(**environ), cwd=folder.parent)


def run(folder: Path, *settings: str, processes: int = 1, **environ: str) -> harness.Result:
    return harness.finish(start(folder, *settings, hold_at=0, processes=processes, **environ))


def start_held(folder: Path, *settings: str, hold_at: int, processes: int = 1, **environ: str) -> subprocess.Popen[str]:
    """Start a run, and wait until it waits in a pass."""
    _marker(folder, hold_at).unlink(missing_ok=True)
    process = start(folder, *settings, hold_at=hold_at, processes=processes, **environ)
    wait_until_held(folder, hold_at, process)
    return process


def wait_until_held(folder: Path, hold_at: int, process: subprocess.Popen[str]) -> None:
    harness.wait_until(_marker(folder, hold_at).exists, f"pass {hold_at}", process)


def stop_kill_and_finish(folder: Path, *settings: str) -> None:
    """Train for two epochs on two ranks, with SIGTERM in the first, and SIGKILL to all ranks in the second.

    SIGTERM checkpoints the step that the run stopped at.
    """
    process = start_held(folder, *settings, hold_at=5 * PASSES_PER_STEP, processes=2)
    process.send_signal(signal.SIGTERM)
    stopped = harness.finish(process)
    assert "Traceback" not in stopped.out
    status = harness.read_status(folder)
    assert status["state"] == "stopped"
    assert 5 <= status["step"] < STEPS_PER_EPOCH
    assert Path(status["checkpoint"]).stem == f"step-{status['step']:08d}"
    steps_left = STEPS_PER_EPOCH + 3 - status["step"]
    process = start_held(folder, *settings, hold_at=steps_left * PASSES_PER_STEP, processes=2)
    harness.kill_tree(process)
    killed = harness.finish(process)
    assert f"resumed from step {status['step']} " in killed.out
    assert harness.read_status(folder)["state"] == "running"
    last = run(folder, *settings, processes=2)
    assert last.code == 0, last.err
    assert "resumed from step" in last.out


def main(folder: str, hold_at: str, *settings: str) -> int:
    if "compute.compile=on" in settings:
        _read_compiler()
    stop, passes = StopFlag(), itertools.count(1)

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        if next(passes) == int(hold_at) and _is_last_rank():
            _hold(_marker(Path(folder), int(hold_at)), stop)
        return cross_entropy(model, batch)

    def build(chosen: digits.DigitsSettings) -> Workload:
        workload = replace(digits.build_workload(chosen), loss=loss)
        if os.environ.get(ALL):
            return workload
        model = TinyNet(dropout=chosen.model.dropout)
        return replace(workload, model=model, blocks=[model.block])

    recipe = replace(digits.recipe(), settings=apply_overrides(digits.recipe().settings, settings), build=build)
    return harness.train_here(recipe, Path(folder), stop)


def _read_compiler() -> None:
    """Read the compiler's variables again: a forked run has imported the compiler with those of its parent."""
    from torch._inductor import config

    config.cpp.cxx = (None, os.environ.get("CXX", "g++"))
    config.cpp.vec_isa_ok = {"0": False, "1": True}.get(os.environ.get("TORCHINDUCTOR_VEC_ISA_OK", ""))


def _is_last_rank() -> bool:
    return int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1


def _hold(marker: Path, stop: StopFlag) -> None:
    if marker.exists():
        return
    marker.touch()
    while not stop.reason:
        time.sleep(0.01)


def _marker(folder: Path, hold_at: int) -> Path:
    return folder.with_name(f"{folder.name}-held-{hold_at}")


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
