"""The machines that a cloud's API orders: booted, given disks and ended in the background, in this order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tests.cloudbox.machines.network import Network

if TYPE_CHECKING:
    from tests.cloudbox.machines.machines import Machines, MachineSpec


class Metadata(Protocol):
    """A metadata server for one machine."""

    def close(self) -> None:
        """Stop serving."""


_LOGGER = logging.getLogger(__name__)
# Longer than a keeper needs to end its machine, and than the first installation of a bare Debian.
_END_TIMEOUT_S = 300.0

M = TypeVar("M", bound=Metadata)


@dataclass(slots=True, kw_only=True, eq=False)
class Link(Generic[M]):
    """A machine as the cloud's API sees it; `disks` are the ids of its volumes."""

    name: str
    metadata: M
    disks: set[str]
    booted: threading.Event = field(default_factory=threading.Event)
    """Set when its keeper runs, or could not be started."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when nothing is left of it."""


class Fleet(Generic[M]):
    """Callers hold `lock` when they change the fleet; it is also held while a machine's end is reported."""

    def __init__(self, folder: Path, lock: threading.RLock) -> None:
        self._lock = lock
        self._machines = _make_machines(folder)
        self._links: dict[str, Link[M]] = {}
        self._ending: dict[str, threading.Event] = {}
        self.network = Network()
        """The private network; callers hold `lock`."""

    def links(self) -> list[Link[M]]:
        """Return the machines that should be running."""
        return list(self._links.values())

    def find(self, name: str) -> Link[M] | None:
        """Return a machine that should be running; None if there is none."""
        return self._links.get(name)

    def boot(self, spec: MachineSpec, metadata: M, disks: set[str], on_power_off: Callable[[str], None]) -> None:
        """Boot a machine; `on_power_off` is called with its name after it has powered itself off."""
        link = Link(name=spec.name, metadata=metadata, disks=disks)
        spec = self._connect(spec)
        self._links[spec.name] = link
        before = self._ending.get(spec.name)

        def over(name: str, powered_off: bool) -> None:
            link.over.set()
            with self._lock:
                if powered_off and self._links.get(name) is link:
                    on_power_off(name)

        def boot() -> None:
            if before:
                before.wait(_END_TIMEOUT_S)
            try:
                self._machines.boot(spec, over)
            except OSError:
                link.over.set()
                raise
            finally:
                link.booted.set()

        _in_background(boot)

    def attach(self, name: str, disks: Mapping[str, tuple[str, str]]) -> None:
        """Attach the disks (image file, by-id name) of those volumes that the machine doesn't have yet."""
        link = self._links[name]
        for volume_id, (file, by_id) in disks.items():
            if volume_id not in link.disks:
                link.disks.add(volume_id)
                _in_background(lambda file=file, by_id=by_id: self._attach(link, file, by_id))  # type: ignore[misc]

    def unplug(self, name: str) -> None:
        """End a machine at once. A new machine of this name boots only when nothing is left of the old one."""
        link = self._links.pop(name)
        # At once: a computer without power says no goodbye.
        self.network.leave(name)
        link.metadata.close()
        self._ending[name] = link.over

        def end() -> None:
            link.booted.wait(_END_TIMEOUT_S)
            self._machines.end(name)

        _in_background(end)

    def unplug_all(self) -> None:
        """End every machine at once."""
        for name in list(self._links):
            self.unplug(name)

    def close(self) -> None:
        """End all machines, and wait until nothing is left of them."""
        with self._lock:
            self.unplug_all()
        for over in self._ending.values():
            over.wait(_END_TIMEOUT_S)
        self._machines.close()
        self.network.close()

    def console(self, name: str) -> str:
        """Return a machine's console output, also after its end."""
        return self._machines.console(name)

    def _connect(self, spec: MachineSpec) -> MachineSpec:
        network = self.network.join(
            spec.name,
            interface=spec.interface,
            private=spec.private_address,
            public=spec.address,
            services=spec.reaches,
        )
        return replace(spec, network=network)

    def _attach(self, link: Link[M], file: str, by_id: str) -> None:
        link.booted.wait(_END_TIMEOUT_S)
        try:
            self._machines.attach(link.name, file, by_id)
        except (KeyError, OSError) as err:
            # Most often the machine has ended meanwhile.
            _LOGGER.warning("%s has no disk %s: %r", link.name, by_id, err)


def _make_machines(folder: Path) -> Machines:
    from tests.cloudbox.machines.machines import Machines

    return Machines(folder)


def _in_background(act: Callable[[], None]) -> None:
    threading.Thread(target=act, daemon=True).start()
