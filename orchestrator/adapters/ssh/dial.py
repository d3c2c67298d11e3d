"""Opens a new connection, with retries while the machine may still be booting."""

from __future__ import annotations

import logging
from datetime import timedelta

from orchestrator.adapters.host.retry import retry
from orchestrator.adapters.ssh.fabric import FabricRemote
from orchestrator.adapters.ssh.failures import HostKeyError, place
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)

_FIRST = timedelta(milliseconds=200)
_LONGEST = timedelta(seconds=5)


def dial(address: SshAddress, clock: Clock, within: timedelta, *, proxy: str = "") -> FabricRemote:
    """Connect, retrying until the time limit; a wrong host key isn't retried.

    Raises:
        UnreachableError: the last attempt failed; the error says why.
    """

    def note(attempt: int) -> None:
        _log.info("%s doesn't answer yet; attempt %d", place(address), attempt)

    return retry(
        lambda: FabricRemote(address, proxy),
        on=_may_pass,
        within=within,
        clock=clock,
        first=_FIRST,
        longest=_LONGEST,
        note=note,
    )


def _may_pass(err: BaseException) -> bool:
    return isinstance(err, UnreachableError) and not isinstance(err, HostKeyError)
