"""Updates a machine's firewall if this computer's address has changed, and connects again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from orchestrator.adapters.ssh.failures import HostKeyError, place
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Clock, Connector, Remote

_log = logging.getLogger(__name__)

_EVERY = timedelta(minutes=1)
"""The least time between two checks of the address: a booting machine is tried every few seconds."""
Reopen = Callable[[SshAddress], bool]
"""Asks the machine's provider to let this computer in; returns True if that changed something."""


class ProbingConnector(Connector, Protocol):
    """A connector that can also probe an address."""

    def reaches(self, address: SshAddress) -> bool:
        """Tell whether a server listens at the address."""


class ReopeningConnector:
    """Implements `core.ports.Connector` over another one: if the firewall had to be updated, it connects again."""

    def __init__(self, connector: ProbingConnector, reopen: Reopen, clock: Clock) -> None:
        self._connector = connector
        self._reopen = reopen
        self._clock = clock
        self._looked_at: dict[SshAddress, datetime] = {}
        self._letting_in = threading.Lock()

    def connect(self, address: SshAddress) -> Remote:
        """Connect, with a second attempt if the firewall had to be updated."""
        try:
            return self._connector.connect(address)
        except HostKeyError:
            raise
        except UnreachableError:
            if not self._let_in(address):
                raise
        return self._connector.connect(address)

    def opened(self, address: SshAddress) -> Remote | None:
        """Return an earlier command's connection; no firewall is updated."""
        return self._connector.opened(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the OpenSSH client's argv, which ends with the host."""
        return self._connector.ssh_argv(address, *options)

    def terminal_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the argv for an interactive client; if the machine doesn't answer, update its firewall first."""
        if not self._connector.reaches(address):
            self._let_in(address)
        return self._connector.ssh_argv(address, *options)

    def forget(self, address: SshAddress) -> None:
        """Close the connections to a machine that is gone, and delete its pin."""
        self._connector.forget(address)

    def close(self) -> None:
        """Abort this command's work on all machines."""
        self._connector.close()

    def _let_in(self, address: SshAddress) -> bool:
        # One at a time, because several threads query machines, and the ledger and the clouds' SDKs aren't thread-safe.
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
            # The error for the user is that the machine doesn't answer; this failure may have the same cause.
            _log.warning("%s can't be opened again: %s", place(address), err.what)
            return False
