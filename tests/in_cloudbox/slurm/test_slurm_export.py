"""An exported job on a real Slurm: the contract's variables and folders, requeue, the end of its time, two nodes."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tests.cloudbox.slurm.cluster import Cluster
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until


class Submitted:
    """A job that was exported, and submitted on the cluster's login node."""

    def __init__(
        self,
        laptop: Laptop,
        cluster: Cluster,
        *flags: str,
        env: dict[str, str] | None = None,
        makes_environment: bool = False,
    ) -> None:
        laptop.kedge("export", "--to", "slurm", "--output", "exported", *flags)
        self.folder = laptop.home / "exported"
        self.cluster = cluster
        if (laptop.home / "numbers").exists():
            shutil.copytree(laptop.home / "numbers", self.folder / "data" / "numbers")
        if not makes_environment:
            # As `conda activate` would; to make an environment takes long.
            (self.folder / "site.sh").write_text(f"export VIRTUAL_ENV={sys.prefix}\n")
        self.id = cluster.run("./submit.sh", cwd=self.folder, env=env).split()[-1]

    @property
    def root(self) -> Path:
        return self.folder / "runs" / f"counting-{self.id}"

    def log(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))

    def started(self, number: int, rank: int = 0) -> dict[str, Any]:
        """Wait for an attempt, and return what it was started with."""
        path = self.root / "output" / "results" / f"started-{number}-{rank}.json"
        try:
            wait_until(lambda: path.exists() and path.read_text(), seconds=120)
        except AssertionError as err:
            raise AssertionError(f"{self.log()}\n{self.cluster.logs()}") from err
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def steps(self) -> list[int]:
        """Return the steps of its checkpoints."""
        return sorted(int(path.stem.removeprefix("step-")) for path in (self.root / "checkpoints").glob("step-*.txt"))

    def stops(self) -> list[str]:
        return (self.root / "output" / "results" / "stops.log").read_text().splitlines()


def test_a_job_has_the_contracts_variables_and_folders(counting: Laptop, cluster: Cluster) -> None:
    """Code, data, outputs and checkpoints are where the command looks; nothing of the shell that submits is there.

    fact: slurm-export
    """
    job = Submitted(counting, cluster, env={"AWS_SECRET_ACCESS_KEY": "mine"}, makes_environment=True)
    told = job.started(1)
    env = told["env"]
    root = str(job.root)
    assert {name: value for name, value in env.items() if name.startswith("KEDGE_")} == {
        "KEDGE_RUN_ID": f"counting-{job.id}",
        "KEDGE_TASK": "",
        "KEDGE_TASK_ID": f"counting-{job.id}",
        "KEDGE_TASKS_DIR": "",
        "KEDGE_ROOT": root,
        "KEDGE_WORK": f"{root}/.kedge/work",
        "KEDGE_DATA": str(job.folder / "data"),
        "KEDGE_OUTPUT_DIR": f"{root}/output",
        "KEDGE_CHECKPOINT_DIR": f"{root}/checkpoints",
        "KEDGE_RESUME": "",
        "KEDGE_CHECKPOINT": "",
        "KEDGE_DEADLINE": env["KEDGE_DEADLINE"],
        "KEDGE_DEADLINE_FILE": f"{root}/.kedge/deadline",
        "KEDGE_NOTICE_FILE": f"{root}/.kedge/notice",
        "KEDGE_GPUS_PER_NODE": "2",
        "KEDGE_PORT": str(20000 + int(job.id) % 10000),
        "KEDGE_NODE_RANK": "0",
        "KEDGE_NUM_NODES": "1",
    }
    assert abs(float(env["KEDGE_DEADLINE"]) - time.time() - 1800) < 60
    assert env["GREETING"] == """it's $HOME; "quoted\""""
    assert env["MASTER_PORT"] == env["KEDGE_PORT"]
    assert env["VIRTUAL_ENV"] == f"{root}/.kedge/work/env"
    assert "AWS_SECRET_ACCESS_KEY" not in env
    assert told["cwd"] == f"{root}/.kedge/work/code"
    assert {"count.py", "numbers", "results", "ckpt"} <= set(told["files"])
    assert cluster.shown(job.id)["TresPerNode"] == "gres:gpu:2"
    cluster.run("scancel", "--signal=USR1", "--batch", job.id)
    wait_until((job.root / ".kedge" / "notice").exists)
    cluster.run("scancel", job.id)
    cluster.await_state(job.id, "CANCELLED")
    wait_until(lambda: "saved before the end" in job.log())
    assert len(job.stops()) == 1


def test_a_requeued_job_resumes_from_its_checkpoint(counting: Laptop, cluster: Cluster) -> None:
    """It is asked to stop exactly once, saves, and goes on in the same folders; `setup` isn't repeated.

    fact: slurm-requeue
    """
    job = Submitted(counting, cluster)
    job.started(1)
    wait_until(lambda: len(job.steps()) > 3)
    cluster.run("scontrol", "requeue", job.id)
    told = job.started(2)
    assert len(job.stops()) == 1
    assert told["env"]["KEDGE_RESUME"] == "1"
    assert told["env"]["SLURM_RESTART_COUNT"] == "1"
    assert told["argv"] == ["--resume", told["env"]["KEDGE_CHECKPOINT"]]
    assert told["from"] > 3
    assert told["env"]["KEDGE_CHECKPOINT"].startswith(f"{job.root}/checkpoints/step-")
    assert (job.root / "output" / "results" / "setup.log").read_text() == "once\n"
    assert "saved before the end" in job.log()
    cluster.run("scancel", job.id)


def test_a_run_goes_on_in_another_job(counting: Laptop, cluster: Cluster) -> None:
    """In the folder of the first one, which has ended, from its checkpoint and with time of its own."""
    job = Submitted(counting, cluster)
    first = job.started(1)["env"]
    wait_until(lambda: len(job.steps()) > 3)
    cluster.run("scancel", job.id)
    cluster.await_state(job.id, "CANCELLED")
    wait_until(lambda: "saved before the end" in job.log())
    run = job.root.name
    second = cluster.run("./submit.sh", cwd=job.folder, env={"RUN": run}).split()[-1]
    told = job.started(2)
    assert told["from"] > 3
    assert (told["env"]["KEDGE_RUN_ID"], told["env"]["SLURM_JOB_ID"]) == (run, second)
    assert float(told["env"]["KEDGE_DEADLINE"]) > float(first["KEDGE_DEADLINE"])
    assert not (job.folder / "runs" / f"counting-{second}").exists()
    cluster.run("scancel", second)


def test_the_end_of_its_time_leads_to_a_checkpoint(counting: Laptop, cluster: Cluster) -> None:
    """Slurm sends SIGTERM before the limit, by `grace`; the job has failed then, and isn't started again.

    fact: slurm-signal
    """
    job = Submitted(counting, cluster, "--mode", "short")
    job.started(1)
    before = time.monotonic()
    cluster.await_state(job.id, "FAILED", "TIMEOUT", "COMPLETED", seconds=150)
    assert time.monotonic() - before < 120
    assert cluster.shown(job.id)["ExitCode"] == "143:0"
    assert len(job.stops()) == 1
    assert "saved before the end" in job.log()
    assert not (job.root / "output" / "results" / "started-2-0.json").exists()


def test_a_failed_command_is_restarted_as_often_as_the_job_says(counting: Laptop, cluster: Cluster) -> None:
    """Then the job has failed, with the command's exit code."""
    with (counting.home / "count.py").open("a") as script:
        script.write("\nsys.exit(7)\n")
    file = counting.home / "kedge.yaml"
    file.write_text(file.read_text().replace("count.py\n", "count.py --steps 2\n"))
    job = Submitted(counting, cluster)
    cluster.await_state(job.id, "FAILED", seconds=120)
    assert cluster.shown(job.id)["ExitCode"] == "7:0"
    assert job.started(2)["env"]["KEDGE_RESUME"] == "1"
    assert not (job.root / "output" / "results" / "started-3-0.json").exists()


def test_the_nodes_of_a_job_find_each_other(counting: Laptop, cluster: Cluster) -> None:
    """In torchrun's variables; one `setup` for all, and a stop reaches each of them once.

    fact: slurm-signals
    """
    job = Submitted(counting, cluster, "--mode", "two", "--env", "STEPS=5")
    told = [job.started(1, rank)["env"] for rank in (0, 1)]
    for rank, env in enumerate(told):
        assert (env["KEDGE_NODE_RANK"], env["KEDGE_NUM_NODES"]) == (str(rank), "2")
        assert (env["PET_NODE_RANK"], env["PET_NNODES"]) == (str(rank), "2")
        assert (env["PET_MASTER_ADDR"], env["PET_MASTER_PORT"]) == ("127.0.0.1", env["KEDGE_PORT"])
        assert env["SKYPILOT_NODE_IPS"].split() == ["n0", "n1"]
        assert env["STEPS"] == "5"
    assert told[0]["KEDGE_CHECKPOINT_DIR"] == told[1]["KEDGE_CHECKPOINT_DIR"]
    assert (job.root / "output" / "results" / "setup.log").read_text() == "once\n"
    # As Slurm itself does before the end of the time.
    cluster.run("scancel", "--signal=TERM", "--batch", job.id)
    cluster.await_state(job.id, "FAILED")
    assert sorted(line.split()[0] for line in job.stops()) == ["0", "1"]


ADD = """
import os, pathlib, torch
from torch import distributed
distributed.init_process_group("gloo")
ranks = torch.tensor([1.0 + distributed.get_rank()])
distributed.all_reduce(ranks)
said = f"{distributed.get_world_size()} {int(ranks)} {os.environ['LOCAL_RANK']} {os.environ['GROUP_RANK']}"
pathlib.Path(os.environ["KEDGE_OUTPUT_DIR"], f"rank-{distributed.get_rank()}").write_text(said)
"""


def test_torchrun_meets_over_the_nodes_of_a_job(laptop: Laptop, cluster: Cluster) -> None:
    """Without an option about nodes: two processes on each of two nodes add up their ranks."""
    (laptop.home / "add.py").write_text(ADD)
    laptop.write_job(
        """
        name: adding
        workdir: .
        num_nodes: 2
        envs: {MASTER_ADDR: 127.0.0.1, GLOO_SOCKET_IFNAME: lo, OMP_NUM_THREADS: 1}
        run: torchrun --nproc-per-node 2 add.py
        supervisor: {restarts: 0}
        """
    )
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    folder = laptop.home / "exported"
    (folder / "site.sh").write_text(f"export VIRTUAL_ENV={sys.prefix} PATH={sys.prefix}/bin:$PATH\n")
    job = cluster.run("./submit.sh", cwd=folder).split()[-1]
    cluster.await_state(job, "COMPLETED", "FAILED", seconds=300)
    log = "\n".join(path.read_text() for path in folder.glob("*.log"))
    said = {path.name: path.read_text() for path in (folder / "runs" / f"adding-{job}" / "output").iterdir()}
    # The processes of each node have the node's rank, and together 1 + 2 + 3 + 4.
    assert said == {f"rank-{rank}": f"4 10 {rank % 2} {rank // 2}" for rank in range(4)}, log


def test_tasks_are_jobs_that_wait_for_each_other(laptop: Laptop, cluster: Cluster) -> None:
    """In one run, whose folders all of them see; each asks only for its own GPUs."""
    laptop.write_job(
        """
        name: pair
        resources: {accelerators: a10g:4}
        tasks:
          second: {after: first, gpus: 0, run: 'cat $KEDGE_TASKS_DIR/first/output/said > $KEDGE_OUTPUT_DIR/heard'}
          first: {gpus: 0-2, run: 'sleep 2; echo "$KEDGE_TASK_ID $KEDGE_GPUS_PER_NODE" > $KEDGE_OUTPUT_DIR/said'}
        """
    )
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    folder = laptop.home / "exported"
    (folder / "site.sh").write_text(f"export VIRTUAL_ENV={sys.prefix}\n")
    run, *jobs = (line.split() for line in cluster.run("./submit.sh", cwd=folder).splitlines())
    assert [name for name, _ in jobs] == ["first", "second"]
    for (_, job), gpus in zip(jobs, (3, 1), strict=True):
        cluster.await_state(job, "COMPLETED")
        assert cluster.shown(job)["TresPerNode"] == f"gres:gpu:{gpus}"
    heard = folder / "runs" / run[1] / "second" / "output" / "heard"
    assert heard.read_text() == f"{run[1]}-first 3\n"


def test_secrets_come_from_the_submitting_shell_or_a_private_file(counting: Laptop, cluster: Cluster) -> None:
    """And never from the export; a job that lacks one says so."""
    file = counting.home / "kedge.yaml"
    file.write_text(f"{file.read_text()}secrets: [HF_TOKEN]\n")
    job = Submitted(counting, cluster, env={"HF_TOKEN": "from-the-shell"})
    assert job.started(1)["env"]["HF_TOKEN"] == "from-the-shell"
    cluster.run("scancel", job.id)
    (job.folder / "secrets.env").write_text("HF_TOKEN=a file's; $HOME\nOTHER=x\n")
    (job.folder / "secrets.env").chmod(0o644)
    job.id = cluster.run("./submit.sh", cwd=job.folder).split()[-1]
    cluster.await_state(job.id, "FAILED")
    assert "chmod 600" in job.log()
    (job.folder / "secrets.env").chmod(0o600)
    job.id = cluster.run("./submit.sh", cwd=job.folder).split()[-1]
    env = job.started(1)["env"]
    assert env["HF_TOKEN"] == "a file's; $HOME"
    assert "OTHER" not in env
    cluster.run("scancel", job.id)
    (job.folder / "secrets.env").unlink()
    job.id = cluster.run("./submit.sh", cwd=job.folder).split()[-1]
    cluster.await_state(job.id, "FAILED")
    assert "the variable HF_TOKEN is not set" in job.log()
