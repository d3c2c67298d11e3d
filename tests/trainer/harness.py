"""Runs the trainer as users do: as a separate process, or through its main function."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.support.box_cache import ALL
from tests.support.preloaded.process import EVERYTHING_ANEW, PreloadedProcess, but_for_a_sample
from tests.support.preloaded.request import usable
from trainer.base.contract import read_contract
from trainer.base.errors import TrainerError
from trainer.base.recipe import Recipe
from trainer.base.signals import StopFlag
from trainer.base.start_from import StartFrom
from trainer.checkpoints.loading import load
from trainer.cli import main
from trainer.group.distributed import ALONE
from trainer.run.engine import run_recipe

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
# A network so small that a run takes a second: 2 epochs of 89 steps. Shift and dropout use both kinds of randomness,
# and batch norm has buffers to restore.
SMALL = (
    "epochs=2",
    "batch_size=16",
    "model.width=6",
    "log_every_steps=1",
    "checkpoint.every_steps=7",
    "onnx=false",
    "curves=false",
)
STEPS_PER_EPOCH = 89
# Standalone: a separate rendezvous at a free port. With the default port, tests would join each other's groups.
TORCHRUN_OF = ("torch.distributed.run", "--standalone", "--nproc-per-node")
TORCHRUN = (*TORCHRUN_OF, "2")
TIMEOUT_SECONDS = 240
TRAINER = (
    "torch.distributed.run",
    # Every optimizer imports it, which takes a second.
    "torch._dynamo",
    *(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "trainer").rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
    ),
)
"""The modules that a server imports before it forks the trainer."""


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


def settings_args(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def plain_environ(**extra: str) -> dict[str, str]:
    """The environment without the contract's variables, one thread, no GPU: the same bits on every computer."""
    dropped = ("KEDGE_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC")
    kept = {name: value for name, value in os.environ.items() if name == ALL or not name.startswith(dropped)}
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), **extra}


def start(
    folder: Path, *settings: str, recipe: str = "digits", processes: int = 1, anew: bool = False, **environ: str
) -> subprocess.Popen[str]:
    launcher = ["trainer"] if processes == 1 else [*TORCHRUN_OF, str(processes), "-m", "trainer"]
    words = [*launcher, recipe, *settings_args(settings), "--output-dir", str(folder)]
    return start_python(words, env=plain_environ(**environ), cwd=folder.parent, anew=anew)


def start_python(
    words: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, anew: bool = False
) -> subprocess.Popen[str]:
    """Start `python -m WORDS` in a new session; in most tests it is forked, and so are torchrun's ranks.

    Torchrun is started anew only on request: two ranks and their launcher import torch for ten seconds.
    """
    is_torchrun = words[0] == TORCHRUN_OF[0]
    modules = () if anew else TRAINER if is_torchrun else but_for_a_sample(TRAINER)
    if modules and is_torchrun and usable() and EVERYTHING_ANEW not in os.environ:
        words = ["tests.trainer.torchrun", *words[1:]]
    pipe = subprocess.PIPE
    argv = [sys.executable, "-m", *words]
    return PreloadedProcess(
        argv, preload=modules, env=env, cwd=cwd, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> Result:
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    return Result(process.returncode, out, err)


def run(
    folder: Path, *settings: str, recipe: str = "digits", processes: int = 1, anew: bool = False, **environ: str
) -> Result:
    return finish(start(folder, *settings, recipe=recipe, processes=processes, anew=anew, **environ))


def train_here(
    recipe: Recipe[Any], folder: Path, stop: StopFlag | None = None, start_from: StartFrom | None = None
) -> int:
    """Train a recipe in this process, as one of torchrun's ranks."""
    stop = stop or StopFlag()
    stop.install()
    try:
        run_recipe("digits", recipe, read_contract(os.environ, output_dir=folder), stop, start_from or StartFrom())
    except TrainerError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    return 0


def run_script(script: str, *arguments: str, processes: int, max_restarts: int = 0, **environ: str) -> Result:
    """Run a script of ours under torchrun."""
    torchrun = (*TORCHRUN_OF, str(processes), "--max-restarts", str(max_restarts))
    process = start_python(
        [*torchrun, script, *arguments], env=plain_environ(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="5", **environ)
    )
    try:
        return finish(process)
    finally:
        if process.poll() is None:
            kill_tree(process)


class StopAtLook(StopFlag):
    """Asks for a stop at the nth poll: there is one poll for each step and validation batch."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    @property
    def reason(self) -> str | None:
        self._looks -= 1
        return "SIGTERM" if self._looks <= 0 else None

    @reason.setter
    def reason(self, _reason: str | None) -> None:
        raise AssertionError("no other code sets it")


def call(
    folder: Path,
    *settings: str,
    flags: Sequence[str | Path] = (),
    environ: Mapping[str, str] | None = None,
    stop: StopFlag | None = None,
) -> int:
    """Run the command in this process: without another import of torch, without signal handlers."""
    argv = ["digits", *settings_args(settings), *map(str, flags), "--output-dir", str(folder)]
    return main(argv, environ=environ or {}, stop=stop or StopFlag())


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL a process and all of its descendants."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        try:
            member.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def rank_process(process: subprocess.Popen[str], rank: int) -> psutil.Process:
    """Find the process of one rank under torchrun."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if child.environ().get("RANK") == str(rank):
            return child
    raise AssertionError(f"no rank {rank}")


def rank_process_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Find the only rank under one of several torchruns."""
    (rank,) = (child for child in psutil.Process(process.pid).children() if "RANK" in child.environ())
    return rank


def wait_until(is_true: Callable[[], bool], what: str, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_true():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode} before {what}: {process.communicate()[1]}")
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.005)


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str] | None = None) -> None:
    wait_until(lambda: _newest_step(folder) >= step, f"step {step}", process)


def handles(process: subprocess.Popen[str], signum: int) -> bool:
    """Return whether a process handles a signal itself."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (signum - 1))
    return False


def read_status(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "status.json").read_text(), parse_constant=_refuse)
    return content


def read_rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=_refuse) for line in lines]


def rows_without_speed(folder: Path) -> list[dict[str, Any]]:
    speed = {"samples_per_second", "data_wait", "memory_gib", "mfu"}
    return [{name: row[name] for name in row if name not in speed} for row in read_rows(folder)]


def newest_checkpoint(folder: Path) -> Path:
    return max(path for path in (folder / "checkpoints").glob("step-*") if ".damaged" not in path.name)


def best_checkpoint(folder: Path) -> Path:
    (best,) = (folder / "checkpoints").glob("best-*")
    return best


def assert_same_run(folder: Path, reference: Path) -> None:
    """Check that weights, optimizer, random states, best weights and metrics are equal to the bit."""
    ours, theirs = newest_checkpoint(folder), newest_checkpoint(reference)
    assert ours.name == theirs.name
    assert_equal(load(ours, ALONE), load(theirs, ALONE), ours.name)
    best = [load(best_checkpoint(place), ALONE) for place in (folder, reference)]
    assert_equal(best[0], best[1], "best weights")
    assert rows_without_speed(folder) == rows_without_speed(reference)


def copy_state(state: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(state)


def under_address_limit(*, extra_bytes: int, call: str) -> str:
    """Return a program that loads the trainer, limits its address space, and runs a call; `code` is its exit code."""
    return (
        "import resource, sys, trainer.run.engine, trainer.find.finders, trainer.recipes.digits\n"
        "size = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmSize'))\n"
        f"limit = size * 1024 + {extra_bytes}\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        f"{call}\n"
        "sys.exit(code)\n"
    )


def assert_equal(ours: Any, theirs: Any, where: str) -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), f"{where} differs"
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), where
        for key in ours:
            assert_equal(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), where
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(one, other, f"{where}/{number}")
    else:
        assert ours == theirs, where


def _newest_step(folder: Path) -> int:
    try:
        lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-2])["step"]) if len(lines) > 1 else 0


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
