"""Open a new connection, trying again for as long as a machine may still be booting."""

from __future__ import annotations

import logging
from datetime import timedelta

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    wait_exponential,
)

from orchestrator.adapters.remote.fabric import FabricRemote
from orchestrator.adapters.remote.failures import HostKeyError, place
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)


def dial(address: SshAddress, clock: Clock, within: timedelta, *, proxy: str = "") -> FabricRemote:
    """Connect at once, or as soon as the machine answers within a time; a wrong host key is final.

    Raises:
        UnreachableError: why the last attempt failed.
    """
    deadline = clock.now() + within

    def over(state: RetryCallState) -> bool:
        return clock.now() + timedelta(seconds=state.upcoming_sleep) > deadline

    def note(state: RetryCallState) -> None:
        _log.info("%s doesn't answer yet; attempt %d", place(address), state.attempt_number)

    attempts = Retrying(
        retry=retry_if_exception_type(UnreachableError) & retry_if_not_exception_type(HostKeyError),
        wait=wait_exponential(multiplier=0.2, max=5),
        stop=over,
        sleep=lambda seconds: clock.sleep(timedelta(seconds=seconds)),
        before_sleep=note,
        reraise=True,
    )
    return attempts(FabricRemote, address, proxy)
