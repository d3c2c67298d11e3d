"""The models of the block `tasks:`."""

from __future__ import annotations

from pydantic import Field

from orchestrator.adapters.jobfile.parts import ExpectPart, Outputs, Part, Resume
from orchestrator.adapters.jobfile.values.fields import (
    Cpus,
    Duration,
    Folder,
    GpuIndexes,
    OnNodes,
    Restarts,
    TaskKey,
    TaskName,
    Text,
    Variable,
    VariableText,
)


class TaskSupervisorPart(Part, title="tasks.supervisor"):
    """How often and how a task is restarted; the kind of supervisor is the job's."""

    restarts: Restarts | None = Field(default=None, description="How often it is restarted after a failure.")
    restart_after: Duration | None = Field(default=None, description="The pause before each restart.", examples=["10s"])
    grace: Duration | None = Field(
        default=None, description="The time between SIGTERM and SIGKILL, for writing a checkpoint.", examples=["60s"]
    )


class TaskPart(Part, title="tasks"):
    """One of several commands on a machine, with its own log, results, checkpoints and restarts."""

    run: Text | None = Field(
        default=None,
        description="The shell script; it is restarted after a failure.",
        examples=["python train.py --epochs $EPOCHS"],
    )
    resume: Resume | None = Field(
        default=None,
        description="Runs instead of `run` if there is something to resume from: a shell script, or {args: arguments "
        "for `run`}; default: `run`.",
        examples=[{"args": '--resume "$KEDGE_CHECKPOINT"'}],
    )
    gpus: GpuIndexes | None = Field(
        default=None,
        description="The GPUs that only this task sees, numbered from 0 for it; default: it sees all.",
        examples=["0-6", 7, "0,2,4", [0, 1]],
    )
    cpus: Cpus | None = Field(
        default=None, description="The number of cores that it is pinned to; default: all.", examples=[8]
    )
    after: TaskName | None = Field(
        default=None, description="The task that must have succeeded before this one starts; default: none."
    )
    nodes: OnNodes | None = Field(
        default=None, description="The machines of the run that it runs on: `all` (the default) or `head`, the first."
    )
    envs: dict[Variable, VariableText] | None = Field(
        default=None,
        description="Variables in addition to the job's, or instead of them.",
        examples=[{"EPOCHS": 10}],
    )
    outputs: Outputs | None = Field(
        default=None, description="Folders with its results; default: the job's.", examples=[["results"]]
    )
    checkpoints: Folder | None = Field(
        default=None,
        description="The folder where it writes checkpoints; default: the job's, else $KEDGE_CHECKPOINT_DIR.",
        examples=["checkpoints"],
    )
    supervisor: TaskSupervisorPart | None = Field(
        default=None,
        description="How often and how it is restarted; default: as the job's.",
        examples=[{"restarts": 0}],
    )
    expect: ExpectPart | None = Field(default=None, description="What you expect of it.")


Tasks = dict[TaskKey, TaskPart | None]
