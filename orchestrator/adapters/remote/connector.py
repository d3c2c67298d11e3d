"""Chooses the way into a machine, and keeps ways open for later commands."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Protocol

from orchestrator.adapters.children import master_environment
from orchestrator.adapters.remote.openssh import OpenSshRemote
from orchestrator.adapters.remote.options import openssh_argv, openssh_options
from orchestrator.adapters.remote.places import SshPlaces, answers
from orchestrator.adapters.remote.proxy import proxy_command
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Clock, Remote

_log = logging.getLogger(__name__)

# sh starts its arguments in the background and ends: nobody waits for them, and nobody's Ctrl-C ends them.
_DETACHED = ("sh", "-c", '"$@" &', "sh")


_KNOCK = timedelta(seconds=4)
"""A firewall drops what it doesn't let in; this is time for a packet to be sent thrice (RFC 6298: after 1 s, 2 s)."""


class _Way(Remote, Protocol):
    @property
    def usable(self) -> bool: ...


class SshConnector:
    """Implements `core.ports.Connector`."""

    def __init__(
        self,
        places: SshPlaces,
        clock: Clock,
        *,
        environ: Mapping[str, str] = MappingProxyType({}),
        within: timedelta = timedelta(0),
    ) -> None:
        """Make one.

        Args:
            places: of pins and sockets.
            clock: for waits.
            environ: the user's; a connection that is kept gets of it what is no secret.
            within: how long a machine that doesn't answer yet is waited for: not at all, unless said.
        """
        self._places = places
        self._clock = clock
        self._environ = environ
        self._within = within
        self._ways: dict[SshAddress, _Way] = {}

    def connect(self, address: SshAddress, *, within: timedelta | None = None) -> Remote:
        """Open a way in, or return the one that is open; `within` is how long to try."""
        way = self._ways.get(address)
        if way is None or not way.usable:
            way = self._ways[address] = self._open(address, self._within if within is None else within)
        return way

    def reaches(self, address: SshAddress) -> bool:
        """Tell whether anybody listens at the address; nothing is said to them."""
        # What is reached through somebody else can't be knocked at, nor opened to this computer.
        if address.is_proxied or answers(self._places.control_socket(address)):
            return True
        try:
            socket.create_connection((address.host, address.port), _KNOCK.total_seconds()).close()
        except OSError:
            return False
        return True

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the OpenSSH client's argv up to the host, which stands last; options given here win."""
        self._prepare(address)
        return openssh_argv(openssh_options(self._places, address), address, options)

    def forget(self, address: SshAddress) -> None:
        """Close the ways into a machine that is gone, and drop its pin."""
        for user in {address, address.as_admin}:
            self._forget(user)

    def _forget(self, address: SshAddress) -> None:
        way = self._ways.pop(address, None)
        if way is not None:
            way.close()
        socket = self._places.control_socket(address)
        if answers(socket):
            self._call(address, self.ssh_argv(address, "-O", "exit"))
        socket.unlink(missing_ok=True)
        self._places.known_hosts(address).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connections of this command and give up what goes over them; control sockets stay for the next."""
        while self._ways:
            self._ways.popitem()[1].close()

    def _open(self, address: SshAddress, within: timedelta) -> _Way:
        self._prepare(address)
        if answers(self._places.control_socket(address)):
            return OpenSshRemote(self._places, address, self._environ)
        # Imported when needed: fabric and tenacity cost a quick command more than its whole remaining work.
        from orchestrator.adapters.remote.dial import dial  # noqa: PLC0415

        way = dial(address, self._clock, within, proxy=proxy_command(address, self._places.user_config))
        self._leave_master(address)
        return way

    def _prepare(self, address: SshAddress) -> None:
        self._places.open_runtime()
        self._places.pin(address)

    def _leave_master(self, address: SshAddress) -> None:
        # A command and not -N: a client that finds itself second uses the first one's socket and ends.
        self._call(address, [*_DETACHED, *self.ssh_argv(address, "-T", "-o", "ControlMaster=auto"), "true"])

    def _call(self, address: SshAddress, argv: Sequence[str]) -> None:
        # What this does is a convenience for the next command: its failure only costs that one time.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                argv,
                env=master_environment(self._environ, address),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                check=False,
                timeout=10,
            )
            _log.debug("%s ended with %d", argv[0], done.returncode)
