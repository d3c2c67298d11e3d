"""A Slurm cluster for all tests of a worker, and a laptop whose job is exported to it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.slurm.cluster import Cluster, running_cluster, why_no_cluster
from tests.support.laptop import Laptop


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes; in a short path, because munge's socket has one."""
    if reason := why_no_cluster():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="kedge-slurm-"))
    with running_cluster(folder) as cluster:
        yield cluster
    shutil.rmtree(folder)


@pytest.fixture
def counting(laptop: Laptop) -> Laptop:
    """A laptop with the counting script and a job for it."""
    shutil.copy(Path(__file__).with_name("count.py"), laptop.home / "count.py")
    laptop.write_job(
        """
        name: counting
        workdir: .
        resources: {accelerators: a10g:2}
        envs: {GREETING: "it's $HOME; \\"quoted\\""}
        data: {numbers: numbers}
        setup: echo once >> results/setup.log
        run: python3 count.py
        resume: {args: '--resume "$KEDGE_CHECKPOINT"'}
        outputs: [results]
        checkpoints: ckpt
        supervisor: {restarts: 1, restart_after: 1s, grace: 10s}
        deadline: 30m
        modes:
          short: {deadline: 90s, supervisor: {grace: 5s}}
          two: {num_nodes: 2, envs: {MASTER_ADDR: 127.0.0.1}}
        """
    )
    (laptop.home / "numbers").mkdir()
    (laptop.home / "numbers" / "one.txt").write_text("1")
    return laptop
