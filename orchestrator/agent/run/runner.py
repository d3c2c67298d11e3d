"""A task's runner, which runs its command from the first attempt to its end, under a supervisor."""

from __future__ import annotations

import time
from pathlib import Path

from ..base import processes, state
from ..base.config import TaskContext
from ..base.errors import AgentError
from ..base.files import read_json, write_atomically
from ..base.parse import read_machine_config
from ..base.state import RUNNER_DIED, State
from ..base.wire import FAILED, RESTARTING, RUNNING, SETTING_UP, STOPPED, STOPPING, SUCCEEDED
from ..code.links import link_results
from ..code.working_folder import fill_working_folder, working_folder
from ..nodes.group import group_of
from ..nodes.meeting import Meeting
from ..nodes.messages import GatheringError, Hooks
from ..python.setup_check import trace
from ..python.setup_step import last_setup
from ..results.attempt import Resumption, record_attempt
from ..results.left_behind import keep_left_behind, time_to_keep
from ..results.parts import Hooks as PartsHooks
from ..waiting.leader import Leader
from ..waiting.signals import Signals
from ..waiting.slim import become_slim
from .control import request_stop, seconds_left
from .cores import pin_cores
from .environment import make_environment, write_shell
from .preparing import Preparation, PreparationError
from .resume import agree_on_start, prepare_attempt
from .script import Script, start_script
from .state_writer import StateWriter

_NOT_STARTED = 126
_DOING = {"fetch": "fetching data", "setup": "setting up"}


class Runner:
    """Runs attempts with pauses between them, and handles a stop request."""

    def __init__(self, context: TaskContext, before: State, signals: Signals, lock: int) -> None:
        self._context = context
        self._task = context.task
        self._config = context.config
        self._before = before
        self._signals = signals
        self._lock = lock
        self._writer = StateWriter(context.task, before)
        self._remark = self._writer.remark
        self._turn = self._writer.turn
        self._preparation = Preparation(context, self._writer, self._signals, self._script)
        self._meeting = Meeting(group_of(context), self._hooks())
        self._failure = RUNNER_DIED
        # True if a further attempt wouldn't help.
        self._is_final = False
        # True if the command was started under an earlier runner that has died.
        self._has_begun = bool(before.release)
        self._resumption = Resumption()

    def work(self) -> int:
        """Make attempts until one succeeds, the run is stopped, or too many have failed."""
        self._signals.install()
        processes.adopt_orphans()
        if self._before.command.is_live:
            state.end_processes(self._before)
        return self._conclude(self._work())

    def go_on(self, leader: Leader) -> int:
        """Go on with the present attempt, whose command is running or has just ended."""
        script = Script(leader, self._signals)
        code = self._end_together(script.wait(self._on_stop, self._config.grace))
        return self._conclude(self._judge(code) or self._work())

    def _conclude(self, outcome: str) -> int:
        self._writer.finish()
        return 1 if outcome == FAILED else 0

    def _hooks(self) -> Hooks:
        def stop(reason: str) -> None:
            request_stop(self._task, reason)

        return Hooks(
            tell=self._remark,
            wait=lambda reason: self._turn(self._state.command.state, reason),
            is_unwanted=lambda: bool(self._signals.stop),
            stop=stop,
            abort=self._signals.ask_to_abort,
        )

    @property
    def _state(self) -> State:
        return self._writer.state

    def _work(self) -> str:
        if self._before.has_succeeded:
            return self._finish(SUCCEEDED, "")
        while self._may_attempt():
            if outcome := self._judge(self._attempt()):
                return outcome
        return self._finish(FAILED, f"{self._failure}, attempt {self._progress()}")

    def _judge(self, code: int) -> str:
        """Finish the run after an attempt, and return its outcome; empty if another attempt may follow."""
        self._writer.change_command(exit_code=code)
        if code != 0 and not self._signals.stop:
            self._remark(self._failure)
            self._pause()
        if self._signals.stop:
            return self._finish(STOPPED, self._stop_reason())
        if code == 0:
            # Recorded now, so that a runner that dies before the end doesn't run the command again.
            self._writer.write()
            return self._finish(SUCCEEDED, "")
        return ""

    def _may_attempt(self) -> bool:
        return self._attempts_left() > 0 and not self._is_final

    def _attempts_left(self) -> int:
        return self._attempts() - self._state.command.attempt

    def _attempts(self) -> int:
        return self._config.restarts + 1 + self._meeting.extra_attempts

    def _attempt(self) -> int:
        # The deadline may have been moved since the last attempt.
        self._context = self._context.replace(machine=read_machine_config(self._context.layout))
        self._signals.abort = ""
        command = self._state.command
        self._writer.change_command(attempt=command.attempt + 1, started=command.started or time.time())
        self._turn(SETTING_UP, "preparing")
        if self._task.note("stop").exists():
            # Requested while no runner was alive; from now on requests come as signals.
            self._signals.stop = self._signals.stop or "stop"
            return _NOT_STARTED
        try:
            with self._preparation.turn() as is_ours:
                folder = self._prepare() if is_ours else None
            if folder and not self._signals.stop:
                self._meet()
            if folder and not self._signals.stop and not self._meeting.broken:
                return self._run(folder)
            return self._end_together(0)
        except PreparationError as err:
            self._failure = str(err)
            return err.code
        except GatheringError as err:
            self._failure, self._is_final = str(err), err.is_final
            return _NOT_STARTED
        except (AgentError, OSError) as err:
            self._failure = f"could not start: {err}".replace("\n", ";")
            # They may have met already; then they would take this machine for lost.
            self._meeting.tell_failed(self._failure, left=self._attempts_left())
            return _NOT_STARTED
        finally:
            self._meeting.end()

    def _prepare(self) -> Path:
        """Prepare the machine, this attempt and its folder, and return the folder."""
        self._preparation.restore()
        release = self._preparation.take_release()
        folder = working_folder(self._task, release)
        if self._state.release != folder.name:
            # New code was sent since the last attempt. This is the last scan of that attempt's folder.
            self._keep_left_behind()
        self._writer.change(release=folder.name)
        if folder == release:
            link_results(self._task, self._config, folder)
        self._resumption = prepare_attempt(self._context, self._remark, self._signals)
        self._task.notice_file.unlink(missing_ok=True)
        self._preparation.set_up(release)
        if folder != release:
            fill_working_folder(self._task, release, folder, setup=last_setup(self._context.layout))
            link_results(self._task, self._config, folder)
        return folder

    def _meet(self) -> None:
        """Wait for the task's other machines, and resume from what they resume from."""
        if not self._meeting.has_others:
            return
        hooks = self._hooks()
        copying = PartsHooks(hooks.tell, hooks.wait, lambda: bool(self._signals.stop or self._meeting.broken))
        self._resumption = agree_on_start(self._context, self._resumption, self._meeting, copying)

    def _run(self, folder: Path) -> int:
        if remark := self._resumption.remark(self._config):
            self._remark(remark)
        record_attempt(self._task, self._resumption)
        self._remark(f"started, attempt {self._progress()}")
        self._has_begun = True
        return self._end_together(self._script("command", self._resumption.command(self._config), folder, RUNNING))

    def _end_together(self, code: int) -> int:
        """Tell the task's other machines how its command has ended; one that has to end with them has failed."""
        self._failure = f"exit code {code}"
        if self._signals.stop:
            self._meeting.tell_stopped(self._stop_reason(), left=self._attempts_left())
            return code
        if code == 0 and not self._meeting.broken:
            self._meeting.tell_succeeded()
        if self._meeting.broken:
            self._failure = self._meeting.broken
            code = code or _NOT_STARTED
        if code:
            self._meeting.tell_failed(self._failure, left=self._attempts_left())
            self._is_final = self._meeting.is_over
        return code

    def _script(self, name: str, text: str, folder: Path, turned_to: str) -> int:
        path = self._task.folder / f"{name}.sh"
        write_atomically(path, text.encode(errors="surrogateescape"), mode=0o600)
        context = self._context if turned_to == RUNNING else self._context.of_machine
        env, remarks = make_environment(context, folder, self._state.mark, self._resumption)
        if self._signals.stop:
            return 0
        if turned_to == RUNNING:
            for remark in remarks:
                self._remark(remark)
            if self._task.key:
                write_shell(context, folder.resolve(), env)
        pin_cores(context)
        if name == "setup":
            env = trace(self._context.layout, env)
        leader = start_script(path, folder=folder.resolve(), env=env, log=self._writer.log, echo=self._writer.echo)
        self._writer.change(group=leader.pid, group_identity=processes.identify(leader.pid))
        self._turn(turned_to, _DOING.get(name, ""))
        if turned_to == RUNNING:
            self._slim_down(leader)
        return Script(leader, self._signals).wait(self._on_stop, self._config.grace)

    def _slim_down(self, leader: Leader) -> None:
        """Give up most of this process's memory while the command runs.

        A task of several machines keeps it: a thread listens to the others, and what it has received so far, who has
        succeeded, and what it was told would be lost with the program. Such a machine rarely has many tasks.
        """
        settled = self._context.machine.sample_every
        while not self._meeting.has_others and self._writer.is_written and not leader.wait(self._signals, settled):
            become_slim(leader, self._signals, self._lock, self._context)

    def _pause(self) -> None:
        if not self._may_attempt():
            return
        pause = self._config.restart_after
        self._remark(f"starting again in {pause:g} s")
        self._turn(RESTARTING, f"{self._failure}; starting again in {pause:g} s")
        resume_at = time.monotonic() + pause
        while not self._signals.stop and time.monotonic() < resume_at:
            self._signals.wait(resume_at - time.monotonic())

    def _on_stop(self) -> None:
        if not self._signals.stop:
            self._remark(f"ending this attempt: {self._signals.abort}")
            self._meeting.tell_failed(self._signals.abort, left=self._attempts_left())
            return
        reason = self._stop_reason()
        self._meeting.tell_stopped(reason, left=self._attempts_left())
        left = seconds_left(self._context.layout, self._config.grace)
        self._remark(f"asked to stop: {reason}; it has {left:g} s to checkpoint")
        self._turn(STOPPING, reason)

    def _stop_reason(self) -> str:
        return str(read_json(self._task.note("stop")).get("reason") or self._signals.stop)

    def _keep_left_behind(self) -> None:
        """Copy files that the command wrote outside its outputs; a failure doesn't change the command's outcome."""
        layout = self._context.layout
        folder = layout.releases / self._state.release
        if not self._has_begun or not self._state.release or not folder.is_dir() or folder.is_symlink():
            return
        machine = read_machine_config(layout)
        until = time_to_keep(layout, machine, self._config.grace, is_stopped=bool(self._signals.stop))
        try:
            remark = keep_left_behind(self._context, folder, until)
        except (OSError, AgentError) as err:
            remark = f"files written outside `outputs` were not copied: {err}".replace("\n", ";")
        if remark:
            self._remark(remark)

    def _finish(self, outcome: str, reason: str) -> str:
        # Before the state changes, because whoever sees that it is over must find all results and the whole log.
        self._keep_left_behind()
        if outcome == FAILED:
            self._meeting.give_up(reason)
        self._remark(f"{outcome}: {reason}" if reason else outcome)
        self._turn(outcome, reason)
        return outcome

    def _progress(self) -> str:
        return f"{self._state.command.attempt} of {self._attempts()}"
