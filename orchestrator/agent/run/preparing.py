"""Prepares the machine for a run's tasks: the results of an earlier machine, its data, its Python, `setup`.

One runner prepares it while those of other tasks wait; what has been done already isn't repeated.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ..base.config import TaskContext
from ..base.errors import AgentError
from ..base.files import read_json, try_lock
from ..base.wire import SETTING_UP
from ..code import releases
from ..code.links import link_data
from ..python.job_env import ensure_job_environment, read_job_environment
from ..python.setup_check import find_damage
from ..python.setup_step import SetupStep
from ..results.restore import restore
from ..waiting.signals import Signals
from .caches import restore_caches
from .state_writer import StateWriter

_STORE_AGAIN_SECONDS = 2.0
# How long to wait for an unreachable store, at most this share of the machine's lifetime; then the run fails.
_STORE_MOST_SECONDS = 300.0
_STORE_SHARE = 0.1
_TURN_SECONDS = 0.2


class RunScript(Protocol):
    """Runs a script, and returns its exit code."""

    def __call__(self, name: str, text: str, folder: Path, turned_to: str) -> int:
        """Run it in a folder, with a state in which the command is meanwhile."""


class PreparationError(Exception):
    """A preparation has failed with an exit code; its text says what has failed."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Preparation:
    """The preparations of one runner."""

    def __init__(self, context: TaskContext, writer: StateWriter, signals: Signals, run_script: RunScript) -> None:
        self._layout = context.layout
        self._machine = context.machine
        self._config = context.run
        self._writer = writer
        self._signals = signals
        self._run_script = run_script
        lifetime = self._machine.deadline_at - self._machine.created
        self._store_until = time.monotonic() + min(_STORE_MOST_SECONDS, lifetime * _STORE_SHARE)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Wait until no other task's runner prepares the machine, and keep others waiting; False after a stop."""
        is_told = False
        while (descriptor := try_lock(self._layout.lock("prepare"))) is None and not self._signals.stop:
            if not is_told:
                is_told = True
                self._writer.turn(SETTING_UP, "waiting for another task, which prepares the machine")
            self._signals.wait(_TURN_SECONDS)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def restore(self) -> None:
        """Restore results; wait a while for an unreachable store, without counting it as an attempt.

        Raises:
            OSError: the store can't be reached.
            AgentError: its manifest is damaged.
        """
        is_told = False
        while True:
            try:
                restore(self._layout, self._machine, self._writer.log, is_unwanted=lambda: bool(self._signals.stop))
                break
            except OSError as err:
                if self._signals.stop or time.monotonic() + _STORE_AGAIN_SECONDS > self._store_until:
                    raise
                if not is_told:
                    is_told = True
                    self._await_store(str(err).replace("\n", ";"))
            self._signals.wait(_STORE_AGAIN_SECONDS)
        if not self._signals.stop:
            restore_caches(self._layout, self._machine, self._writer.log)

    def take_release(self) -> Path:
        """Return the code's current release, with the run's data linked into it.

        Raises:
            AgentError: the code isn't what was sent.
        """
        release = releases.current_or_empty(self._layout)
        releases.unshare_files(release)
        link_data(self._layout, self._config, release)
        return release

    def set_up(self, release: Path) -> None:
        """Make the Python environment, fetch data and run `setup`; do nothing that is done already.

        Raises:
            PreparationError: one of them has failed.
            AgentError: the Python environment can't be made.
        """
        self._prepare_python()
        self._fetch_data(release)
        self._run_setup(release)

    def _await_store(self, why: str) -> None:
        self._writer.remark(f"the store's results can't be restored yet: {why}")
        self._writer.turn(SETTING_UP, f"waiting for the store: {why}")

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
            self._writer.remark(f"setup can't install Python packages: {err}".replace("\n", ";"))

    def _fetch_data(self, release: Path) -> None:
        """Fetch data in a process of its own, so that a stop ends it at once."""
        if not self._config.sources or self._signals.stop:
            return
        fetch = f"exec {shlex.quote(str(self._layout.launcher))} fetch-data"
        code = self._run_script("fetch", fetch, release, SETTING_UP)
        if code != 0:
            reason = read_json(self._layout.note("fetch")).get("error") or f"exit code {code}"
            raise PreparationError(f"the data could not be fetched: {reason}", code)

    def _run_setup(self, release: Path) -> None:
        if not self._config.setup.strip() or self._signals.stop:
            return
        step = SetupStep(self._layout, self._config, release)
        if step.remark:
            self._writer.remark(step.remark)
        if not step.is_due:
            step.skip()
            return
        step.begin()
        code = self._run_script("setup", self._config.setup, release, SETTING_UP)
        if code != 0:
            raise PreparationError(f"setup failed with exit code {code}", code)
        if self._signals.stop:
            return
        if damage := find_damage(self._layout, read_job_environment(self._layout), self._config.setup):
            raise PreparationError(f"setup broke torch for the GPUs: {damage}", 1)
        step.finish()
