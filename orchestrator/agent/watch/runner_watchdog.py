"""Watches over the tasks' runners: replaces one that was killed, and starts what comes next.

That is a task that comes after another one, or the run's next mode once all tasks of the present one have succeeded.
"""

from __future__ import annotations

import time

from ..base import state
from ..base.config import TaskContext, open_tasks, peek_run_config, read_next_mode
from ..base.errors import AgentError, RequestError
from ..base.files import locked
from ..base.layout import Layout
from ..base.parse import read_machine_config
from ..base.runlog import RunLog
from ..base.state import RUNNER_DIED, State
from ..base.wire import FAILED, RESTARTING, RUNNING, STOP_ALL, STOPPED, SUCCEEDED, WAITING, Command, RunConfig
from ..nodes.group import group_of, group_of_modes
from ..nodes.meeting import Meeting
from ..nodes.messages import Hooks
from ..run.control import request_stop
from ..run.start import enter_mode, relaunch

_PATIENCE_SECONDS = 1.5
_LOCK_SECONDS = 60.0
_TRIES = 3
"""How often to start a task that waits, before it counts as failed."""


class RunnerWatchdog:
    """Watches the runners of the run's present tasks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._dead_since: dict[str, float] = {}
        self._refusals: dict[str, int] = {}
        self._failures: dict[str, float] = {}
        self._ending: dict[str, float] = {}
        self._why = ""
        self._present: tuple[RunConfig, Command] | None = None

    @property
    def present(self) -> tuple[RunConfig, Command] | None:
        """The run's present mode, and the state of its tasks together at the last look."""
        return self._present

    def step(self) -> None:
        """Look at each task once."""
        run = peek_run_config(self._layout)
        if run is None:
            return
        contexts = open_tasks(self._layout, run)
        seen = {context.config.name: state.load(context.task) for context in contexts}
        for context in contexts:
            present = seen[context.config.name]
            if present.command.state == WAITING:
                self._step_waiting(context, seen[after] if (after := context.config.after) else None)
            else:
                self._step_started(context, present)
        self._apply_on_failure(run, contexts, seen)
        is_over = not any(present.runner_lives for present in seen.values())
        command = state.together(state.load(context.task).command for context in contexts)
        # A runner that still lives has not ended its task.
        self._present = run, command if is_over or not command.is_over else command.replace(state=RUNNING)
        if is_over and command.state == SUCCEEDED:
            self._enter_next_mode(run)

    def _enter_next_mode(self, run: RunConfig) -> None:
        """Begin the mode that follows, unless several machines do that together (mode_gate.py)."""
        following = read_next_mode(self._layout)
        if following is not None and group_of_modes(run, read_machine_config(self._layout)) is None:
            enter_mode(self._layout, following)

    def _step_started(self, context: TaskContext, present: State) -> None:
        """Recover after the runner has been dead for a moment, during which its supervisor may restart it."""
        key = context.task.key
        if not present.needs_runner or present.runner_lives:
            self._dead_since.pop(key, None)
        elif time.monotonic() - self._dead_since.setdefault(key, time.monotonic()) >= _PATIENCE_SECONDS:
            del self._dead_since[key]
            _recover(context)

    def _step_waiting(self, context: TaskContext, before: State | None) -> None:
        """Start a task once the one before it has succeeded; if that one has ended in another way, it ends as well.

        Args:
            context: the task.
            before: the state of the task that comes before it; None for a task that only its mode has kept waiting.
        """
        if before is None or before.command.state == SUCCEEDED:
            self._start(context)
        elif before.command.is_over:
            ending = FAILED if before.command.state == FAILED else STOPPED
            reason = f"{context.config.after} has {_WORDS[ending]}"
            _end_waiting(context, ending, reason)
            _tell_others(context, reason)

    def _start(self, context: TaskContext) -> None:
        """Start a task that waits; after a few failures it has failed, because its machine costs money meanwhile."""
        key = context.task.key
        try:
            relaunch(context)
        except AgentError as err:
            self._refusals[key] = self._refusals.get(key, 0) + 1
            if not isinstance(err, RequestError) and self._refusals[key] < _TRIES:
                raise
            _end_waiting(context, FAILED, f"it could not be started: {err}".replace("\n", ";"))
        self._refusals.pop(key, None)

    def _apply_on_failure(self, run: RunConfig, contexts: list[TaskContext], seen: dict[str, State]) -> None:
        """Stop the tasks that are live when another one fails; one that is started again after it is left alone."""
        failures = {name: each.command.since for name, each in seen.items() if each.command.state == FAILED}
        new = next((name for name, since in failures.items() if self._failures.get(name) != since), None)
        if run.on_failure == STOP_ALL and new is not None:
            # A start may still be on its way.
            with locked(self._layout.lock("start"), timeout=_LOCK_SECONDS):
                commands = {context.config.name: state.load(context.task).command for context in contexts}
            self._ending = {name: command.started for name, command in commands.items() if command.is_live}
            self._why = f"{new} has failed"
        self._failures = failures
        for context in [each for each in contexts if each.config.name in self._ending]:
            command, started = state.load(context.task).command, self._ending[context.config.name]
            if command.is_live and started in (0.0, command.started):
                request_stop(context.task, self._why)
            else:
                del self._ending[context.config.name]


_WORDS = {FAILED: "failed", STOPPED: "been stopped"}


def _tell_others(context: TaskContext, reason: str) -> None:
    """Tell the machines that wait for this one's command; they don't have the task before, if only the head runs it."""
    group, before = group_of(context), context.config.after
    if group is not None and not any(task.port for task in context.run.tasks if task.name == before):
        quiet = Hooks(tell=_ignore, wait=_ignore, is_unwanted=lambda: False, stop=_ignore, abort=_ignore)
        Meeting(group, quiet).give_up(reason)


def _ignore(text: str) -> None:
    del text


def _recover(context: TaskContext) -> None:
    with state.changing(context.task):
        present = state.load(context.task)
        if not present.needs_runner or present.runner_lives:
            return
        after = state.after_runner_death(present, recovers=True)
        state.save(context.task, after)
    RunLog(lambda: context.task.log_file).remark(f"{RUNNER_DIED}; the command is {after.command.state}")
    state.end_processes(present)
    if after.command.state == RESTARTING:
        relaunch(context)


def _end_waiting(context: TaskContext, ending: str, reason: str) -> None:
    with state.changing(context.task):
        present = state.load(context.task)
        if present.command.state != WAITING:
            return
        state.save(context.task, present.turned(ending, reason=reason))
    RunLog(lambda: context.task.log_file).remark(f"{ending}: {reason}")
