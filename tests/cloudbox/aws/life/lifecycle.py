"""The link between instances of the API and machines that run."""

from __future__ import annotations

import logging
import threading
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instances import Instance

from tests.agent.standin import T4
from tests.cloudbox.aws.life.disks import Disks
from tests.cloudbox.aws.life.identity import InstanceCredentials
from tests.cloudbox.aws.life.meter import Meter
from tests.cloudbox.aws.life.states import WITH_MACHINES, Durations, States
from tests.cloudbox.aws.rules import firewall, images
from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.machines.addresses import AddressPool
from tests.cloudbox.machines.fleet import Fleet, Link
from tests.cloudbox.machines.gpus import Images

if TYPE_CHECKING:
    from tests.cloudbox.aws.life.metadata import MetadataService

_log = logging.getLogger(__name__)
_INTERFACE = "ens5"
"""What Linux calls the first interface of an instance on Nitro."""


class Lifecycle:
    """Makes machines follow their instances, and instances their machines.

    `lock` is the box's: it is held by whatever changes instances.
    Instances of a placement group (`is_placed`) have a private network.
    """

    def __init__(
        self,
        folder: Path,
        meter: Meter,
        lock: threading.RLock,
        is_placed: Callable[[str], bool],
        *,
        with_machines: bool,
    ) -> None:
        self._is_placed = is_placed
        self._lock = lock
        self._meter = meter
        self._disks = Disks(folder / "disks")
        self._addresses = AddressPool()
        moto_state.take_addresses(self._addresses.take)
        self._fleet: Fleet[MetadataService] | None = Fleet(folder / "machines", lock) if with_machines else None
        self._timers: list[threading.Timer] = []
        self.images = Images()
        self.endpoint = ""
        """The URL of the box's APIs."""
        self.states = States(self._later, WITH_MACHINES if with_machines else Durations())

    def settle(self) -> None:
        """Boot, end and attach what the API's state asks for; let the meter look."""
        with self._lock:
            self._meter.observe()
            instances = list(moto_state.instances())
            for region, instance in instances:
                self.states.observe(instance)
                self._settle_instance(region, instance)
            self._admit(instances)
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
            if link := self._find(instance_id):
                link.metadata.notice = datetime.now(UTC) + notice
            self._later(notice, lambda: self._reclaim_now(instance))

    def rebalance(self, instance_id: str) -> None:
        """Recommend that a spot machine's work moves elsewhere.

        Raises:
            LookupError: There is no machine of this instance.
        """
        with self._lock:
            link = self._find(instance_id)
            if link is None:
                raise LookupError(f"{instance_id} has no machine that could hear it")
            link.metadata.rebalance = datetime.now(UTC)

    def terminate(self, instance_ids: list[str], reason: str, message: str) -> None:
        """End instances for another reason than a call."""
        with self._lock:
            for instance_id in instance_ids:
                _, instance = moto_state.find_instance(instance_id)
                if instance.state not in moto_state.GONE:
                    moto_state.end_instance(instance, reason, message)
            self.settle()

    def finish_states(self) -> None:
        """Let instances that are pending run, and those that shut down be terminated, now."""
        with self._lock:
            self.states.finish()
            self.settle()

    def describe(self) -> list[dict[str, Any]]:
        """Return the machines there are."""
        with self._lock:
            return [
                {
                    "instance_id": link.name,
                    "address": _address(moto_state.find_instance(link.name)[1]),
                    "metadata_url": link.metadata.url,
                    "booted": link.booted.is_set(),
                    "has_network": self._fleet is not None and self._fleet.network.has(link.name),
                }
                for link in (self._fleet.links() if self._fleet else [])
            ]

    def end_all(self) -> None:
        """Pull every plug, and forget what was going to happen."""
        with self._lock:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()
            if self._fleet:
                self._fleet.unplug_all()

    def close(self) -> None:
        """End all machines for good."""
        self.end_all()
        if self._fleet:
            self._fleet.close()

    def _find(self, instance_id: str) -> Link[MetadataService] | None:
        return self._fleet.find(instance_id) if self._fleet else None

    def _settle_instance(self, region: str, instance: Instance) -> None:
        if not self._fleet:
            return
        known, running = self._fleet.find(instance.id) is not None, self.states.may_boot(instance)
        if known and not running:
            self._fleet.unplug(instance.id)
        elif known:
            self._fleet.attach(instance.id, self._disks.of_instance(instance))
        elif running and _address(instance):
            self._boot(self._fleet, region, instance)

    def _admit(self, instances: list[tuple[str, Instance]]) -> None:
        there = [(region, instance) for region, instance in instances if instance.state in moto_state.RUNNING]
        for region, instance in there:
            if self._fleet and self._fleet.network.has(instance.id):
                peers = [other for place, other in there if place == region]
                self._fleet.network.admit(instance.id, firewall.admissions(instance, peers))

    def _boot(self, fleet: Fleet[MetadataService], region: str, instance: Instance) -> None:
        from tests.cloudbox.aws.life.metadata import MetadataService
        from tests.cloudbox.machines.machines import MachineSpec

        user_data, zone = _user_data(instance), str(instance.availability_zone)
        address = _address(instance)
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
        gib = self.images.local_disk_gib
        local = (self._disks.local_disk(instance, gib),) if gib else ()
        image = self.images.render(moto_state.gpus(instance.instance_type), T4)
        spec = MachineSpec(
            name=instance.id,
            address=address,
            user_data=user_data,
            region=region,
            zone=zone,
            environment={"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url},
            base=images.base_of(instance.image_id, region),
            disks=(*disks.values(), *local),
            files=image.files,
            services=image.services,
            hidden=image.hidden,
            private_address=str(instance.private_ip or ""),
            interface=_INTERFACE if self._is_placed(instance.id) else "",
            reaches=(self.endpoint, metadata.url),
        )
        fleet.boot(spec, metadata, set(disks), self._powered_off)

    def _powered_off(self, instance_id: str) -> None:
        """React to a machine that has powered itself off: it takes its instance with it.

        fact: aws-shutdown-terminates
        """
        _, instance = moto_state.find_instance(instance_id)
        reason, message = "Client.InstanceInitiatedShutdown", "Instance initiated shutdown"
        if instance.instance_initiated_shutdown_behavior == "terminate":
            moto_state.end_instance(instance, reason, message)
        else:
            moto_state.stop_instance(instance, reason, message)
        self.settle()

    def _reclaim_now(self, instance: Instance) -> None:
        self.terminate([instance.id], "Server.SpotInstanceTermination", "Spot instance termination")

    def _later(self, delay: timedelta, act: Callable[[], None]) -> None:
        """Do something after a while, unless everything ends before; at once where there is no while."""
        if not delay:
            act()
            return

        def carry_out() -> None:
            with self._lock:
                if timer in self._timers:
                    self._timers.remove(timer)
                    act()
                    self.settle()

        timer = threading.Timer(delay.total_seconds(), carry_out)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def _user_data(instance: Instance) -> bytes:
    return b64decode(instance.user_data.as_bytes()) if instance.user_data else b""


def _address(instance: Instance) -> str:
    """Return where a machine listens; a private one has a network of loopback addresses, or can't be booted here."""
    if instance.public_ip:
        return str(instance.public_ip)
    private = str(instance.private_ip or "")
    return private if private.startswith("127.") else ""
