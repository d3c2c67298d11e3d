"""The parts that one command on one computer uses with the fake cloud."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.cloud.context import CloudContext
from orchestrator.adapters.cloud.provider import CloudProvider
from tests.support.fake_cloud.account import FakeCloud
from tests.support.fake_cloud.api import FakeCloudApi
from tests.support.fake_cloud.market import FakeMarket
from tests.support.fake_cloud.process import FakeRecords, Process


def fake_context(
    cloud: FakeCloud, files: dict[str, bytes], claims: Path, process: Process | None = None
) -> CloudContext:
    """Make the context of one command on one computer; `files` are that computer's records."""
    process = process or Process()
    if cloud.volumes is not None:
        cloud.volumes.step = process.step
    return CloudContext(
        api=FakeCloudApi(cloud, process),
        records=FakeRecords(files, process),
        clock=cloud.clock,
        key_file=Path("key"),
        claims=claims,
        render=lambda spec, _form: spec.host_private_key.encode(),
    )


def fake_provider(cloud: FakeCloud, files: dict[str, bytes], claims: Path) -> CloudProvider:
    """Make the provider of one command on one computer."""
    return CloudProvider(
        fake_context(cloud, files, claims),
        FakeMarket(cloud),
        ends_by_itself=cloud.traits.is_regional,
        caveats=("nothing here is real",),
    )
