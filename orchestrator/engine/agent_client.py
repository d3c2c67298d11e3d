"""The client of the agent on a machine: one function for each of its verbs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from orchestrator.core.errors import UnreachableError, agent_error
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.protocol.decoding import LIST_BYTES, LOG_BYTES, nonsense, split_lines
from orchestrator.core.protocol.readiness import parse_host_key
from orchestrator.core.protocol.report import (
    Command,
    FollowEvent,
    MachineReport,
    parse_command,
    parse_follow_event,
    parse_report,
)
from orchestrator.core.protocol.results import ResultFile, parse_results
from orchestrator.core.protocol.wire import RunConfig

_SOON = timedelta(seconds=30)
_HASHING = timedelta(minutes=30)
_STARTING = timedelta(minutes=2)

_TAIL = 'test -f "$1" || exit 0; size=$(wc -c < "$1"); echo "$size"; head -c "$size" "$1" | tail -n "$2" | tail -c "$3"'
_SIZE_DIGITS = 18


def make_host_key(remote: Remote, machine: Machine) -> str:
    """Let the machine create a second host key, beside its first one, and return the public half.

    Raises:
        KedgeError: the machine could not do it.
    """
    done = _checked(remote.run(_as_root(machine, "rekey"), timeout=_SOON), "create a host key")
    return parse_host_key(done.stdout)


def retire_host_key(remote: Remote, machine: Machine) -> None:
    """Let the machine delete its first host key.

    Raises:
        KedgeError: the machine could not do it.
    """
    _checked(remote.run(_as_root(machine, "rekey", "--retire"), timeout=_SOON), "delete its first host key")


def report(remote: Remote, machine: Machine) -> MachineReport:
    """Request the machine's report.

    Raises:
        KedgeError: its agent fails.
        NonsenseError: the answer isn't a report, or is another machine's.
        UnreachableError: it doesn't answer.
    """
    said = parse_report(_checked(remote.run([machine.agent, "report"], timeout=_SOON), "report").stdout)
    return _require_same_machine(said, machine)


def start(remote: Remote, machine: Machine, config: RunConfig) -> Command:
    """Start the command; the configuration is sent on standard input, because it holds secrets."""
    done = remote.run([machine.agent, "start"], stdin=msgspec.json.encode(config), timeout=_STARTING)
    return parse_command(_checked(done, "start the command").stdout)


def stop(remote: Remote, machine: Machine, *, grace: timedelta, reason: str) -> Command:
    """Ask the command to checkpoint and exit, and wait for it."""
    done = remote.run([machine.agent, "stop", "--reason", reason], timeout=grace + _SOON)
    return parse_command(_checked(done, "stop the command").stdout)


def kill(remote: Remote, machine: Machine) -> Command:
    """Kill the command at once, without a checkpoint."""
    return parse_command(_checked(remote.run([machine.agent, "kill"], timeout=_SOON), "kill the command").stdout)


def manifest(remote: Remote, machine: Machine) -> tuple[ResultFile, ...]:
    """List the machine's results with their checksums."""
    done = remote.run([machine.agent, "manifest"], timeout=_HASHING, most=LIST_BYTES)
    return parse_results(_checked(done, "list the results").stdout)


def tail(remote: Remote, machine: Machine, lines: int) -> tuple[list[bytes], int]:
    """Return the log's last lines, and the offset after them.

    Raises:
        NonsenseError: the answer isn't a log.
        UnreachableError: the log can't be read.
    """
    path = f"{machine.root}/results/run.log"
    argv = ["sh", "-c", _TAIL, "tail", path, str(lines), str(LOG_BYTES // 2)]
    done = remote.run(argv, timeout=_SOON, most=LOG_BYTES)
    if done.exit_code != 0:
        raise UnreachableError(
            f"the log of machine {machine.id} can't be read", why=done.stderr.decode(errors="replace").strip()
        )
    size, _, text = (done.stdout or b"0").partition(b"\n")
    if not (size.strip().isdigit() and len(size) <= _SIZE_DIGITS):
        raise nonsense("its log", f"its size is {size[:80]!r}")
    return split_lines(text), int(size)


def follow(remote: Remote, machine: Machine, offset: int, *, until_over: bool) -> Iterator[FollowEvent]:
    """Yield the log from a byte offset on, with a report now and then."""
    argv = [machine.agent, "follow", "--offset", str(offset), *(["--until-over"] if until_over else [])]
    for line in remote.lines(argv):
        event = parse_follow_event(line)
        if event.report is not None:
            _require_same_machine(event.report, machine)
        yield event


def _require_same_machine(said: MachineReport, machine: Machine) -> MachineReport:
    """Refuse a report that names another machine: plans match reports to machines by that name."""
    if (said.machine, said.run) != (machine.id, machine.run_id):
        raise nonsense("its report", f"it is of machine {said.machine!r} of run {said.run!r}, not of {machine.id}")
    return said


def _as_root(machine: Machine, *verb: str) -> list[str]:
    return ["sudo", "-n", machine.agent, *verb]


def _checked(done: Completed, purpose: str) -> Completed:
    if done.exit_code != 0:
        raise agent_error(f"the machine could not {purpose}", done.exit_code, done.stderr)
    return done
