"""What an export is: files, the commands that submit them, and what they can't carry over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.core.job import Job
from orchestrator.core.task import Nodes, Task

SCRIPT = 0o755
PLAIN = 0o644


class Target(StrEnum):
    """A scheduler."""

    BATCH = "batch"
    SAGEMAKER = "sagemaker"
    SLURM = "slurm"

    @property
    def label(self) -> str:
        """Its name in texts."""
        return {"batch": "AWS Batch", "sagemaker": "SageMaker", "slurm": "Slurm"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """A file of the export.

    Attributes:
        path: in the folder.
        is_form: the user fills in the values of its variables.
    """

    path: str
    content: bytes
    mode: int = PLAIN
    is_form: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A job for one scheduler.

    Attributes:
        steps: what to do next, in this order: sentences and commands, the latter without prose around them.
        not_carried: what kedge does for a run that this scheduler won't, one sentence each.
    """

    target: Target
    job: Job
    files: tuple[ExportFile, ...]
    steps: tuple[str, ...]
    not_carried: tuple[str, ...]


def prefix_of(task: Task) -> str:
    """Return the beginning of the names of a task's files; empty for a job's only task."""
    return f"{task.name}." if task.name else ""


def nodes_of(job: Job, task: Task) -> int:
    """Return on how many machines a task runs."""
    return 1 if task.nodes is Nodes.HEAD else job.num_nodes


def title_of(job: Job, task: Task) -> str:
    """Return the name of a job's mode and task, for comments."""
    parts = [job.name, *(f"mode {job.mode}" for _ in [0] if job.mode), *(f"task {task.name}" for _ in [0] if task.name)]
    return ", ".join(parts)


def own_master(job: Job, task: Task) -> str:
    """Return the MASTER_ADDR that the job sets itself; empty if it doesn't."""
    return {**dict(job.envs), **dict(task.envs)}.get("MASTER_ADDR", "")
