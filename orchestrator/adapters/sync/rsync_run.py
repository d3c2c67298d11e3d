"""Runs rsync with limits, so that a hostile machine can't keep it running forever, or fill the disk."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Self

from orchestrator.adapters.incoming.disk_room import is_full, no_room
from orchestrator.adapters.ssh.session import Alarm, Collector
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from orchestrator.core.transfers import Progress

_PROGRESS = re.compile(rb"^\s*(\d[\d,.]{0,30})\s+(\d{1,3})%")
_READ_BYTES = 1 << 12
_LAST_WORDS_SECONDS = 2.0
_LONGEST = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a fetch, for all its calls of rsync together.

    Attributes:
        give_up_at: on the monotonic clock, in seconds.
        home: the folder whose disk must not fill up.
    """

    give_up_at: float
    home: Path

    @classmethod
    def from_now(cls, within: timedelta, home: Path) -> Self:
        """Start the time limit."""
        return cls(give_up_at=time.monotonic() + within.total_seconds(), home=home)

    @property
    def left(self) -> timedelta:
        """The remaining time."""
        return timedelta(seconds=max(self.give_up_at - time.monotonic(), 0))


def run_rsync(
    argv: Sequence[str], environ: Mapping[str, str], progress: Progress, limits: Limits | None = None
) -> tuple[int, bytes]:
    """Run rsync; return its exit code and its standard error, which the machine may have written.

    Raises:
        NonsenseError: its standard error is too long.
        UnreachableError: it took too long.
        KedgeError: it isn't installed, or the disk is full.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    except FileNotFoundError as err:
        raise KedgeError(
            "rsync isn't installed here",
            fix="install it: `sudo apt-get install rsync`, or `brew install rsync`",
        ) from err
    with process:
        complaints = Collector(partial(_read, process.stderr), ANSWER_BYTES, process.terminate)
        try:
            with Alarm(limits.left if limits else _LONGEST, process.terminate) as alarm:
                for done, total in _parse_progress(process.stdout):
                    progress(done, total)
                    _require_room(limits)
                process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            # The machine may keep rsync's SSH client running, so don't wait for the pipe's end.
            complaints.join(_LAST_WORDS_SECONDS)
    if alarm.rang:
        raise UnreachableError(
            "the copy from the machine took too long",
            why="it sends too slowly, or has nearly reached its deadline",
            fix="run the command again: it continues where it stopped",
        )
    return process.returncode, complaints.take()


def _require_room(limits: Limits | None) -> None:
    if limits is not None and is_full(limits.home):
        raise no_room(limits.home, "the machine sends more than it has listed")


def _read(output: IO[bytes] | None) -> bytes:
    # A pipe that was closed meanwhile has ended.
    with suppress(ValueError):
        return (output.read(_READ_BYTES) if output else b"") or b""
    return b""


def _parse_progress(output: IO[bytes] | None) -> Iterator[tuple[int, int]]:
    """Yield the copied bytes and an estimate of the total, which grows while rsync still finds files."""
    rest = b""
    while data := _read(output):
        *whole, rest = re.split(rb"[\r\n]", rest[-_READ_BYTES:] + data)
        for line in whole:
            if found := _PROGRESS.match(line):
                done, percent = int(re.sub(rb"\D", b"", found[1])), int(found[2])
                yield done, done * 100 // percent if percent else 0
