"""The client of the agent on a machine: one function for each of its verbs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.core.errors import UnreachableError, agent_error
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.protocol.decoding import LIST_BYTES, LOG_BYTES, nonsense, split_lines
from orchestrator.core.protocol.readiness import parse_host_key
from orchestrator.core.protocol.report import Command, MachineReport, parse_command, parse_report
from orchestrator.core.protocol.results import ResultFile, parse_results
from orchestrator.core.protocol.stream import FollowEvent, parse_follow_event
from orchestrator.core.protocol.wire import RunConfig, encode_run_config

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

_SOON = timedelta(seconds=30)
_HASHING = timedelta(minutes=30)
_STARTING = timedelta(minutes=2)

_TAIL = 'test -f "$1" || exit 0; size=$(wc -c < "$1"); echo "$size"; head -c "$size" "$1" | tail -n "$2" | tail -c "$3"'
_SIZE_DIGITS = 18
_TIME_DIGITS = 11


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


def start(remote: Remote, machine: Machine, config: RunConfig, tasks: Sequence[str] = ()) -> Command:
    """Start tasks, or all; the configuration is sent on standard input, because it holds secrets."""
    argv = [machine.agent, "start", *_options("--task", tasks)]
    ended = remote.run(argv, stdin=encode_run_config(config), timeout=_STARTING)
    return parse_command(_checked(ended, "start the command").stdout)


def stop(remote: Remote, machine: Machine, tasks: Sequence[str] = (), *, grace: timedelta, reason: str) -> Command:
    """Ask tasks, or all, to checkpoint and exit, and wait for them; return their state together."""
    argv = [machine.agent, "stop", *_options("--task", tasks), "--reason", reason]
    return parse_command(_checked(remote.run(argv, timeout=grace + _SOON), "stop the command").stdout)


def kill(remote: Remote, machine: Machine, tasks: Sequence[str] = ()) -> Command:
    """Kill tasks, or all, at once, without a checkpoint; return their state together."""
    ended = remote.run([machine.agent, "kill", *_options("--task", tasks)], timeout=_SOON)
    return parse_command(_checked(ended, "kill the command").stdout)


def clock_at(remote: Remote, clock: Clock, at: datetime) -> int:
    """Return an instant on the machine's own clock, in Unix seconds; never later than the instant itself.

    Args:
        remote: a connection as the administrator: the job could change what its own user's answers say.
        clock: this computer's.
        at: the instant.

    Raises:
        NonsenseError: its answer is no time.
        UnreachableError: it doesn't answer.
    """
    said = _checked(remote.run(["date", "+%s"], timeout=_SOON), "tell the time").stdout.strip()
    if not (said.isdigit() and len(said) <= _TIME_DIGITS):
        raise nonsense("its time", f"it is {said[:80]!r}")
    # That time is older than this computer's now, by the way back at most.
    return math.floor(int(said) + (at - clock.now()).total_seconds())


def extend(remote: Remote, machine: Machine, deadline_at: int) -> None:
    """Let the machine move its own deadline, which only root may do.

    Args:
        remote: a connection as the administrator.
        machine: the machine.
        deadline_at: Unix seconds on its clock.

    Raises:
        KedgeError: the machine could not do it.
    """
    verb = ("extend", "--deadline", str(deadline_at))
    # A local machine has one user, and its init holds the deadline.
    argv = _as_root(machine, *verb) if machine.require_address().admin else [machine.agent, *verb]
    _checked(remote.run(argv, timeout=_SOON), "move its deadline")


def manifest(remote: Remote, machine: Machine) -> tuple[ResultFile, ...]:
    """List the machine's results with their checksums."""
    done = remote.run([machine.agent, "manifest"], timeout=_HASHING, most=LIST_BYTES)
    return parse_results(_checked(done, "list the results").stdout)


def tail(remote: Remote, machine: Machine, log: str, lines: int) -> tuple[list[bytes], int]:
    """Return a log's last lines, and the offset after them.

    Args:
        remote: the connection.
        machine: where it is.
        log: its path, relative to the results; a log that doesn't exist is empty.
        lines: how many.

    Raises:
        NonsenseError: the answer isn't a log.
        UnreachableError: the log can't be read.
    """
    path = f"{machine.root}/results/{log}"
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


def follow(
    remote: Remote, machine: Machine, offsets: Mapping[str, int], tasks: Sequence[str] = (), *, until_over: bool
) -> Iterator[FollowEvent]:
    """Yield the logs of tasks, or of all, with a report now and then.

    Args:
        remote: the connection.
        machine: where they are.
        offsets: how many bytes of each log to skip, by the task's name; the machine's log has none.
        tasks: the names of the tasks.
        until_over: end when these tasks are over.
    """
    skipped = [f"{name}={offset}" if name else str(offset) for name, offset in offsets.items() if offset]
    options = [*_options("--task", tasks), *_options("--offset", skipped)]
    argv = [machine.agent, "follow", *options, *(["--until-over"] if until_over else [])]
    for line in remote.lines(argv):
        event = parse_follow_event(line)
        if event.report is not None:
            _require_same_machine(event.report, machine)
        yield event


def _options(name: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (name, value)]


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
