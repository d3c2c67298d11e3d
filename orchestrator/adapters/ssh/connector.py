"""Connects to machines over SSH, and keeps connections open for later commands."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Protocol

from orchestrator.adapters.host.child_environment import master_environment
from orchestrator.adapters.ssh.openssh import OpenSshRemote
from orchestrator.adapters.ssh.options import openssh_argv, openssh_options
from orchestrator.adapters.ssh.proxy import proxy_command
from orchestrator.adapters.ssh.ssh_files import SshFiles, answers
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Clock, Remote

_log = logging.getLogger(__name__)

# sh starts its arguments in the background and ends, so that nothing waits for them, and no Ctrl-C ends them.
_DETACHED = ("sh", "-c", '"$@" &', "sh")


_PROBE_TIME = timedelta(seconds=4)
"""Time to send a packet three times (RFC 6298: again after 1 s and 2 s): a firewall drops packets without an answer."""


class _Way(Remote, Protocol):
    @property
    def usable(self) -> bool: ...


class SshConnector:
    """Implements `core.ports.Connector`."""

    def __init__(
        self,
        ssh_files: SshFiles,
        clock: Clock,
        *,
        environ: Mapping[str, str] = MappingProxyType({}),
        within: timedelta = timedelta(0),
    ) -> None:
        """Set up a connector.

        Args:
            ssh_files: the paths of pins and control sockets.
            clock: tells the time and sleeps.
            environ: the user's; a connection that is kept open gets only variables that aren't secret.
            within: how long to wait for a machine that doesn't answer yet; zero doesn't wait.
        """
        self._ssh_files = ssh_files
        self._clock = clock
        self._environ = environ
        self._within = within
        self._ways: dict[SshAddress, _Way] = {}

    def connect(self, address: SshAddress, *, within: timedelta | None = None) -> Remote:
        """Connect, or return the open connection; `within` is how long to try."""
        way = self._ways.get(address)
        if way is None or not way.usable:
            way = self._ways[address] = self._open(address, self._within if within is None else within)
        return way

    def opened(self, address: SshAddress) -> Remote | None:
        """Return the connection over an earlier command's control socket; None if there is none."""
        return self.connect(address) if answers(self._ssh_files.control_socket(address)) else None

    def reaches(self, address: SshAddress) -> bool:
        """Tell whether a server listens at the address; nothing is sent to it."""
        # A machine behind a jump host can't be probed, and its firewall needn't admit this computer.
        if address.is_proxied or answers(self._ssh_files.control_socket(address)):
            return True
        try:
            socket.create_connection((address.host, address.port), _PROBE_TIME.total_seconds()).close()
        except OSError:
            return False
        return True

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the OpenSSH client's argv, which ends with the host; options given here win."""
        self._prepare(address)
        return openssh_argv(openssh_options(self._ssh_files, address), address, options)

    def forget(self, address: SshAddress) -> None:
        """Close the connections to a machine that is gone, and delete its pin."""
        for user in {address, address.as_admin}:
            self._forget(user)

    def _forget(self, address: SshAddress) -> None:
        way = self._ways.pop(address, None)
        if way is not None:
            way.close()
        socket = self._ssh_files.control_socket(address)
        if answers(socket):
            self._call(address, self.ssh_argv(address, "-O", "exit"))
        socket.unlink(missing_ok=True)
        self._ssh_files.known_hosts(address).unlink(missing_ok=True)

    def close(self) -> None:
        """Close this command's connections and abort what runs over them; control sockets stay for the next command."""
        while self._ways:
            self._ways.popitem()[1].close()

    def _open(self, address: SshAddress, within: timedelta) -> _Way:
        self._prepare(address)
        if answers(self._ssh_files.control_socket(address)):
            return OpenSshRemote(self._ssh_files, address, self._environ)
        # Imported when needed: importing fabric and tenacity takes longer than all other work of a quick command.
        from orchestrator.adapters.ssh.dial import dial  # noqa: PLC0415

        way = dial(address, self._clock, within, proxy=proxy_command(address, self._ssh_files.user_config))
        self._leave_master(address)
        return way

    def _prepare(self, address: SshAddress) -> None:
        self._ssh_files.open_runtime()
        self._ssh_files.pin(address)

    def _leave_master(self, address: SshAddress) -> None:
        # A command rather than -N: a client that comes second uses the first one's socket and ends.
        self._call(address, [*_DETACHED, *self.ssh_argv(address, "-T", "-o", "ControlMaster=auto"), "true"])

    def _call(self, address: SshAddress, argv: Sequence[str]) -> None:
        # This only makes the next command quicker, so its failure doesn't matter.
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
