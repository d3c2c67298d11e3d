"""Starts the cluster's daemons in a folder of their own, and asks them with Slurm's own commands."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import wait_until

NODES = ("n0", "n1")
CPUS = 16
GPUS = 4
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def why_no_cluster() -> str | None:
    """Return why there can be no cluster on this computer; `make tools` installs what is missing."""
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing or os.geteuid() != 0:
        return (
            f"a Slurm cluster needs root and {', '.join(missing or _PROGRAMS)}: run `bash infra/setup/system.sh tests`"
        )
    return None


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of a shell on its login node."""
        return {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *argv: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """Run a command on the login node; return its output."""
        done = subprocess.run(
            argv,
            cwd=cwd or self.folder,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (argv, done.stdout, done.stderr, self.logs())
        return done.stdout

    def state(self, job: str) -> str:
        """Return a job's state, such as RUNNING."""
        return self.shown(job)["JobState"]

    def shown(self, job: str) -> dict[str, str]:
        """Return what `scontrol show job` says."""
        words = self.run("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def await_state(self, job: str, *states: str, seconds: float = 120) -> None:
        """Wait until a job has one of these states."""
        wait_until(lambda: self.state(job) in states, seconds=seconds, pause=0.2)

    def logs(self) -> str:
        """Return the last lines of the daemons' logs."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster of two nodes, and end it with all that it runs."""
    cluster = Cluster(folder)
    _configure(folder)
    conf = str(folder / "slurm.conf")
    with ExitStack() as stack:
        stack.enter_context(_daemon(cluster, "munged", _munge(folder)))
        wait_until((folder / "munge.socket").exists)
        stack.enter_context(_daemon(cluster, "slurmctld", ["slurmctld", "-D", "-f", conf]))
        for node in NODES:
            stack.enter_context(_daemon(cluster, f"slurmd-{node}", ["slurmd", "-D", "-N", node, "-f", conf]))
        wait_until(lambda: cluster.run("sinfo", "--noheader", "--format=%t %D").split() == ["idle", "2"], seconds=60)
        yield cluster
        cluster.run("scancel", "--user=root", "--signal=KILL", "--full")


@contextmanager
def _daemon(cluster: Cluster, name: str, argv: Sequence[str]) -> Iterator[None]:
    with (cluster.folder / f"{name}.out.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=cluster.folder, env=cluster.env, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)


def _munge(folder: Path) -> list[str]:
    names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    # The log would go to /var/log.
    paths = [f"--{option}={folder / name}" for option, name in {**names, "log-file": "munged.log"}.items()]
    # Its folder is a test's, which others can't enter.
    return ["munged", "--foreground", "--force", *paths]


def _configure(folder: Path) -> None:
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    gpus = [folder / f"gpu{number}" for number in range(GPUS)]
    for gpu in gpus:
        # Slurm takes nothing but devices for GPUs: these are like /dev/null.
        os.mknod(gpu, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    ports = {node: free_port() for node in NODES}
    size = f"CPUs={CPUS} RealMemory=1000 Gres=gpu:{GPUS}"
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {size}" for node, port in ports.items()
    )
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    (folder / "slurm.conf").write_text(_CONF.format(folder=folder, host=host, port=free_port(), nodes=nodes))


# `config_overrides`: the nodes have more cores than this computer. `cred_expire`: a requeued job waits that long.
_CONF = """\
ClusterName=kedge
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
