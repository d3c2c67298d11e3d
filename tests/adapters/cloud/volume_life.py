"""A command's steps for a machine's data volumes, around a creation that always succeeds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from orchestrator.adapters.cloud.volumes.end import end_volumes
from orchestrator.adapters.cloud.volumes.find import existing_volumes
from orchestrator.adapters.cloud.volumes.holders import give_volumes
from orchestrator.adapters.cloud.volumes.ready import ensure_volumes
from orchestrator.core.job import Resources, VolumeSpec
from orchestrator.core.machine import MachineOrder
from tests.support.fake_cloud.volumes import PLACE, FakeVolumes
from tests.support.orders import changed, make_offer

RUN, OTHER = "digits-1121-ab2c", "other-1121-cd3e"
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=20)


def order(*volumes: VolumeSpec, **changes: Any) -> MachineOrder:
    """Order a machine of the run."""
    plain = MachineOrder(
        id=f"{RUN}-m1",
        run_id=RUN,
        offer=make_offer("fake", "large", "here", zone=PLACE, usd_per_hour=Decimal(1)),
        lifetime_seconds=3600,
        authorized_key="",
        agent_archive=b"",
        store_url="",
        resources=Resources(volumes=volumes),
    )
    return changed(plain, **changes)


def launch(cloud: FakeVolumes, wanted: MachineOrder, instance_id: str = "i-1") -> None:
    """Create the order's machine with its volumes, or complete the one that an earlier command created."""
    if instance_id in cloud.instances:
        volumes = existing_volumes(cloud, wanted.volumes, wanted.region)
    else:
        volumes = ensure_volumes(cloud, wanted, cloud.clock)
        cloud.start(instance_id, wanted.run_id, volumes if cloud.traits.attaches_at_birth else ())
    give_volumes(cloud, instance_id, wanted.run_id, volumes, cloud.clock)


def tear_down(cloud: FakeVolumes, run_id: str = RUN, instance_id: str = "i-1") -> Sequence[str]:
    """End the run's machine, and settle its volumes."""
    if instance_id in cloud.instances:
        cloud.end(instance_id)
    return [end.says for end in end_volumes(cloud, run_id, "here", cloud.clock)]
