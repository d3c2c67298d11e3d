"""The errors of SSH connections: wrong host key, refused key, no answer, broken connection, timeout."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.protocol.decoding import clip
from orchestrator.core.values.units import format_duration

_LOOK = "try again; `kedge status` tells whether the machine still exists"
_WRONG_KEY = ("Host key verification failed", "HOST IDENTIFICATION HAS CHANGED", "no matching host key type")
_WRONG_USER = ("Permission denied", "Too many authentication failures")


class HostKeyError(UnreachableError):
    """A server answers without the machine's host key; retrying won't change that."""


def wrong_host_key(address: SshAddress) -> HostKeyError:
    """Return the error for another host key than the pinned one."""
    return HostKeyError(
        f"{place(address)} is not the machine that kedge knows: its host key differs",
        why="somebody else answers at this address, or the machine was reinstalled; nothing was sent to it",
        fix="see `kedge status`; if it is gone, `kedge teardown` forgets it and `kedge resume` continues the run",
    )


def key_refused(address: SshAddress) -> UnreachableError:
    """Return the error for a machine that doesn't accept kedge's key."""
    return UnreachableError(
        f"{place(address)} doesn't accept kedge's key for user {address.user}",
        why="no other key and no password is ever offered",
        fix="try again if it has just booted; else replace it: `kedge teardown`, then `kedge resume`",
    )


def unanswered(address: SshAddress, why: str) -> UnreachableError:
    """Return the error for a connection that couldn't be opened."""
    return UnreachableError(f"{place(address)} doesn't answer", why=why, fix=_LOOK)


def broken(address: SshAddress, why: str) -> UnreachableError:
    """Return the error for a connection that ended before its command."""
    return UnreachableError(f"the connection to {place(address)} broke", why=why, fix=_LOOK)


def too_slow(address: SshAddress, argv: Sequence[str], timeout: timedelta) -> UnreachableError:
    """Return the error for a command that exceeded its time limit."""
    name = argv[0].rpartition("/")[2]
    return UnreachableError(
        f"{place(address)} didn't finish `{' '.join([name, *argv[1:2]])}` within {format_duration(timeout)}",
        fix=_LOOK,
    )


def explain_openssh(address: SshAddress, stderr: bytes) -> UnreachableError:
    """Turn the OpenSSH client's error output into an error."""
    said = stderr.decode(errors="replace").strip()
    if any(sign in said for sign in _WRONG_KEY):
        return wrong_host_key(address)
    if any(sign in said for sign in _WRONG_USER):
        return key_refused(address)
    return broken(address, clip(said.splitlines()[-1].strip()) if said else "the SSH client said nothing")


def place(address: SshAddress) -> str:
    """Format a machine's address for messages."""
    return f"{address.host}:{address.port}"
