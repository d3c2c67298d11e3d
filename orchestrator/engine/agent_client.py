"""Speaks with the agent on a machine: one function for each of its verbs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

import msgspec

from orchestrator.core.errors import KedgeError, agent_error
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.report import (
    Command,
    FollowEvent,
    MachineReport,
    ResultFile,
    parse_follow_event,
    parse_report,
)
from orchestrator.core.wire import RunConfig

_Answer = TypeVar("_Answer")

_SOON = timedelta(seconds=30)
_HASHING = timedelta(minutes=30)
_STARTING = timedelta(minutes=2)


def make_host_key(remote: Remote, machine: Machine) -> str:
    """Let the machine make itself a host key beside the one it was born with, and return its public half.

    Raises:
        KedgeError: it couldn't.
    """
    done = _checked(remote.run([machine.agent, "rekey"], timeout=_SOON), "make itself a host key")
    return done.stdout.decode().strip()


def retire_host_key(remote: Remote, machine: Machine) -> None:
    """Let the machine forget the host key that it was born with.

    Raises:
        KedgeError: it couldn't.
    """
    _checked(remote.run([machine.agent, "rekey", "--retire"], timeout=_SOON), "forget its first host key")


def report(remote: Remote, machine: Machine) -> MachineReport:
    """Ask the machine how it is.

    Raises:
        KedgeError: its agent doesn't work.
        UnreachableError: it doesn't answer.
    """
    return parse_report(_checked(remote.run([machine.agent, "report"], timeout=_SOON), "report").stdout)


def start(remote: Remote, machine: Machine, config: RunConfig) -> Command:
    """Start the command; the configuration travels on standard input, since it holds secrets."""
    done = remote.run([machine.agent, "start"], stdin=msgspec.json.encode(config), timeout=_STARTING)
    return _command(_checked(done, "start the command"))


def stop(remote: Remote, machine: Machine, *, grace: timedelta, reason: str) -> Command:
    """Ask the command to checkpoint and exit, and wait for it."""
    done = remote.run([machine.agent, "stop", "--reason", reason], timeout=grace + _SOON)
    return _command(_checked(done, "stop the command"))


def kill(remote: Remote, machine: Machine) -> Command:
    """End the command at once, without a checkpoint."""
    return _command(_checked(remote.run([machine.agent, "kill"], timeout=_SOON), "kill the command"))


def manifest(remote: Remote, machine: Machine) -> tuple[ResultFile, ...]:
    """List the machine's results with their checksums."""
    done = _checked(remote.run([machine.agent, "manifest"], timeout=_HASHING), "list the results")
    return _decode(done.stdout, tuple[ResultFile, ...])


def follow(remote: Remote, machine: Machine, offset: int, *, until_over: bool) -> Iterator[FollowEvent]:
    """Yield the log from a byte offset on, and a report now and then."""
    argv = [machine.agent, "follow", "--offset", str(offset), *(["--until-over"] if until_over else [])]
    for line in remote.lines(argv):
        yield parse_follow_event(line)


def _checked(done: Completed, purpose: str) -> Completed:
    if done.exit_code != 0:
        raise agent_error(f"the machine could not {purpose}", done.exit_code, done.stderr)
    return done


def _command(done: Completed) -> Command:
    return _decode(done.stdout, Command)


def _decode(raw: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as err:
        raise KedgeError("the machine's answer can't be read", why=f"{err}: {raw[:80]!r}") from err
