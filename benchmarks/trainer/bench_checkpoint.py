"""What a checkpoint of 500 MB costs: the loop's wait, the steps during a write, a stop, and kills during saves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from benchmarks.rounds import CHECKOUT, Benchmark, Contender, main
from benchmarks.trainer.other_formats import (
    DCP,
    SAFETENSORS,
    dcp_durable,
    dcp_load,
    dcp_stall,
    safetensors_durable,
    safetensors_load,
)
from trainer.base.files import write_atomically
from trainer.checkpoints.document import map_document, read_verified_document
from trainer.checkpoints.pickled import read_pickled
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.store import CheckpointStore, load_checkpoint
from trainer.checkpoints.tree import State

ROUNDS = 7
TENSORS, ELEMENTS = 50, 2_500_000
WRITES = 4
KILLS, SEED = 200, 11
STOP_SECONDS = 5.0
TIMEOUT_SECONDS = 300.0
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "benchmarks.trainer.big_run")


@dataclass
class Bench:
    """A folder on disk, a state of 500 MB, and a saver that has saved before."""

    folder: Path
    state: State
    saver: Saver
    step: int = 0
    copies: list[torch.Tensor] = field(default_factory=list)

    def torch_save(self) -> float:
        """Time what a plain script does: the loop waits until the file is durable."""
        begin = time.perf_counter()
        write_atomically(self.folder / "plain.pt", lambda stream: torch.save(self.state, stream))
        return time.perf_counter() - begin

    def copy_alone(self) -> float:
        """Time a copy into memory that was used before: no asynchronous save can be shorter."""
        self.copies = self.copies or [tensor.clone() for tensor in self.state["model"].values()]
        begin = time.perf_counter()
        for copy, tensor in zip(self.copies, self.state["model"].values(), strict=True):
            copy.copy_(tensor)
        return time.perf_counter() - begin

    def stall(self, saver: Saver) -> float:
        """Time how long the loop waits."""
        self.step += 1
        begin = time.perf_counter()
        saver.save(TrainingSnapshot(step=self.step, state=self.state))
        took = time.perf_counter() - begin
        saver.wait()
        return took

    def first_stall(self, *, is_reserved: bool) -> float:
        """Time the first save of a run; its memory is allocated during the steps before, which isn't timed."""
        saver = open_saver(self.folder)
        if is_reserved:
            saver.reserve(self.state)
            saver.wait()
        try:
            return self.stall(saver)
        finally:
            saver.close()

    def durable(self) -> float:
        """Time a save until it is durable."""
        begin = time.perf_counter()
        self.stall(self.saver)
        return time.perf_counter() - begin

    def run_other(self, run: Callable[[Path, State], float]) -> Callable[[], float]:
        """Let another format's code run on the same folder and state."""
        return lambda: run(self.folder, self.state)

    def read(self, pattern: str, load: Callable[[Path], object], *, is_cached: bool = False) -> float:
        """Time reading a file that isn't in the page cache, or that is."""
        newest, *_ = sorted(self.folder.glob(pattern), reverse=True)
        newest.read_bytes() if is_cached else drop_cache(newest)
        begin = time.perf_counter()
        load(newest)
        return time.perf_counter() - begin

    def steps_alone(self, step: Callable[[], object]) -> float:
        """Time steps without a save, for as long as a write takes; in seconds for 1,000."""
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < self.saver.seconds:
            step()
            done += 1
        return (time.perf_counter() - begin) / done * 1000

    def steps_while_writing(self, step: Callable[[], object]) -> float:
        """Time steps from each copy's end until its checkpoint is durable, in seconds for 1,000."""
        took, done = 0.0, 0
        for _ in range(WRITES):
            self.steps_alone(step)  # a run doesn't write checkpoints without a pause
            self.step += 1
            self.saver.save(TrainingSnapshot(step=self.step, state=self.state))
            begin = time.perf_counter()
            while self.saver.is_busy:
                step()
                done += 1
            took += time.perf_counter() - begin
            self.saver.wait()
        return took / done * 1000


def fill(benchmark: Benchmark) -> None:
    """Time waits, reads and steps; stop a run of two ranks; kill processes during saves."""
    torch.set_num_threads(1)
    with lent_bench() as bench:
        bench.stall(bench.saver)
        benchmark.measure(saves(bench))
        benchmark.measure(loads(bench))
        step = make_step()
        bench.steps_alone(step)
        benchmark.measure(steps(bench, step))
    stop_two_ranks(benchmark)
    kill_savers(benchmark)
    benchmark.notes += [
        f"{TENSORS} float32 tensors of {ELEMENTS:,} elements, 500 MB; one thread of torch; the folder is on disk",
        "first save: the saver's thread allocated its memory before, as after a run's first step",
        f"steps: forward, backward, AdamW of a 64-128-128-10 MLP at batch 32, beside {WRITES} checkpoints a round",
        f"safetensors {version('safetensors')}, DCP's HuggingFaceStorageWriter: the same tensors alone, no checksums",
        f"torch {torch.__version__}; torch.save goes through the same fsync and rename; files are read from the disk",
    ]


def saves(bench: Bench) -> list[Contender]:
    """List what a loop can wait for."""
    peer = "torch.save + fsync"
    return [
        Contender(name=peer, run=bench.torch_save),
        Contender(name="limit: a copy in memory", run=bench.copy_alone, against=peer),
        Contender(name="kedge: the loop's wait", run=lambda: bench.stall(bench.saver), against=peer, bar=0.05),
        Contender(name="kedge: first save", run=lambda: bench.first_stall(is_reserved=True), against=peer, bar=0.10),
        Contender(
            name="kedge: first save, no memory yet", run=lambda: bench.first_stall(is_reserved=False), against=peer
        ),
        Contender(name="kedge: until it is durable", run=bench.durable, against=peer),
        Contender(name="safetensors.save_file + fsync", run=bench.run_other(safetensors_durable), against=peer),
        Contender(name="DCP.async_save: the loop's wait", run=bench.run_other(dcp_stall), against=peer),
        Contender(name="DCP.save: until it is durable", run=bench.run_other(dcp_durable), against=peer),
    ]


def loads(bench: Bench) -> list[Contender]:
    """List the readers. The second process finds the file in the page cache, because the first has just read it."""

    def second(read: Callable[[Path], object]) -> float:
        return bench.read("step-*", lambda path: load_checkpoint(path, read=read), is_cached=True)

    peer = "torch.load + the zip's checksums"
    return [
        Contender(name=peer, run=lambda: bench.read("plain.pt", read_pickled)),
        Contender(name="torch.load, nothing verified", run=lambda: bench.read("plain.pt", torch_load), against=peer),
        Contender(name="kedge: load, verified", run=lambda: bench.read("step-*", load_checkpoint), against=peer),
        Contender(name="kedge: a machine's second process", run=lambda: second(read_verified_document), against=peer),
        Contender(name="kedge: the same, for a GPU", run=lambda: second(map_document), against=peer),
        Contender(
            name="safetensors, nothing verified", run=lambda: bench.read(SAFETENSORS, safetensors_load), against=peer
        ),
        Contender(name="DCP, nothing verified", run=lambda: bench.read(f"{DCP}/*", dcp_load), against=peer),
    ]


def steps(bench: Bench, step: Callable[[], object]) -> list[Contender]:
    """List steps without a write and during a write; a rate of 0.95 is a time of 1 / 0.95."""
    peer = "1,000 steps alone"
    return [
        Contender(name=peer, run=lambda: bench.steps_alone(step)),
        Contender(
            name="1,000 steps while writing", run=lambda: bench.steps_while_writing(step), against=peer, bar=1 / 0.95
        ),
    ]


def make_step() -> Callable[[], object]:
    """Make a training step of a small net."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, labels = torch.randn(32, 64), torch.randint(10, (32,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def stop_two_ranks(benchmark: Benchmark) -> None:
    """Send SIGTERM to a run of two gloo ranks with 500 MB of state, and check what is left."""
    with scratch() as folder:
        argv = [sys.executable, "-m", *TORCHRUN, str(folder / "output")]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60"}
        with subprocess.Popen(argv, cwd=CHECKOUT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            metrics = folder / "output" / "metrics.jsonl"
            wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 3, run)
            begin = time.time()
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=TIMEOUT_SECONDS)
            exited = time.time() - begin
        (checkpoint,) = (folder / "output" / "checkpoints").glob("step-*.safetensors")
        durable = (folder / "output" / "status.json").stat().st_mtime - begin
        trained = json.loads(metrics.read_text().splitlines()[-1])["step"]
        kept = load_checkpoint(checkpoint)["progress"]["step"]
        size = checkpoint.stat().st_size
    what = f"two ranks, {size / 1e6:.0f} MB: durable {durable:.1f} s after SIGTERM, all gone after {exited:.1f} s"
    benchmark.check(f"{what} (<= {STOP_SECONDS:.0f} s)", met=durable <= STOP_SECONDS)
    benchmark.check(f"steps lost by the stop: {trained - kept} (0)", met=trained == kept)


def kill_savers(benchmark: Benchmark) -> None:
    """Kill processes during their saves, 200 times."""
    with scratch() as folder:
        argv = [sys.executable, "-m", "tests.trainer.kill_saves", str(folder), str(KILLS), str(SEED), "8"]
        done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    benchmark.check(f"8 MB: {done.stdout.strip() or done.stderr.strip()}", met=done.returncode == 0)


def open_saver(folder: Path) -> Saver:
    """Open a saver over a folder of checkpoints."""
    return Saver(CheckpointStore(folder, keep=1, fingerprint={}))


@contextmanager
def lent_bench() -> Iterator[Bench]:
    """Lend a bench, and remove its folder afterwards."""
    state: State = {"model": {f"layer{number}": torch.rand(ELEMENTS) for number in range(TENSORS)}}
    with scratch() as folder:
        bench = Bench(folder, state, open_saver(folder))
        bench.saver.reserve(state)
        try:
            yield bench
        finally:
            bench.saver.close()


@contextmanager
def scratch() -> Iterator[Path]:
    """Lend a folder on disk."""
    with tempfile.TemporaryDirectory(prefix="kedge-bench-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def torch_load(path: Path) -> object:
    """Read a file as a plain script does."""
    return torch.load(path, map_location="cpu", weights_only=True)


def drop_cache(path: Path) -> None:
    """Drop the page cache of a file, so that the next reader goes to the disk."""
    with path.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def wait_until(is_true: Callable[[], bool], run: subprocess.Popen[bytes]) -> None:
    """Wait until a run gets somewhere.

    Raises:
        RuntimeError: it ended earlier, or took too long.
    """
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    while not is_true():
        if run.poll() is not None or time.monotonic() > give_up_at:
            run.kill()
            raise RuntimeError(f"the run got nowhere: {(run.communicate()[1] or b'').decode()[-2000:]}")
        time.sleep(0.02)


if __name__ == "__main__":
    main("checkpoint", "Checkpoints of 500 MB", fill, rounds=ROUNDS)
