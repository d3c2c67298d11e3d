"""Builds a job's tasks: one without a name from `run`, or those of `tasks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.adapters.jobfile.assembly.resume import read_resume
from orchestrator.adapters.jobfile.models import ModePart
from orchestrator.adapters.jobfile.problems import KeyPath, quoted
from orchestrator.adapters.jobfile.source_map import SourceMap
from orchestrator.adapters.jobfile.task_parts import TaskPart
from orchestrator.adapters.jobfile.values.paths import find_overlap
from orchestrator.core.job import Job
from orchestrator.core.protocol.choice import has_wildcard, literal_folder
from orchestrator.core.protocol.wire import TORCH_WHEEL
from orchestrator.core.task import Expect, Nodes, SupervisorSpec, Task

MOST_TASKS = 32
"""How many a machine may have: each has a supervisor, a runner and a log of its own."""


def build_tasks(source_map: SourceMap, layers: Sequence[ModePart], job: Job) -> tuple[Task, ...]:
    """Build the tasks of a job; none for a plain machine.

    Args:
        source_map: the file, and where its keys are.
        layers: the job's part and that of its mode; a later one wins.
        job: the job without tasks.

    Raises:
        BadRequestError: there are both `run` and `tasks`, a task has no `run`, or its values contradict each other.
    """
    has_tasks = any(layer.tasks is not None for layer in layers)
    if has_tasks:
        _refuse_both(source_map, layers)
    whole = _only_task(source_map, layers, job)
    parts: dict[str, list[TaskPart]] = {}
    for layer in layers:
        for name, part in (layer.tasks or {}).items():
            parts.setdefault(name, []).append(part or TaskPart())
    if has_tasks and not parts:
        raise source_map.refusal(("tasks",), "this names no task", fix="write for example {fit: {run: python fit.py}}")
    if len(parts) > MOST_TASKS:
        raise source_map.refusal(
            ("tasks",), f"{len(parts)} tasks are too many", why=f"the limit is {MOST_TASKS}", fix="launch several runs"
        )
    named = tuple(_named_task(source_map, name, said, job, whole) for name, said in parts.items())
    tasks = named or ((whole,) if whole.run else ())
    for task in tasks or (whole,):
        _refuse_overlaps(source_map, job, task)
    return tasks


def scripts_of(tasks: Sequence[Task]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the scripts of tasks with their keys."""
    for task in tasks:
        around: KeyPath = ("tasks", task.name) if task.name else ()
        yield (*around, "run"), task.run
        yield (*around, "resume"), f"{task.resume}\n{task.resume_args}"


def _only_task(source_map: SourceMap, layers: Sequence[ModePart], job: Job) -> Task:
    run = _last(layers, "run") or ""
    resume, resume_args = read_resume(source_map, layers, run)
    return Task(
        run=run,
        resume=resume,
        resume_args=resume_args,
        outputs=_output_folders(said := _last(layers, "outputs") or ()),
        output_patterns=tuple(filter(has_wildcard, said)),
        checkpoints=_last(layers, "checkpoints") or "",
        supervisor=job.supervisor,
        expect=job.expect,
    )


def _output_folders(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the folders of outputs: of patterns, the outermost folders that have no wildcard."""
    bases = dict.fromkeys(literal_folder(path) for path in outputs if has_wildcard(path))
    outer = [base for base in bases if not any(base.startswith(f"{other}/") for other in bases)]
    return (*(path for path in outputs if not has_wildcard(path)), *outer)


def _refuse_both(source_map: SourceMap, layers: Sequence[ModePart]) -> None:
    for key in ("run", "resume"):
        if _last(layers, key) is not None:
            raise source_map.refusal(
                (key,),
                "this can't be beside `tasks`",
                why="it is for a job with one command",
                fix=f"make it the `{key}` of a task",
            )


def _named_task(source_map: SourceMap, name: str, parts: Sequence[TaskPart], job: Job, whole: Task) -> Task:
    run = _last(parts, "run") or ""
    if not run.strip():
        raise source_map.refusal(("tasks", name), "this task has no `run`", fix="write the script that it runs")
    resume, resume_args = read_resume(source_map, parts, run, ("tasks", name))
    outputs, checkpoints = _last(parts, "outputs"), _last(parts, "checkpoints")
    return Task(
        name=name,
        run=run,
        resume=resume,
        resume_args=resume_args,
        gpus=_last(parts, "gpus"),
        cpus=_last(parts, "cpus"),
        after=_last(parts, "after") or "",
        nodes=_last(parts, "nodes") or Nodes.ALL,
        envs=_envs(source_map, name, parts, job),
        outputs=whole.outputs if outputs is None else _output_folders(outputs),
        output_patterns=whole.output_patterns if outputs is None else tuple(filter(has_wildcard, outputs)),
        checkpoints=whole.checkpoints if checkpoints is None else checkpoints,
        supervisor=_supervisor(job.supervisor, parts),
        expect=_expect(job.expect, parts),
    )


def _last(layers: Sequence[ModePart | TaskPart], field: str) -> Any:
    said = [getattr(layer, field) for layer in layers]
    return next((value for value in reversed(said) if value is not None), None)


def _envs(source_map: SourceMap, name: str, parts: Sequence[TaskPart], job: Job) -> tuple[tuple[str, str], ...]:
    merged: dict[str, str] = {}
    for part in parts:
        merged |= part.envs or {}
    for variable in merged:
        if variable in job.from_shell:
            why, fix = "its value comes from this shell, for all tasks", "remove one of the two"
        elif variable == TORCH_WHEEL:
            why, fix = "all tasks of a machine have the same torch", "write it under the job's `envs`"
        else:
            continue
        raise source_map.refusal(("tasks", name, "envs", variable), "a task can't set this", why=why, fix=fix)
    return tuple(merged.items())


def _supervisor(whole: SupervisorSpec, parts: Sequence[TaskPart]) -> SupervisorSpec:
    for part in parts:
        whole = replace(whole, **part.supervisor.given()) if part.supervisor else whole
    return whole


def _expect(whole: Expect, parts: Sequence[TaskPart]) -> Expect:
    """Merge what is expected; the job's duration is that of the whole run, and so not that of a task."""
    expect = replace(whole, duration=None)
    for part in parts:
        expect = replace(expect, **part.expect.given()) if part.expect else expect
    return expect


def _refuse_overlaps(source_map: SourceMap, job: Job, task: Task) -> None:
    around: KeyPath = ("tasks", task.name) if task.name else ()
    volumes = [("volumes", volume.target) for volume in job.resources.volumes]
    data = [("data", mount.target) for mount in job.data]
    beside = [("data", mount.target) for mount in job.data if not job.is_on_volume(mount)]
    results = [("outputs", folder) for folder in task.outputs]
    results += [("checkpoints", task.checkpoints)] if task.checkpoints else []
    if overlap := find_overlap([*data, *results]) or find_overlap([*beside, *volumes, *results]):
        key, inner, outer = overlap
        raise source_map.refusal(
            (*around, key) if key in ("outputs", "checkpoints") else (key,),
            f"{quoted(inner)} and {quoted(outer)} overlap",
            why="each needs its own folder on the machine; data may be inside a volume, in a folder of its own",
            fix="name only the outer one, or choose separate folders",
        )
