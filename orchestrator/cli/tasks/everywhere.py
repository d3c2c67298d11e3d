"""Runs a command on all machines of a run at the same time, and prints their lines as they come."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

from orchestrator.cli.drawing.log_lines import Labels
from orchestrator.cli.terminal.openssh import Client
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import Machine

_UNREACHED = 255
"""OpenSSH's own exit code for a connection that failed."""
_LONGEST = 1 << 16


def run_everywhere(machines: Sequence[Machine], make: Callable[[Machine], Client]) -> int:
    """Run a command on each machine, without input, and print its output line by line with the node's number.

    Standard error stays standard error. A machine that can't be reached doesn't hold up the others. Ctrl-C ends all.

    Args:
        machines: of one run.
        make: returns the client for the command.

    Returns:
        The exit code of the first machine, by rank, on which the command failed; 0 if there is none.

    Raises:
        OSError: OpenSSH can't be started, or nobody reads the output any more; everything was ended.
    """
    labels = Labels([], [machine.rank for machine in machines])
    ended: _Ended = queue.SimpleQueue()
    nodes = [_Node(machine, make, labels, ended) for machine in machines]
    try:
        for node in nodes:
            threading.Thread(target=node.run, daemon=True).start()
        _await_ends(ended, len(nodes))
    except BaseException:
        for node in nodes:
            node.end()
        raise
    return next((node.exit_code for node in nodes if node.exit_code), 0)


def _await_ends(ended: _Ended, count: int) -> None:
    for _ in range(count):
        if (surprise := ended.get()) is not None:
            raise surprise


_printing = threading.Lock()
_Ended = queue.SimpleQueue[BaseException | None]
"""Receives a node's end, or why it can't go on: this program can't be started, or nobody reads its output any more."""


@dataclass(slots=True)
class _Node:
    """The command on one machine."""

    machine: Machine
    make: Callable[[Machine], Client]
    labels: Labels
    ended: _Ended
    exit_code: int = _UNREACHED
    _process: subprocess.Popen[bytes] | None = None
    _is_ended: bool = False
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Run it to its end, and tell that."""
        try:
            self._run()
        except BaseException as err:  # noqa: BLE001 - the thread that waits raises it
            self.ended.put(err)
        else:
            self.ended.put(None)

    def _run(self) -> None:
        try:
            process = self._start(self.make(self.machine))
        except KedgeError as err:
            self._print(str(err).encode(), sys.stderr)
            return
        if process is None or process.stdout is None or process.stderr is None:
            return
        with process:
            errors = threading.Thread(target=self._copy_errors, args=(process.stderr,), daemon=True)
            errors.start()
            self._copy(process.stdout, sys.stdout)
            errors.join()
            code = process.wait()
        # A client that was killed has a negative code.
        self.exit_code = code if code >= 0 else _UNREACHED

    def end(self) -> None:
        """End the client; the command on the machine loses its connection."""
        with self._starting:
            self._is_ended = True
            if self._process is not None:
                self._process.terminate()

    def _start(self, client: Client) -> subprocess.Popen[bytes] | None:
        with self._starting:
            if not self._is_ended:
                self._process = subprocess.Popen(
                    client.argv,
                    env=client.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            return self._process

    def _copy_errors(self, source: IO[bytes]) -> None:
        try:
            self._copy(source, sys.stderr)
        except BaseException as err:  # noqa: BLE001 - the thread that waits raises it
            self.ended.put(err)

    def _copy(self, source: IO[bytes], target: IO[str]) -> None:
        while line := source.readline(_LONGEST):
            self._print(line.rstrip(b"\n"), target)

    def _print(self, line: bytes, target: IO[str]) -> None:
        with _printing:
            print(f"{self.labels.label('', self.machine.rank)}{line.decode(errors='replace')}", file=target, flush=True)
