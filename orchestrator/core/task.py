"""A task: one supervised command of a job, with its own GPUs, results, checkpoints and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from orchestrator.core.errors import BadRequestError


class SupervisorKind(StrEnum):
    """The program that keeps the training command alive on the machine."""

    SYSTEMD = "systemd"
    SYSTEMD_USER = "systemd-user"
    TMUX = "tmux"
    SCREEN = "screen"
    NOHUP = "nohup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """How the command is kept alive.

    Attributes:
        restarts: how many times a failed command is started again; each start resumes.
        restart_after: the pause before each restart.
        grace: how long a command may take to checkpoint and exit after SIGTERM, before SIGKILL.
    """

    kind: SupervisorKind = SupervisorKind.TMUX
    restarts: int = 3
    restart_after: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=60)


class Basis(StrEnum):
    """Where the author of a job has an expected duration from."""

    PUBLISHED = "published"
    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What the job's author expects of a run or a task; compared with the deadline and with measurements.

    Attributes:
        duration: from the start to the end.
        basis: where the duration is from; None if the file doesn't say.
        runs: how many runs are planned, in the table of all modes; None for the usual number.
        budget: what the planned runs of all modes may cost together, in dollars; None for no limit.
        first_step: from the command's start to its first step; a silent command isn't reported as stalled before that.
    """

    duration: timedelta | None = None
    basis: Basis | None = None
    runs: int | None = None
    budget: Decimal | None = None
    first_step: timedelta | None = None


class Nodes(StrEnum):
    """On which machines of a run a task runs."""

    ALL = "all"
    HEAD = "head"
    """On the first one only."""


class OnFailure(StrEnum):
    """What happens to a machine's other tasks when one has failed for good."""

    GO_ON = "go-on"
    STOP_ALL = "stop-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One supervised command.

    Attributes:
        name: unique within the job; empty for the only task of a job that has `run` instead of `tasks`.
        run: the shell script.
        resume: the script to run instead if there is something to resume from; empty for the same one.
        resume_args: appended to `run` in that case; empty for nothing. A task has either these or `resume`, or none.
        gpus: indexes of the machine's GPUs that only this task sees, in ascending order; None: it sees all.
        cpus: the number of cores that it is pinned to; None: it uses all.
        after: the name of the task that must have succeeded before this one starts; empty for none.
        envs: variables in addition to the job's; they win over the job's.
        outputs: folders with results, relative to the working folder; they outlive a change of code.
        output_patterns: of an output folder that some of these lie in, only what matches one of them is fetched by
            default; relative to the working folder, with wildcards.
        checkpoints: the folder, relative to the working folder, to which the command writes its checkpoints, for
            commands that don't read KEDGE_CHECKPOINT_DIR; otherwise empty.
        supervisor: its kind is the same for all tasks of a job.
    """

    run: str
    name: str = ""
    resume: str = ""
    resume_args: str = ""
    gpus: tuple[int, ...] | None = None
    cpus: int | None = None
    after: str = ""
    nodes: Nodes = Nodes.ALL
    envs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()
    output_patterns: tuple[str, ...] = ()
    checkpoints: str = ""
    supervisor: SupervisorSpec = field(default_factory=SupervisorSpec)
    expect: Expect = field(default_factory=Expect)

    @property
    def later_run(self) -> str:
        """The script to run instead of `run` if there is something to resume from; empty for the same one."""
        return f"{self.run.rstrip()} {self.resume_args}" if self.resume_args else self.resume

    @property
    def result_folders(self) -> tuple[str, ...]:
        """The folders of its results and checkpoints, relative to the working folder."""
        return (*self.outputs, *filter(None, (self.checkpoints,)))

    @property
    def shown_outputs(self) -> tuple[str, ...]:
        """Its outputs as the job file has them: patterns instead of the folders that they lie in."""
        whole = (
            folder for folder in self.outputs if not any(each.startswith(f"{folder}/") for each in self.output_patterns)
        )
        return (*whole, *self.output_patterns)

    def runs_on(self, rank: int) -> bool:
        """Tell whether it runs on a machine of this rank."""
        return not rank or self.nodes is Nodes.ALL


def choose_tasks(run_id: str, tasks: Sequence[Task], names: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks with these names, in the job's order, or all if no name is given.

    Raises:
        BadRequestError: the run has no such task.
    """
    known = [task.name for task in tasks if task.name]
    for name in names:
        if name not in known:
            raise BadRequestError(
                f"run {run_id} has no task {name!r}",
                why=f"its tasks: {', '.join(known)}" if known else "it has one command, without a name",
                fix="name one of them with --task, or leave --task out" if known else "leave --task out",
            )
    return tuple(task for task in tasks if not names or task.name in names)
