"""Writes and reads the run's configuration; the secrets are in a file of their own that only the user can read.

The configuration says which tasks the machine has now, and where the files of each are. A run may have several modes,
one after the other: the present one is in run.json, those that follow are in later.json, and gate.json says
why the next one doesn't begin yet.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .errors import RequestError
from .files import read_json, write_json
from .layout import Layout, TaskLayout
from .parse import build, parse_run_config, read_machine_config
from .record import Record, to_json
from .wire import Command, MachineConfig, ModeReport, RunConfig, TaskConfig

if TYPE_CHECKING:
    import argparse

T = TypeVar("T")
GATE = "gate"
_EARLIER = "modes"
_OF_GROUP = "kedge token"
"""The key of the run's token among the secrets; no variable is called so."""


class TaskContext(Record):
    """A task of the run, with everything that its runner needs to know."""

    task: TaskLayout
    machine: MachineConfig
    run: RunConfig
    config: TaskConfig

    @property
    def layout(self) -> Layout:
        """The machine's paths."""
        return self.task.machine

    @property
    def of_machine(self) -> TaskContext:
        """The same for what is done once for all: without the task's own variables and its part of the machine."""
        return self.replace(config=self.config.replace(envs={}, gpus=None, cpus=None, port=0))


def write_run_config(layout: Layout, config: RunConfig) -> None:
    """Write secrets.json, run.json and later.json; the second one makes its mode the present one.

    later.json comes last: before, it has the mode itself, which a run that is killed in between has yet to begin.
    """
    later = [to_json(_without_values(each)) for each in config.then]
    secrets = {name: text for each in (*config.then, config) for name, text in each.secrets.items()}
    if config.token:
        secrets[_OF_GROUP] = config.token
    # The job's variables may be private too, even if they aren't declared as secrets.
    write_json(layout.secrets_file, secrets, mode=0o600, durable=True)
    write_json(layout.run_file, to_json(_without_values(config.replace(then=()))), mode=0o600, durable=True)
    write_json(layout.later_file, {"modes": later}, mode=0o600, durable=True)


def _without_values(config: RunConfig) -> RunConfig:
    """Keep only the names of the secrets that this mode may have."""
    return config.replace(secrets=dict.fromkeys(config.secrets, ""), token="")


def read_run_config(layout: Layout) -> RunConfig:
    """Read both files.

    Raises:
        RequestError: no run was started on this machine yet.
    """
    content = read_json(layout.run_file)
    if not content:
        raise RequestError("there is no run on this machine", fix="start one with `kedge launch` or `kedge start`")
    return _parse(layout, content)


def read_next_mode(layout: Layout) -> RunConfig | None:
    """Return the mode that follows the present one, with those after it; None if there is none."""
    rows = read_json(layout.later_file).get("modes")
    present = read_json(layout.run_file).get("sequence", 0)
    later = [row for row in rows if row.get("sequence", 0) > present] if isinstance(rows, list) else []
    if not later:
        return None
    first, *then = [_parse(layout, row) for row in later]
    return first.replace(then=tuple(then))


def _parse(layout: Layout, content: dict[str, Any]) -> RunConfig:
    secrets = read_json(layout.secrets_file)
    content["token"] = secrets.get(_OF_GROUP, "")
    content["secrets"] = {name: secrets[name] for name in content.get("secrets", ()) if name in secrets}
    return parse_run_config(json.dumps(content).encode())


def present_mode(layout: Layout) -> tuple[int, str]:
    """Return how many modes the run has had before the present one, and its name."""
    content = read_json(layout.run_file)
    sequence = content.get("sequence")
    return sequence if isinstance(sequence, int) else 0, str(content.get("mode") or "")


def of_one_mode(layout: Layout, read: Callable[[], T]) -> T:
    """Return what a function reads of the present mode; it reads again if another mode has begun meanwhile.

    Otherwise the new mode would seem to have succeeded, as the one before has.
    """
    while True:
        before = present_mode(layout)
        found = read()
        if present_mode(layout) == before:
            return found


def earlier_modes(layout: Layout) -> tuple[ModeReport, ...]:
    """List the modes that the run has left, with how each ended."""
    return parse_modes(read_json(layout.note(_EARLIER)).get("modes"))


def parse_modes(rows: object) -> tuple[ModeReport, ...]:
    """Parse a list of modes that a run has left; invalid ones are left out."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(RequestError, TypeError, AttributeError):
            found.append(ModeReport(int(row["sequence"]), str(row["mode"]), build(Command, row["command"])))
    return tuple(found)


def write_earlier_modes(layout: Layout, modes: Sequence[ModeReport]) -> None:
    """Write the list of the modes that the run has left."""
    write_json(layout.note(_EARLIER), {"modes": [to_json(mode) for mode in modes]}, durable=True)


def peek_run_config(layout: Layout) -> RunConfig | None:
    """Read both files; None if there is no run, or it can't be read."""
    try:
        return read_run_config(layout)
    except RequestError:
        return None


class GateNote(NamedTuple):
    """Why the next mode of a run with several machines doesn't begin yet, or any more (watch/mode_gate.py).

    Attributes:
        sequence: of the mode that has to end before.
        state: how the run has ended; empty if it hasn't.
        since: when this was noted, in Unix seconds.
    """

    sequence: int = -1
    state: str = ""
    reason: str = ""
    since: float = 0.0


def read_gate(layout: Layout) -> GateNote:
    """Read it; nothing holds the next mode back if there is none."""
    content = read_json(layout.note(GATE))
    return GateNote(**{name: content[name] for name in GateNote._fields if name in content})


def list_tasks(layout: Layout) -> dict[str, TaskLayout]:
    """Return where the files of the run's present tasks are, by their names; a machine without a run has one task."""
    content = read_json(layout.run_file)
    rows = content.get("tasks")
    names = [str(row.get("name", "")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {name: layout.task(task_key(content, name)) for name in names or [""]}


def present_log(layout: Layout) -> Path:
    """Return the machine's log: that of the run's present mode, and of its only task if it has one without a name."""
    return layout.task(task_key(read_json(layout.run_file), "")).log_file


def configure_tasks(parser: argparse.ArgumentParser) -> None:
    """Add `--task`."""
    parser.add_argument("--task", action="append", default=[], help="one of several tasks; all, if none is named")


def choose_tasks(layout: Layout, names: Sequence[str]) -> dict[str, TaskLayout]:
    """Return these of the run's present tasks, or all of them if no name is given.

    Raises:
        RequestError: there is no such task.
    """
    present = list_tasks(layout)
    for name in names:
        if name not in present:
            known = ", ".join(filter(None, present)) or "none has a name"
            raise RequestError(f"the run has no task {name!r}", why=f"its tasks: {known}")
    return {name: task for name, task in present.items() if not names or name in names}


def open_task(layout: Layout, run: RunConfig, name: str) -> TaskContext:
    """Return a task of a run's configuration.

    Raises:
        RequestError: there is no such task.
    """
    config = run.task(name)
    if config is None:
        known = ", ".join(filter(None, (task.name for task in run.tasks))) or "none has a name"
        raise RequestError(f"the run has no task {name!r}", why=f"its tasks: {known}")
    return _context(layout, read_machine_config(layout), run, config)


def open_tasks(layout: Layout, run: RunConfig) -> list[TaskContext]:
    """Return all tasks of a run's configuration."""
    machine = read_machine_config(layout)
    return [_context(layout, machine, run, config) for config in run.tasks]


def _context(layout: Layout, machine: MachineConfig, run: RunConfig, config: TaskConfig) -> TaskContext:
    key = task_key({"sequence": run.sequence, "mode": run.mode}, config.name)
    return TaskContext(layout.task(key), machine, run, config)


def mode_title(sequence: int, mode: str) -> str:
    """Return the name of one of several modes, such as `2-fast`, which is also the folder of a later one."""
    return f"{sequence + 1}-{mode or 'run'}"


def task_key(config: Mapping[str, Any], name: str) -> str:
    """Return a task's key; a later mode's tasks have folders of their own (`2-fast/voxel`)."""
    sequence = config.get("sequence")
    number = sequence if isinstance(sequence, int) else 0
    parts = [mode_title(number, str(config.get("mode") or ""))] if number > 0 else []
    return "/".join([*parts, *filter(None, [name])])
