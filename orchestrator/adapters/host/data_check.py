"""Runs a job's check of its data on this computer: one child without input, cloud tokens or secrets."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from orchestrator.adapters.host.child_environment import check_environment
from orchestrator.adapters.host.resources import resource
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.data_check import DataCheck, bundled_arguments
from orchestrator.core.values.units import format_duration

LIMIT_S = 3600.0
"""The longest that a check may take."""
_ROUND_S = 0.1
_TO_END_S = 2.0
_CHUNK = 1 << 16


def make_check(command: tuple[str, ...], folder: Path, *, has_own_trainer: bool) -> DataCheck:
    """Describe what is run for a job's `check`: a bundled one by kedge's own interpreter and with its own trainer.

    Args:
        command: its argv, as the job file says.
        folder: the job file's.
        has_own_trainer: the job's code has a `trainer`.
    """
    arguments = bundled_arguments(command, has_own_trainer=has_own_trainer)
    if arguments is None:
        return DataCheck(command=command, runs=command, folder=str(folder), bundled=False)
    # -P and -s: a `trainer` in the job's folder, or in the user's site-packages, must not be found instead of kedge's.
    runs = (sys.executable, "-P", "-s", "-u", "-m", "kedge_trainer", *arguments)
    return DataCheck(command=command, runs=runs, folder=str(folder), bundled=True)


def run_check(check: DataCheck, environ: Mapping[str, str], show: Callable[[str], None]) -> None:
    """Run a check to its end; an interruption ends it, with all that it has started.

    Args:
        check: what to run.
        environ: this process's environment, of which the check gets a few variables.
        show: gets its output as it comes.

    Raises:
        BadRequestError: it can't be started, has failed, or took too long.
    """
    own = {"PYTHONPATH": str(resource("kedge_trainer").parent)} if check.bundled else {}
    with _start(check, check_environment(environ) | own) as process:
        try:
            code = _show_until_end(process, show)
        finally:
            _end(process)
    if code is None:
        raise _failed(check, f"it took more than {format_duration(timedelta(seconds=LIMIT_S))}")
    if code:
        raise _failed(check, f"signal {-code} ended it" if code < 0 else f"it exited with {code}")


def _start(check: DataCheck, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        # In a session of its own it has no terminal, neither to read from nor to type into.
        return subprocess.Popen(
            check.runs,
            cwd=check.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as err:
        raise BadRequestError(
            f"the check of the data can't be started: {check.shown}",
            why=str(err),
            fix="correct the job's `check`: it is run without a shell, and programs are found by this shell's PATH",
        ) from err


def _failed(check: DataCheck, why: str) -> BadRequestError:
    return BadRequestError(
        f"the check of the data has failed: {check.shown}",
        why=why,
        fix="correct what it says, and run the same command again",
    )


def _show_until_end(process: subprocess.Popen[bytes], show: Callable[[str], None]) -> int | None:
    """Return the exit code; None if it took too long. What it has started may keep the pipe open after its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    out, until = _pipe_of(process), time.monotonic() + LIMIT_S
    with selectors.DefaultSelector() as waiting:
        waiting.register(out, selectors.EVENT_READ)
        while time.monotonic() < until:
            code = process.poll()
            part = os.read(out, _CHUNK) if waiting.select(_ROUND_S if code is None else 0) else None
            # After its end, one read gets all that the pipe holds.
            show(decoder.decode(part or b"", final=code is not None))
            if code is not None:
                return code
            if part == b"":
                return _wait(process, until)
    return None


def _pipe_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    return process.stdout.fileno()


def _wait(process: subprocess.Popen[bytes], until: float) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(max(0.0, until - time.monotonic()))
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of it, and what it has started."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TO_END_S)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
