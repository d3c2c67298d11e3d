"""The link between instances of the API and machines that run."""

from __future__ import annotations

import logging
import threading
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instances import Instance

from tests.cloudbox import images, moto_state
from tests.cloudbox.addresses import AddressPool
from tests.cloudbox.disks import Disks
from tests.cloudbox.identity import InstanceCredentials
from tests.cloudbox.meter import Meter

if TYPE_CHECKING:
    from tests.cloudbox.machines import Machines, MachineSpec
    from tests.cloudbox.metadata import MetadataService

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """An instance's machine, and what tells it who it is."""

    instance: Instance
    region: str
    metadata: MetadataService
    disks: set[str] = field(default_factory=set)
    booted: threading.Event = field(default_factory=threading.Event)


class Lifecycle:
    """Makes machines follow their instances, and instances their machines.

    `lock` is the box's: it is held by whatever changes instances.
    """

    def __init__(self, folder: Path, meter: Meter, lock: threading.RLock, *, with_machines: bool) -> None:
        self._lock = lock
        self._meter = meter
        self._disks = Disks(folder / "disks")
        self._addresses = AddressPool()
        self._addresses.install()
        self._machines = _start_machines(folder) if with_machines else None
        self._links: dict[str, Link] = {}
        self._timers: list[threading.Timer] = []

    def settle(self) -> None:
        """Boot, end and attach what the API's state asks for; let the meter look."""
        with self._lock:
            self._meter.observe()
            instances = list(moto_state.instances())
            for region, instance in instances:
                self._settle_instance(region, instance)
            self._disks.settle()
            self._addresses.keep_only({str(one.public_ip) for _, one in instances if one.public_ip})

    def reclaim(self, instance_id: str, notice: timedelta | None) -> None:
        """Take a spot machine back: at once, or with a notice first.

        Raises:
            LookupError: There is no such spot instance running.
        """
        with self._lock:
            _, instance = moto_state.find_instance(instance_id)
            if instance.lifecycle != "spot" or instance.state not in moto_state.RUNNING:
                raise LookupError(f"{instance_id} is no spot instance that runs")
            if notice is None:
                self._reclaim_now(instance)
                return
            if link := self._links.get(instance_id):
                link.metadata.notice = datetime.now(UTC) + notice
            self._later(notice, lambda: self._reclaim_now(instance))

    def rebalance(self, instance_id: str) -> None:
        """Recommend that a spot machine's work moves elsewhere.

        Raises:
            LookupError: There is no machine of this instance.
        """
        with self._lock:
            if instance_id not in self._links:
                raise LookupError(f"{instance_id} has no machine that could hear it")
            self._links[instance_id].metadata.rebalance = datetime.now(UTC)

    def terminate(self, instance_ids: list[str], reason: str, message: str) -> None:
        """End instances for another reason than a call."""
        with self._lock:
            for instance_id in instance_ids:
                _, instance = moto_state.find_instance(instance_id)
                if instance.state not in moto_state.GONE:
                    moto_state.end_instance(instance, reason, message)
            self.settle()

    def describe(self) -> list[dict[str, Any]]:
        """Return the machines there are."""
        with self._lock:
            return [
                {
                    "instance_id": link.instance.id,
                    "address": link.instance.public_ip,
                    "metadata_url": link.metadata.url,
                    "booted": link.booted.is_set(),
                }
                for link in self._links.values()
            ]

    def end_all(self) -> None:
        """Pull every plug, and forget what was going to happen."""
        with self._lock:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()
            for link in list(self._links.values()):
                self._unplug(link)

    def close(self) -> None:
        """End all machines for good."""
        self.end_all()
        if self._machines:
            self._machines.close()

    def _settle_instance(self, region: str, instance: Instance) -> None:
        link = self._links.get(instance.id)
        running = instance.state in moto_state.RUNNING
        if link and not running:
            self._unplug(link)
        elif link:
            self._attach_new_disks(link)
        elif running and self._machines and instance.public_ip:
            self._boot(region, instance)

    def _boot(self, region: str, instance: Instance) -> None:
        from tests.cloudbox.machines import MachineSpec
        from tests.cloudbox.metadata import MetadataService

        user_data, zone = _user_data(instance), str(instance.availability_zone)
        address = str(instance.public_ip)
        metadata = MetadataService(
            address,
            instance_id=instance.id,
            region=region,
            zone=zone,
            instance_type=instance.instance_type,
            user_data=user_data,
            credentials=InstanceCredentials(instance),
        )
        disks = self._disks.of_instance(instance)
        link = Link(instance=instance, region=region, metadata=metadata, disks=set(disks))
        self._links[instance.id] = link
        spec = MachineSpec(
            name=instance.id,
            address=address,
            user_data=user_data,
            metadata_url=metadata.url,
            region=region,
            zone=zone,
            base=images.base_of(instance.image_id, region),
            disks=tuple(disks.values()),
        )
        _in_background(lambda: self._carry_out_boot(link, spec))

    def _carry_out_boot(self, link: Link, spec: MachineSpec) -> None:
        assert self._machines
        try:
            self._machines.boot(spec, lambda _, powered_off: self._over(link, powered_off))
        finally:
            link.booted.set()

    def _attach_new_disks(self, link: Link) -> None:
        assert self._machines
        machines = self._machines
        for volume_id, (file, serial) in self._disks.of_instance(link.instance).items():
            if volume_id not in link.disks:
                link.disks.add(volume_id)
                attach = partial(machines.attach, _name(link), file, serial)
                _in_background(partial(_when_booted, link, attach))

    def _unplug(self, link: Link) -> None:
        assert self._machines
        machines = self._machines
        del self._links[link.instance.id]
        link.metadata.close()
        _in_background(partial(_when_booted, link, partial(machines.end, _name(link))))

    def _over(self, link: Link, powered_off: bool) -> None:
        """React to a machine that is over: one that powers itself off takes its instance with it."""
        with self._lock:
            if self._links.get(link.instance.id) is not link or not powered_off:
                return
            reason, message = "Client.InstanceInitiatedShutdown", "Instance initiated shutdown"
            if link.instance.instance_initiated_shutdown_behavior == "terminate":
                moto_state.end_instance(link.instance, reason, message)
            else:
                moto_state.stop_instance(link.instance, reason, message)
            self.settle()

    def _reclaim_now(self, instance: Instance) -> None:
        self.terminate([instance.id], "Server.SpotInstanceTermination", "Spot instance termination")

    def _later(self, delay: timedelta, act: Callable[[], None]) -> None:
        timer = threading.Timer(delay.total_seconds(), act)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def _start_machines(folder: Path) -> Machines:
    from tests.cloudbox.machines import Machines

    return Machines(folder / "machines")


def _name(link: Link) -> str:
    return str(link.instance.id)


def _user_data(instance: Instance) -> bytes:
    return b64decode(instance.user_data.as_bytes()) if instance.user_data else b""


def _when_booted(link: Link, act: Callable[[], None]) -> None:
    link.booted.wait()
    act()


def _in_background(act: Callable[[], None]) -> None:
    threading.Thread(target=act, daemon=True).start()
