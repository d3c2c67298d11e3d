"""Lets this computer in again where its address has changed since a machine was opened to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from orchestrator.adapters.remote.failures import HostKeyError, place
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Clock, Connector, Remote

_log = logging.getLogger(__name__)

_EVERY = timedelta(minutes=1)
"""How often it is looked whether the address has changed: a machine that boots is called every few seconds."""
Reopen = Callable[[SshAddress], bool]
"""Has whoever rents a machine out let this computer in; True when that changed something."""


class KnockingConnector(Connector, Protocol):
    """A connector that can also tell whether anybody is there."""

    def reaches(self, address: SshAddress) -> bool:
        """Tell whether anybody listens at the address."""


class ReopeningConnector:
    """Implements `core.ports.Connector` over another one: tries once more after this computer was let in."""

    def __init__(self, connector: KnockingConnector, reopen: Reopen, clock: Clock) -> None:
        self._connector = connector
        self._reopen = reopen
        self._clock = clock
        self._looked_at: dict[SshAddress, datetime] = {}
        self._letting_in = threading.Lock()

    def connect(self, address: SshAddress) -> Remote:
        """Open a way in, at the second attempt where this computer had to be let in first."""
        try:
            return self._connector.connect(address)
        except HostKeyError:
            raise
        except UnreachableError:
            if not self._let_in(address):
                raise
        return self._connector.connect(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the OpenSSH client's argv up to and including the host."""
        return self._connector.ssh_argv(address, *options)

    def terminal_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the same for a client that connects by itself: this computer is let in first where nobody answers."""
        if not self._connector.reaches(address):
            self._let_in(address)
        return self._connector.ssh_argv(address, *options)

    def forget(self, address: SshAddress) -> None:
        """Close the ways into a machine that is gone, and drop its pin."""
        self._connector.forget(address)

    def close(self) -> None:
        """Give up what this command does on all machines."""
        self._connector.close()

    def _let_in(self, address: SshAddress) -> bool:
        # One at a time: machines are asked from several threads, which the ledger and clouds' SDKs aren't made for.
        with self._letting_in:
            return self._let_in_unless_just_tried(address)

    def _let_in_unless_just_tried(self, address: SshAddress) -> bool:
        now = self._clock.now()
        looked_at = self._looked_at.get(address)
        if looked_at is not None and now - looked_at < _EVERY:
            return False
        self._looked_at[address] = now
        try:
            return self._reopen(address)
        except KedgeError as err:
            # That nobody answers is what the user has to know; this may be a consequence of the same.
            _log.warning("%s can't be opened again: %s", place(address), err.what)
            return False
