"""The machines of the box: one systemd-nspawn container for each instance, with its own systemd, cloud-init and sshd.

Machines share the host's network, so that they reach the box's services; each has its sshd on its own loopback address.
Machines of one run have a private network (`network`).
Each has a keeper process (`nspawn`), which ends the machine when this process ends, in any way.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from tests.cloudbox.nspawn.cgroups import remove_groups
from tests.cloudbox.nspawn.order import ENDED, POWERED_OFF, REPOSITORY, Order, group_name, keeper_argv, remove_folder
from tests.cloudbox.nspawn.seed import Seed

_LOGGER = logging.getLogger(__name__)
# For unmounting and releasing disks; if it takes longer, it is stuck.
_END_TIMEOUT_S = 60.0
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """An instance, as far as its machine shows it."""

    name: str
    address: str
    """The machine's own loopback address: sshd listens on its port 22."""
    user_data: bytes
    region: str
    zone: str
    environment: Mapping[str, str]
    """Variables of every login and service, such as the address of the cloud's metadata service."""
    base: str = "host"
    """"host", a copy of this computer, or "bare", a minimal Debian."""
    disks: tuple[tuple[str, str], ...] = ()
    """(image file, name in /dev/disk/by-id) of each disk."""
    files: Mapping[str, str] = field(default_factory=dict)
    """More files of the image, by absolute path."""
    services: tuple[str, ...] = ()
    """Units among `files` that start at boot."""
    hidden: tuple[str, ...] = ()
    """Glob patterns, relative to the root, of files of the base that the machine doesn't have."""
    private_address: str = ""
    interface: str = ""
    """Its name in the private network of its run's machines; empty: there is none, and it shares this computer's."""
    reaches: tuple[str, ...] = ()
    """URLs of this computer's services that it needs, where it has a network of its own."""
    network: str = ""
    """The path of its network namespace; empty: it shares this computer's."""


@dataclass(slots=True)
class _Machine:
    keeper: subprocess.Popen[str]
    talking: threading.Lock = field(default_factory=threading.Lock)
    pulled: bool = False


class Machines:
    """Boots and ends machines.

    `folder` exists only while there are machines: after a SIGKILL of this process nobody would remove it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._machines: dict[str, _Machine] = {}
        self._consoles: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def boot(self, spec: MachineSpec, on_exit: Callable[[str, bool], None]) -> None:
        """Boot a machine, without waiting for it.

        Args:
            spec: The machine; its name must not be that of a running one.
            on_exit: Called from a thread with (name, powered off by itself) after the machine has ended and its disks
                are free.
        """
        keeper = subprocess.Popen(
            keeper_argv(_make_folder(self.folder / spec.name)),
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        machine = _Machine(keeper=keeper)
        with self._lock:
            self._machines[spec.name] = machine
            self._consoles[spec.name] = []
        # If the keeper is dead already, its watcher reports that.
        with contextlib.suppress(BrokenPipeError):
            _send(machine, _order(spec).encode())
        threading.Thread(target=self._watch, args=(spec.name, machine, on_exit), name=spec.name, daemon=True).start()

    def attach(self, name: str, image: str, by_id: str) -> None:
        """Attach an image file to a machine as a disk, and wait until it is there.

        Raises:
            KeyError: No machine of this name is running.
            OSError: The disk could not be attached; the message says why.
        """
        machine = self._machines[name]
        with machine.talking:
            _send(machine, json.dumps([image, by_id]))
            answer = cast("IO[str]", machine.keeper.stdout).readline().strip()
        if answer != "attached":
            raise OSError(answer or f"{name} ended before the disk was attached")

    def end(self, name: str) -> None:
        """End a machine at once, and wait until nothing is left of it. Ending a missing machine succeeds."""
        machine = self._machines.get(name)
        if machine is not None:
            machine.pulled = True
            with machine.talking, contextlib.suppress(BrokenPipeError):
                cast("IO[str]", machine.keeper.stdin).close()
            machine.keeper.wait(_END_TIMEOUT_S)

    def console(self, name: str) -> str:
        """Return a machine's console output, also after its end."""
        return "".join(self._consoles[name])

    def close(self) -> None:
        """End all machines."""
        with self._lock:
            names = list(self._machines)
        for name in names:
            self.end(name)

    def _watch(self, name: str, machine: _Machine, on_exit: Callable[[str, bool], None]) -> None:
        self._consoles[name].extend(cast("IO[str]", machine.keeper.stderr))
        status = machine.keeper.wait()
        if status not in {POWERED_OFF, ENDED}:
            # The keeper was killed or failed: it can have left only this.
            remove_groups(group_name(self.folder / name))
            remove_folder(self.folder / name)
        if status != POWERED_OFF and not machine.pulled:
            _LOGGER.warning("machine %s ended by itself, status %d: %s", name, status, self.console(name)[-2000:])
        with self._lock:
            del self._machines[name]
        _unplug(machine)
        on_exit(name, status == POWERED_OFF)


def _make_folder(folder: Path) -> Path:
    for _ in range(_ATTEMPTS):
        # The keeper of a machine that ends right now may remove the parent folder in between.
        with contextlib.suppress(FileNotFoundError):
            folder.mkdir(parents=True)
            return folder
    raise FileNotFoundError(folder)


def _order(spec: MachineSpec) -> Order:
    seed = Seed(
        name=spec.name,
        address=spec.address,
        user_data=spec.user_data,
        region=spec.region,
        zone=spec.zone,
        environment=dict(spec.environment),
        files=dict(spec.files),
        services=spec.services,
        hidden=spec.hidden,
    )
    return Order(seed=seed, base=spec.base, disks=spec.disks, network=spec.network)


def _send(machine: _Machine, line: str) -> None:
    assert machine.keeper.stdin
    machine.keeper.stdin.write(f"{line}\n")
    machine.keeper.stdin.flush()


def _unplug(machine: _Machine) -> None:
    with machine.talking:
        for pipe in (machine.keeper.stdin, machine.keeper.stdout, machine.keeper.stderr):
            # The buffer may hold a line that a dead keeper never read.
            with contextlib.suppress(BrokenPipeError):
                cast("IO[str]", pipe).close()
