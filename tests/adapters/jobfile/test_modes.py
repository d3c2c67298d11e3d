"""A mode overrides keys of its job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec

from orchestrator.core.job import DataMount, Job, Resources
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import Expect, SupervisorKind, SupervisorSpec

Read = Callable[..., Job]


MODES = """
resources: {infra: aws/us-east-1/us-east-1a, accelerators: A10G, instance_type: g5.xlarge, disk_size: 100}
envs: {A: a, B: b}
secrets: [S]
supervisor: screen
deadline: 2h
run: long
outputs: [a]
recover: true
expect: {duration: 1h, first_step: 1m}
modes:
  fast:
    recover: false
    resources: {accelerators: {MI300X: 8}}
    envs: {B: bb, C: c}
    secrets: [T]
    supervisor: {restarts: 0}
    run: short
    outputs: [b, c]
    expect: {duration: 5m}
  empty:
  elsewhere: {resources: {infra: do}}
  region: {resources: {region: us-west-2}}
"""


def test_a_mode_is_merged_into_the_job(read: Read) -> None:
    """Mappings are merged key by key, anything else is replaced. What the mode leaves out stays."""
    job = read(MODES, mode="fast", environ={"S": "s", "T": "t"})
    assert job.mode == "fast"
    assert job.envs == (("A", "a"), ("B", "bb"), ("C", "c"))
    assert job.secrets == ("S", "T")
    assert job.supervisor == SupervisorSpec(kind=SupervisorKind.SCREEN, restarts=0)
    assert (job.tasks[0].run, job.tasks[0].outputs, job.time_limit) == ("short", ("b", "c"), timedelta(hours=2))
    assert not job.recover
    assert job.expect == Expect(duration=timedelta(minutes=5), first_step=timedelta(minutes=1))
    assert job.resources.accelerators == Accelerators(name="mi300x", count=8)
    assert (job.resources.zone, job.resources.disk_gib) == ("us-east-1a", 100)


def test_an_empty_mode_changes_nothing(read: Read) -> None:
    """Nor do the modes that were not chosen."""
    environ = {"S": "s"}
    plain = read(MODES, environ=environ)
    assert plain.tasks[0].run == "long"
    assert read(MODES, mode="empty", environ=environ) == msgspec.structs.replace(plain, mode="empty")


def test_another_provider_drops_what_only_the_first_one_knows(read: Read) -> None:
    """A region, a zone, a type and an image of AWS mean nothing elsewhere; the GPU and the disk do."""
    resources = read(MODES, mode="elsewhere", environ={"S": "s"}).resources
    assert resources == Resources(provider="do", accelerators=Accelerators(name="a10g"), disk_gib=100)


def test_another_region_drops_the_zone(read: Read) -> None:
    """A zone lies in one region."""
    resources = read(MODES, mode="region", environ={"S": "s"}).resources
    assert (resources.regions, resources.zone, resources.instance_type) == (("us-west-2",), None, "g5.xlarge")


def test_data_in_a_mode_replaces_data_with_the_same_target(read: Read, folder: Path) -> None:
    """For example less data for a quick mode, in the folder where the command looks."""
    for name in ("full", "small", "extra"):
        (folder / name).mkdir()
    text = "data: {in: full, more: extra}\nmodes: {fast: {data: [{source: small, target: in}]}}"
    job = read(text, mode="fast")
    assert job.data == (
        DataMount(source=str(folder / "small"), target="in"),
        DataMount(source=str(folder / "extra"), target="more"),
    )
