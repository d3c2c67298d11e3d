"""How long it takes to bring a folder of data into a bucket, measured against rclone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.pushing import NAME
from benchmarks.rounds import BIN, CHECKOUT, Benchmark, Contender, main, timed
from orchestrator.agent.data.index import INDEX
from orchestrator.agent.data.mirror import mirror_data_set
from orchestrator.agent.s3.store import FolderStore

ROUNDS = 5
FILES = 2_000
BYTES = 1_000_000_000
FOLDERS = 50
SEED = 8
RCLONE = str(BIN / "rclone")
MEMORY = Path("/dev/shm")
KEYS = ("bench", "bench-secret")
BUCKET = "bench"
# rclone's defaults are 4 transfers and 8 checkers; its documentation advises more for many small files.
MORE = ("--transfers", "32", "--checkers", "32")
READY_SECONDS = 10.0
_PREFIXES = count()

Push = Callable[[str], float]
"""Uploads the folder to a prefix."""


@dataclass(frozen=True)
class Bench:
    """The folder, and a bucket beside it."""

    root: Path
    port: int

    @property
    def source(self) -> Path:
        """The laptop's folder."""
        return self.root / "laptop"

    @property
    def bucket(self) -> Path:
        """Return the folder in which the server keeps uploads."""
        return self.root / "server" / BUCKET

    @property
    def env(self) -> dict[str, str]:
        """Return the environment in which the SDK and rclone reach the server."""
        url = f"http://127.0.0.1:{self.port}"
        names = ("TYPE", "PROVIDER", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT")
        remote = zip(names, ("s3", "Rclone", *KEYS, url), strict=True)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))},
            **{f"RCLONE_CONFIG_BUCKET_{name}": value for name, value in remote},
            "RCLONE_CONFIG": os.devnull,
            "AWS_ACCESS_KEY_ID": KEYS[0],
            "AWS_SECRET_ACCESS_KEY": KEYS[1],
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def kedge(self, prefix: str) -> float:
        """Time kedge's upload."""
        argv = [sys.executable, "-m", "benchmarks.pushing", str(self.source), BUCKET, prefix, str(self.root / prefix)]
        return timed(argv, cwd=CHECKOUT, env=self.env)

    def rclone(self, options: Sequence[str], prefix: str) -> float:
        """Time rclone."""
        argv = [RCLONE, "sync", *options, str(self.source), f"bucket:{BUCKET}/{prefix}"]
        return timed(argv, cwd=self.root, env=self.env)

    def push_anew(self, push: Push) -> float:
        """Time a push to an empty prefix. The server remembers what it has seen, so each push gets its own prefix."""
        prefix = f"new-{next(_PREFIXES)}"
        try:
            return push(prefix)
        finally:
            shutil.rmtree(self.bucket / prefix)
            shutil.rmtree(self.root / prefix, ignore_errors=True)


def fill(benchmark: Benchmark) -> None:
    """Time a push of everything, and one in which nothing has changed."""
    with scratch_in_memory() as root, serving(root) as bench:
        write_pictures(bench.source)
        pushes: dict[str, Push] = {
            "rclone sync": partial(bench.rclone, ()),
            "kedge": bench.kedge,
            "rclone sync, 32 at once": partial(bench.rclone, MORE),
        }
        benchmark.measure(
            contenders("1 GB in 2,000 files", {n: partial(bench.push_anew, p) for n, p in pushes.items()})
        )
        kept = {name: partial(push, f"kept-{number}") for number, (name, push) in enumerate(pushes.items())}
        for push in kept.values():
            push()
        benchmark.measure(contenders("nothing changed", kept))
        verify(bench, "kept-1")
    version = subprocess.run([RCLONE, "version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    benchmark.notes += [
        f"{FILES:,} files of random bytes, {BYTES / 1e9:.0f} GB; folder and bucket in memory; no network between them",
        f"{version}, also the server (`rclone serve s3`); every push is a whole process; rclone sync: its defaults",
    ]


def contenders(case: str, pushes: Mapping[str, Callable[[], float]]) -> Sequence[Contender]:
    """List the contenders; the others are compared with the first."""
    peer, *_ = pushes
    return [
        Contender(
            name=f"{case}: {name}",
            run=push,
            against="" if name == peer else f"{case}: {peer}",
            bar=1.0 if name == "kedge" else None,
        )
        for name, push in pushes.items()
    ]


def verify(bench: Bench, prefix: str) -> None:
    """Check that a machine would get the files of this folder.

    Raises:
        CalledProcessError: they differ.
    """
    mirror = bench.root / "mirror"
    place = bench.bucket / prefix / NAME
    mirror_data_set(FolderStore(place), mirror, pin=hashlib.sha256((place / INDEX).read_bytes()).hexdigest())
    subprocess.run(["diff", "-rq", "--exclude=.kedge", str(bench.source), str(mirror)], check=True)


def write_pictures(folder: Path) -> None:
    """Write many small files and a few large ones."""
    dice = random.Random(SEED)
    shares = [dice.lognormvariate(0, 1) for _ in range(FILES)]
    for number, share in enumerate(shares):
        path = folder / f"class_{number % FOLDERS:02}" / f"picture_{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(int(share * BYTES / sum(shares))))


@contextlib.contextmanager
def scratch_in_memory() -> Iterator[Path]:
    """Lend a folder, in memory if possible: a disk's speed would hide what is measured."""
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="kedge-bench-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def serving(root: Path) -> Iterator[Bench]:
    """Serve a bucket of an S3 of our own.

    Raises:
        RuntimeError: it doesn't start to answer.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bench = Bench(root, free.getsockname()[1])
    bench.bucket.mkdir(parents=True)
    where = ["--addr", f"127.0.0.1:{bench.port}", "--auth-key", ",".join(KEYS)]
    argv = [RCLONE, "serve", "s3", *where, str(bench.bucket.parent)]
    with subprocess.Popen(argv, env=bench.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _await_answer(bench.port)
            yield bench
        finally:
            server.terminate()


def _await_answer(port: int) -> None:
    give_up_at = time.monotonic() + READY_SECONDS
    while time.monotonic() < give_up_at:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("rclone doesn't start to serve")


if __name__ == "__main__":
    main("data", "Data into a bucket", fill, rounds=ROUNDS)
