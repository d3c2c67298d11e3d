"""`start`: reads a run's configuration from standard input, and starts its tasks' runners under their supervisor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import state
from ..base.config import (
    TaskContext,
    earlier_modes,
    list_tasks,
    mode_title,
    open_task,
    open_tasks,
    present_log,
    present_mode,
    write_earlier_modes,
    write_run_config,
)
from ..base.errors import AgentError, RequestError
from ..base.files import locked
from ..base.layout import Layout
from ..base.parse import parse_run_config
from ..base.polling import poll_until
from ..base.runlog import RunLog
from ..base.state import State
from ..base.wire import IDLE, SUCCEEDED, WAITING, Command, ModeReport, RunConfig
from ..code.links import link_data, link_results
from ..code.releases import current_or_empty
from .supervisors import open_supervisor

if TYPE_CHECKING:
    import argparse

_LIMIT_BYTES = 4 << 20
_LOCK_SECONDS = 60.0
_RUNNER_SECONDS = 30.0
_EARLIER = "on an earlier machine"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--task`."""
    parser.add_argument("--task", action="append", default=[], help="a task to start; all, if none is named")


def execute(layout: Layout, args: argparse.Namespace | None = None) -> int:
    """Start the run from standard input, and print its state. A live task is left alone."""
    raw = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
    if len(raw) > _LIMIT_BYTES:
        raise RequestError("the run's configuration is too long", why=f"more than {_LIMIT_BYTES} bytes")
    config = parse_run_config(raw)
    state.print_command(start(layout, config, args.task if args else ()))
    return 0


def start(layout: Layout, config: RunConfig, names: Sequence[str] = ()) -> Command:
    """Start runners under their supervisor; return the state of all tasks together. Live tasks are left alone.

    Args:
        layout: the machine's paths.
        config: the run.
        names: the tasks to start; without names all that haven't succeeded on an earlier machine. One that comes after
            another task is started by the watch.

    Raises:
        RequestError: there is no such supervisor or task, or a task that the configuration hasn't is still live.
        AgentError: the supervisor refuses, or no runner appeared.
    """
    layout.prepare()
    with locked(layout.lock("start"), timeout=_LOCK_SECONDS):
        names = names or [task.name for task in config.tasks if task.name not in config.done]
        chosen = [open_task(layout, config, name) for name in names]
        starting = [context for context in chosen if not _is_at_work(state.load(context.task))]
        if not starting:
            sys.stderr.write("the command is already running; nothing was changed\n")
        else:
            _refuse_another_mode(layout, config)
            _start(layout, config, starting)
        return state.observe_run(layout).command


def relaunch(context: TaskContext) -> None:
    """Replace a dead runner by a new one, which makes the next attempt, or start the first one of a waiting task.

    Raises:
        AgentError: the supervisor refuses, or no runner appeared.
    """
    with locked(context.layout.lock("start"), timeout=_LOCK_SECONDS):
        present = state.load(context.task)
        if present.command.is_live and not present.runner_lives:
            _supervise(context)
            _await_runner(context, present)


def enter_mode(layout: Layout, config: RunConfig) -> None:
    """Make a mode the present one, with all of its tasks waiting; the watch starts them, as after an interruption."""
    with locked(layout.lock("start"), timeout=_LOCK_SECONDS):
        if present_mode(layout)[0] >= config.sequence:
            return
        for context in open_tasks(layout, config):
            _reset(context, waits=f"starts after {context.config.after}" if context.config.after else "starts next")
        _take_up(layout, config)


def _is_at_work(present: State) -> bool:
    return present.command.is_live and (present.runner_lives or not present.needs_runner)


def _refuse_another_mode(layout: Layout, config: RunConfig) -> None:
    """Refuse to leave live tasks behind that the configuration hasn't, which nobody would watch any more.

    They are of another mode, or were removed from the job. A run doesn't go back to an earlier mode either.
    """
    sequence, mode = present_mode(layout)
    if sequence > config.sequence:
        raise RequestError(
            f"the run is in a later mode already: {mode or 'without a name'}", fix="give the command again"
        )
    is_another = sequence < config.sequence
    left = [
        name
        for name, task in list_tasks(layout).items()
        if (is_another or config.task(name) is None) and _is_at_work(state.load(task))
    ]
    if left:
        what = (
            "the command of another mode is still running" if is_another else "a task that the job no longer has runs"
        )
        raise RequestError(f"{what}{f': {left[0]}' if left[0] else ''}", fix="stop it first")


def _start(layout: Layout, config: RunConfig, starting: Sequence[TaskContext]) -> None:
    for context in starting:
        # Refused before anything is changed.
        open_supervisor(context)
        # A killed runner leaves processes; a runner that ended by itself doesn't.
        state.end_processes(state.load(context.task))
    _take_up(layout, config)
    release = current_or_empty(layout)
    link_data(layout, config, release)
    for name in config.done:
        _take_as_done(open_task(layout, config, name))
    names = [context.config.name for context in starting]
    first = [(context, _reset(context, waits=_why_wait(context, names))) for context in starting]
    first = [(context, before) for context, before in first if before.command.state != WAITING]
    for context, _ in first:
        if not context.task.key:
            link_results(context.task, context.config, release)
        _supervise(context)
    for context, before in first:
        _await_runner(context, before)


def _take_up(layout: Layout, config: RunConfig) -> None:
    """Make a configuration the present one; if that begins another mode, record how the one before has ended."""
    sequence, mode = present_mode(layout)
    is_another = layout.run_file.exists() and sequence < config.sequence
    command = state.together(state.observe(task).command for task in list_tasks(layout).values())
    if is_another:
        before = [each for each in earlier_modes(layout) if each.sequence < sequence]
        write_earlier_modes(layout, [*before, ModeReport(sequence, mode, command)])
    write_run_config(layout, config)
    if is_another:
        present_log(layout).parent.mkdir(parents=True, exist_ok=True)
        began, left = mode_title(config.sequence, config.mode), mode_title(sequence, mode)
        RunLog(lambda: present_log(layout)).remark(f"mode {began} begins; mode {left} has ended: {command.state}")


def _reset(context: TaskContext, *, waits: str) -> State:
    """Write the state before a task's first attempt; `waits` says for what it has to wait, if it does."""
    config, task = context.config, context.task
    task.prepare()
    task.note("stop").unlink(missing_ok=True)
    before = state.fresh(config.supervisor, config.restarts, config.grace)
    if waits:
        before = before.turned(WAITING, reason=waits)
    with state.changing(task):
        state.save(task, before)
    return before


def _why_wait(context: TaskContext, starting: Sequence[str]) -> str:
    """Name the task to wait for, which has not succeeded yet or is started again; empty for none."""
    after = context.config.after
    if not after:
        return ""
    before = state.load(open_task(context.layout, context.run, after).task).command.state
    return f"starts after {after}" if after in starting or before != SUCCEEDED else ""


def _take_as_done(context: TaskContext) -> None:
    context.task.prepare()
    with state.changing(context.task):
        if state.load(context.task).command.state == IDLE:
            idle = state.fresh(context.config.supervisor, context.config.restarts, context.config.grace)
            state.save(context.task, idle.turned(SUCCEEDED, reason=_EARLIER))


def _supervise(context: TaskContext) -> None:
    named = ["--task", context.config.name] if context.config.name else []
    open_supervisor(context).start([str(context.layout.launcher), "run", *named])


def _await_runner(context: TaskContext, before: State) -> None:
    def has_appeared() -> bool:
        return state.load(context.task).runner_identity != before.runner_identity

    if not poll_until(has_appeared, seconds=_RUNNER_SECONDS):
        raise AgentError(
            f"the runner did not appear within {_RUNNER_SECONDS:g} s",
            why=f"{context.config.supervisor} was started, but no runner",
            fix=f"see {context.layout.root}/nohup.log, or run `kedge-agent run` by hand",
        )
