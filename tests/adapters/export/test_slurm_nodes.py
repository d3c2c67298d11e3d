"""A job of several machines on Slurm: `srun` starts it on each node, with what torchrun needs to meet the others.

Slurm's commands are stand-ins here, so that this runs anywhere; tests/in_cloudbox/slurm has a real cluster.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.laptop import Laptop

JOB = """
name: pair
resources: {accelerators: "a10g:4"}
num_nodes: 2
run: env > "$KEDGE_OUTPUT_DIR/env-$KEDGE_NODE_RANK"
"""
SRUN = """#!/bin/bash
printf '%s\\n' "$@" > srun.txt
while [[ $1 == --* ]]; do shift; done
for node in 0 1; do SLURM_NODEID=$node "$@" & done
wait
"""
SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames gpu-[a-b]" ] && printf 'gpu-a\\ngpu-b\\n'
"""
OF_SLURM = {
    **{"SLURM_JOB_ID": "40007", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "gpu-[a-b]"},
    **{"SLURM_JOB_END_TIME": "9999999999"},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with the commands of a cluster whose two nodes are this computer."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run_on(cluster: Path, laptop: Laptop) -> Path:
    """Export the job, run its batch script as Slurm would, and return the folder of the export."""
    laptop.write_job(JOB)
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    folder = laptop.home / "exported"
    env = {"PATH": f"{cluster}:/usr/bin:/bin", "VIRTUAL_ENV": sys.prefix, "SLURM_SUBMIT_DIR": str(folder), **OF_SLURM}
    argv = ["bash", str(folder / "job.sbatch")]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_node_has_torchruns_variables_with_the_first_one_as_head(laptop: Laptop, cluster: Path) -> None:
    """One task of srun on each node, in one run; torchrun takes its options from PET_..., so it needs none."""
    folder = run_on(cluster, laptop)
    script = (folder / "job.sbatch").read_text()
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gres=gpu:4"} <= set(script.splitlines())
    assert "--kill-on-bad-exit=1" in (folder / "srun.txt").read_text().splitlines()
    for rank in ("0", "1"):
        text = (folder / "runs" / "pair-40007" / "output" / f"env-{rank}").read_text()
        env = dict(line.partition("=")[::2] for line in text.splitlines())
        for prefix in ("", "PET_"):
            assert env[f"{prefix}MASTER_ADDR"] == "gpu-a"
            assert env[f"{prefix}MASTER_PORT"] == "20007"
            assert (env[f"{prefix}NODE_RANK"], env[f"{prefix}NNODES"]) == (rank, "2")
        assert env["PET_RDZV_ID"] == "pair-40007"
        assert (env["KEDGE_NUM_NODES"], env["KEDGE_GPUS_PER_NODE"]) == ("2", "4")


def test_a_task_of_the_head_alone_asks_for_one_node(laptop: Laptop) -> None:
    """Its torchrun would wait for others that never come."""
    laptop.write_job("num_nodes: 2\ntasks: {all: {run: sleep 1}, one: {nodes: head, run: sleep 1}}\n")
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    for task, nodes in (("all", 2), ("one", 1)):
        lines = (laptop.home / "exported" / f"{task}.job.sbatch").read_text().splitlines()
        assert f"#SBATCH --nodes={nodes}" in lines
