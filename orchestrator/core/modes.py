"""The modes of a run: one after the other on its machine, each with its own results."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from posixpath import join

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import EarlierMode, Job, LaunchSpec
from orchestrator.core.protocol.report import RunState
from orchestrator.core.protocol.task_folder import TaskFolder, folder_of
from orchestrator.core.values.cost import Rental, clip, covered, spent_usd

_FIRST = ("run.log", "output", "checkpoints", "checkpoints.kept", "left-behind")
"""The log and the folders of the only task of a run's first mode."""


def mode_key(spec: LaunchSpec, sequence: int) -> str:
    """Return the folder of a mode in the results; empty for the run's first mode."""
    return folder_of("", sequence=sequence, mode=mode_name(spec, sequence)).key


def mode_title(spec: LaunchSpec, sequence: int) -> str:
    """Return the name of one of several modes, such as `1-validate`; a later one's folder has that name too."""
    return f"{sequence + 1}-{mode_name(spec, sequence) or 'run'}"


def folders_of(spec: LaunchSpec, sequence: int | None = None) -> dict[str, TaskFolder]:
    """Return the folders of the tasks of a mode, by their names; None for the present one."""
    number = spec.sequence if sequence is None else sequence
    present = [task.name for task in spec.job.tasks]
    names = present if number == spec.sequence else spec.earlier[number].tasks or [""]
    return {name: folder_of(name, sequence=number, mode=mode_name(spec, number)) for name in names}


def result_folders(spec: LaunchSpec, sequence: int, names: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the folders and files in the results that the named tasks of a mode have written, or all of them.

    Raises:
        BadRequestError: the mode has had no such task.
    """
    folders, chosen = folders_of(spec, sequence), tuple(names)
    _require_tasks(spec, sequence, folders, chosen)
    keys = [folders[name].key for name in chosen or folders]
    # The first mode's only task has no folder of its own.
    return tuple(keys) if all(keys) else _FIRST


def _require_tasks(spec: LaunchSpec, sequence: int, folders: Collection[str], chosen: Iterable[str]) -> None:
    if unknown := [name for name in chosen if name not in folders]:
        known = ", ".join(filter(None, folders))
        raise BadRequestError(
            f"mode {mode_name(spec, sequence)} of run {spec.run_id} has no task {unknown[0]!r}",
            why=f"its tasks: {known}" if known else "it has one command, without a name",
            fix="name one of them with --task, or leave --task out",
        )


def output_patterns(spec: LaunchSpec) -> tuple[str, ...]:
    """Return the wildcards in the outputs of all modes that the run has had, as paths in the results."""
    return (*(pattern for mode in spec.earlier for pattern in mode.output_patterns), *_present_patterns(spec))


def _present_patterns(spec: LaunchSpec) -> tuple[str, ...]:
    folders = folders_of(spec)
    return tuple(
        join(folders[task.name].output, pattern) for task in spec.job.tasks for pattern in task.output_patterns
    )


def logs_of(spec: LaunchSpec, names: Iterable[str] = (), sequence: int | None = None) -> dict[str, str]:
    """Return the logs of a mode's tasks by their names; without names those of all, and the machine's, without one.

    Raises:
        BadRequestError: the mode has had no such task.
    """
    number, chosen = spec.sequence if sequence is None else sequence, set(names)
    folders = folders_of(spec, number)
    _require_tasks(spec, number, folders, chosen)
    logs = {name: folder.log for name, folder in folders.items() if not chosen or name in chosen}
    whole = folder_of("", sequence=number, mode=mode_name(spec, number)).log
    return logs if chosen else {"": whole, **logs}


def mode_name(spec: LaunchSpec, sequence: int) -> str:
    """Return the name of a mode that the run has had, or has now."""
    return spec.job.mode if sequence == spec.sequence else spec.earlier[sequence].mode


def chosen_mode(job: Job) -> str:
    """Return a job's mode as it is chosen, with the values of its arguments; empty if it has none."""
    return " ".join(filter(None, (job.mode, *job.mode_arguments)))


def is_same_mode(spec: LaunchSpec, job: Job) -> bool:
    """Tell whether a job is in the run's present mode, with the same variables."""
    return (job.mode, dict(job.envs), set(job.inherited)) == (
        spec.job.mode,
        dict(spec.job.envs),
        set(spec.job.inherited),
    )


def leave_mode(
    spec: LaunchSpec, outcome: str, rentals: Iterable[Rental], at: datetime, ended_at: datetime | None = None
) -> EarlierMode:
    """Describe the present mode as one that the run leaves; one that is interrupted counts as stopped.

    Its machines may have waited after the end of its command: that time is billed, but the mode hasn't taken it.
    """
    is_live = outcome in set(RunState) and RunState(outcome).is_live
    known = tuple(rentals)
    left = _describe_present(spec, str(RunState.STOPPED) if is_live else outcome, known, at)
    took = covered(clip(known, spec.mode_since, min(at, ended_at or at)), at)
    return replace(left, took_seconds=took.total_seconds())


def list_modes(spec: LaunchSpec, state: str, rentals: Iterable[Rental], now: datetime) -> tuple[EarlierMode, ...]:
    """List the modes that a run has had, the present one last, which is in this state."""
    return (*spec.earlier, _describe_present(spec, state, rentals, now))


def _describe_present(spec: LaunchSpec, outcome: str, rentals: Iterable[Rental], at: datetime) -> EarlierMode:
    parts = clip(rentals, spec.mode_since, at)
    return EarlierMode(
        mode=spec.job.mode,
        arguments=spec.job.mode_arguments,
        envs=spec.job.envs,
        tasks=tuple(task.name for task in spec.job.tasks if task.name),
        output_patterns=_present_patterns(spec),
        outcome=outcome,
        seconds=sum(part.duration(at).total_seconds() for part in parts),
        usd=spent_usd(parts, at) if parts else Decimal(0),
    )


def enter_mode(spec: LaunchSpec, job: Job, left: EarlierMode, at: datetime, *, continues: bool = False) -> LaunchSpec:
    """Return the run's specification in another mode, which nothing follows."""
    return replace(spec, job=job, earlier=(*spec.earlier, left), later=(), mode_since=at, continues=continues)


def enter_next_mode(spec: LaunchSpec, left: EarlierMode, at: datetime) -> LaunchSpec:
    """Return the specification in the next of the modes that follow."""
    first, *later = spec.later
    return replace(enter_mode(spec, first, left, at), later=tuple(later))


def with_recorded_modes(spec: LaunchSpec, recorded: LaunchSpec) -> LaunchSpec:
    """Return a specification with the modes that were recorded since it was read: its machine may have gone on."""
    if recorded.sequence <= spec.sequence:
        return spec
    return replace(
        spec,
        job=recorded.job,
        earlier=recorded.earlier,
        later=recorded.later,
        mode_since=recorded.mode_since,
        continues=recorded.continues,
    )


def find_mode(spec: LaunchSpec, name: str) -> int:
    """Return the number of the newest of the run's modes with this name or folder.

    Raises:
        BadRequestError: it has had no such mode.
    """
    for sequence in reversed(range(spec.sequence + 1)):
        if name in (mode_name(spec, sequence), mode_key(spec, sequence), mode_title(spec, sequence)):
            return sequence
    had = [mode_title(spec, number) for number in range(spec.sequence + 1)]
    if not spec.sequence:
        had = [spec.job.mode or "the first one"]
    raise BadRequestError(
        f"run {spec.run_id} has had no mode {name!r}", why=f"its modes: {', '.join(had)}", fix="name one of them"
    )
