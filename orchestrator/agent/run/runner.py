"""`run`: the runner, which runs the command from its first attempt to its end, under a supervisor."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import time
from pathlib import Path

from ..base import processes, state
from ..base.config import read_run_config
from ..base.errors import AgentError
from ..base.files import read_json, try_lock, write_atomically, write_json
from ..base.layout import Layout
from ..base.parse import read_machine_config
from ..base.polling import poll_until
from ..base.runlog import RunLog
from ..base.state import RUNNER_DIED, State
from ..base.wire import FAILED, RESTARTING, RUNNING, SETTING_UP, STOPPED, STOPPING, SUCCEEDED, RunConfig
from ..code import releases
from ..code.links import apply_links
from ..python.job_env import ensure_job_environment, read_job_environment
from ..python.setup_check import find_damage, setup_key, trace
from ..results.attempt import Resumption, record_attempt
from ..results.left_behind import keep_left_behind, time_to_keep
from ..results.restore import restore
from .caches import restore_caches
from .environment import make_environment
from .pump import Echo
from .resume import prepare_attempt
from .script import Script
from .signals import Signals

_SAVE_SECONDS = 30.0
_STORE_AGAIN_SECONDS = 2.0
# How long to wait for an unreachable store, at most this share of the machine's lifetime; then the run fails.
_STORE_MOST_SECONDS = 300.0
_STORE_SHARE = 0.1
_NOT_STARTED = 126
_DOING = {"fetch": "fetching data", "setup": "setting up"}


def execute(layout: Layout) -> int:
    """Run the command to its end; 0 if it succeeded or was stopped.

    Raises:
        AgentError: it is already running.
    """
    layout.prepare()
    if try_lock(layout.lock("runner")) is None:
        raise AgentError("the command is already running", fix="see it with `kedge-agent report`")
    before = state.load(layout)
    if before.command.is_over:
        # A unit that is enabled at boot gets here after the run is over.
        sys.stderr.write(f"the command is over ({before.command.state}); `kedge-agent start` starts it again\n")
        return 0
    return Runner(layout, read_run_config(layout), before).work()


class Runner:
    """Runs attempts with pauses between them, and handles a stop request."""

    def __init__(self, layout: Layout, config: RunConfig, before: State) -> None:
        self._layout = layout
        self._machine = read_machine_config(layout)
        self._config = config
        self._before = before
        self._log = RunLog(layout.log_file)
        self._echo = Echo()
        self._signals = Signals()
        self._saved = True
        self._failure = RUNNER_DIED
        # True if the command was started under an earlier runner that has died.
        self._has_begun = bool(before.release)
        self._resumption = Resumption()
        lifetime = self._machine.deadline_at - self._machine.created
        self._store_until = time.monotonic() + min(_STORE_MOST_SECONDS, lifetime * _STORE_SHARE)
        pid = os.getpid()
        self._state = before.replace(runner=pid, runner_identity=processes.identify(pid), mark=secrets.token_hex(16))

    def work(self) -> int:
        """Make attempts until one succeeds, the run is stopped, or too many have failed."""
        self._signals.install()
        processes.adopt_orphans()
        if self._before.command.is_live:
            state.end_processes(self._before)
        outcome = self._work()
        if not poll_until(self._save, seconds=_SAVE_SECONDS, every=0.5):
            raise AgentError("the command's last state could not be written", why="is the disk full?")
        return 1 if outcome == FAILED else 0

    def _work(self) -> str:
        if self._before.has_succeeded:
            return self._finish(SUCCEEDED, "")
        while self._may_attempt():
            code = self._attempt()
            self._state = self._state.replace(command=self._state.command.replace(exit_code=code))
            if code != 0 and not self._signals.stop:
                self._remark(self._failure)
                self._pause()
            if self._signals.stop:
                return self._finish(STOPPED, self._stop_reason())
            if code == 0:
                # Recorded now, so that a runner that dies before the end doesn't run the command again.
                self._saved = False
                self._save()
                return self._finish(SUCCEEDED, "")
        return self._finish(FAILED, f"{self._failure}, attempt {self._progress()}")

    def _may_attempt(self) -> bool:
        return self._state.command.attempt <= self._config.restarts

    def _attempt(self) -> int:
        command = self._state.command
        started = command.started or time.time()
        command = command.replace(attempt=command.attempt + 1, started=started)
        self._state = self._state.replace(command=command)
        self._turn(SETTING_UP, "preparing")
        if self._layout.note("stop").exists():
            # Requested while no runner was alive; from now on requests come as signals.
            self._signals.stop = self._signals.stop or "stop"
            return _NOT_STARTED
        try:
            return self._run_scripts()
        except (AgentError, OSError) as err:
            self._failure = f"could not start: {err}".replace("\n", ";")
            return _NOT_STARTED

    def _run_scripts(self) -> int:
        self._restore()
        release = releases.current_or_empty(self._layout)
        if self._state.release != release.name:
            # New code was sent since the last attempt. This is the last scan of that attempt's folder.
            self._keep_left_behind()
        self._state = self._state.replace(release=release.name)
        releases.unshare_files(release)
        apply_links(self._layout, self._config, release)
        self._resumption = prepare_attempt(self._layout, self._machine, self._config, self._remark, self._signals)
        self._layout.notice_file.unlink(missing_ok=True)
        self._prepare_python()
        code = self._fetch_data(release) or self._set_up(release)
        if code != 0 or self._signals.stop:
            return code
        if remark := self._resumption.remark(self._config):
            self._remark(remark)
        record_attempt(self._layout, self._resumption)
        self._remark(f"started, attempt {self._progress()}")
        self._has_begun = True
        code = self._script("command", self._resumption.command(self._config), release, RUNNING)
        self._failure = f"exit code {code}"
        return code

    def _restore(self) -> None:
        """Restore results; wait a while for an unreachable store, without counting it as an attempt."""
        is_told = False
        while True:
            try:
                restore(self._layout, self._machine, self._log, is_unwanted=lambda: bool(self._signals.stop))
                break
            except OSError as err:
                if self._signals.stop or time.monotonic() + _STORE_AGAIN_SECONDS > self._store_until:
                    raise
                if not is_told:
                    is_told = True
                    self._await_store(str(err).replace("\n", ";"))
            self._signals.wait(_STORE_AGAIN_SECONDS)
        if not self._signals.stop:
            restore_caches(self._layout, self._machine, self._log)

    def _await_store(self, why: str) -> None:
        self._remark(f"the store's results can't be restored yet: {why}")
        self._turn(SETTING_UP, f"waiting for the store: {why}")

    def _fetch_data(self, release: Path) -> int:
        """Fetch data in a process of its own, so that a stop ends it at once."""
        if not self._config.sources or self._signals.stop:
            return 0
        code = self._script("fetch", f"exec {shlex.quote(str(self._layout.launcher))} fetch-data", release, SETTING_UP)
        if code != 0:
            reason = read_json(self._layout.note("fetch")).get("error") or f"exit code {code}"
            self._failure = f"the data could not be fetched: {reason}"
        return code

    def _prepare_python(self) -> None:
        """Make the environment for `setup` to install into; if that fails, the command uses the image's Python.

        With provider local it must exist, because the command would find the user's own Python, or kedge's.
        """
        python, with_pip = self._config.python, bool(self._config.setup.strip())
        try:
            ensure_job_environment(self._layout, self._machine, python=python, with_pip=with_pip)
        except (AgentError, OSError) as err:
            if python and read_job_environment(self._layout) is None:
                raise
            self._remark(f"setup can't install Python packages: {err}".replace("\n", ";"))

    def _set_up(self, release: Path) -> int:
        marker = self._layout.note("setup")
        made = read_job_environment(self._layout)
        key = setup_key(release.name, self._config.setup, made)
        if not self._config.setup.strip() or read_json(marker).get("done") == key:
            return 0
        self._remark("setting up")
        code = self._script("setup", self._config.setup, release, SETTING_UP)
        self._failure = f"setup failed with exit code {code}"
        if code != 0 or self._signals.stop:
            return code
        if damage := find_damage(self._layout, made, self._config.setup):
            self._failure = f"setup broke torch for the GPUs: {damage}"
            return 1
        write_json(marker, {"done": key}, durable=True)
        return 0

    def _script(self, name: str, text: str, release: Path, turned_to: str) -> int:
        path = self._layout.root / f"{name}.sh"
        write_atomically(path, text.encode(errors="surrogateescape"), mode=0o600)
        env, remarks = make_environment(self._layout, self._machine, self._config, self._state.mark, self._resumption)
        if self._signals.stop:
            return 0
        if turned_to == RUNNING:
            for remark in remarks:
                self._remark(remark)
        if name == "setup":
            env = trace(self._layout, env)
        script = Script(path, folder=release.resolve(), env=env, log=self._log, echo=self._echo)
        identity = processes.identify(script.group)
        self._state = self._state.replace(group=script.group, group_identity=identity)
        self._turn(turned_to, _DOING.get(name, ""))
        return script.wait(self._signals, self._on_stop, self._config.grace)

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
        reason = self._stop_reason()
        self._remark(f"asked to stop: {reason}; it has {self._config.grace:g} s to checkpoint")
        self._turn(STOPPING, reason)

    def _stop_reason(self) -> str:
        return str(read_json(self._layout.note("stop")).get("reason") or self._signals.stop)

    def _keep_left_behind(self) -> None:
        """Copy files that the command wrote outside its outputs; a failure doesn't change the command's outcome."""
        release = self._layout.releases / self._state.release
        if not self._has_begun or not self._state.release or not release.is_dir() or release.is_symlink():
            return
        until = time_to_keep(self._layout, self._machine, self._config.grace, is_stopped=bool(self._signals.stop))
        try:
            remark = keep_left_behind(self._layout, self._machine, self._config, release, until)
        except (OSError, AgentError) as err:
            remark = f"files written outside `outputs` were not copied: {err}".replace("\n", ";")
        if remark:
            self._remark(remark)

    def _finish(self, outcome: str, reason: str) -> str:
        # Before the state changes, because whoever sees that it is over must find all results and the whole log.
        self._keep_left_behind()
        self._remark(f"{outcome}: {reason}" if reason else outcome)
        self._turn(outcome, reason)
        return outcome

    def _progress(self) -> str:
        return f"{self._state.command.attempt} of {self._config.restarts + 1}"

    def _remark(self, text: str) -> None:
        self._log.remark(text)
        self._echo.write(f"[kedge] {text}\r\n".encode(errors="surrogateescape"))

    def _turn(self, turned_to: str, reason: str) -> None:
        self._state = self._state.turned(turned_to, reason=reason)
        self._saved = False
        self._save()

    def _save(self) -> bool:
        """Write the state if it isn't written yet; on a full disk retry later, because the command must go on."""
        if not self._saved:
            try:
                with state.changing(self._layout):
                    state.save(self._layout, self._state)
            except (OSError, AgentError) as err:
                sys.stderr.write(f"the state could not be written: {err}\n")
                return False
            self._saved = True
        return True
