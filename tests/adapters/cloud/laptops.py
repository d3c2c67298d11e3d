"""A laptop that uses the shared cloud provider with a fake account."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.adapters.store.settings import S3Settings
from orchestrator.core.machine import Machine
from tests.adapters.cloud import life
from tests.adapters.cloud.faults import CLOUDS
from tests.adapters.cloud.life import M1
from tests.support.clocks import FakeClock
from tests.support.fake_cloud.account import FakeCloud
from tests.support.fake_cloud.command import fake_context
from tests.support.fake_cloud.market import FakeMarket
from tests.support.fake_cloud.process import FakeRecords
from tests.support.fake_cloud.volumes import FakeVolumes

EVERY_CLOUD = pytest.mark.parametrize("cloud", CLOUDS)


@dataclass
class Laptop:
    """A laptop and its account."""

    cloud: FakeCloud
    folder: Path
    files: dict[str, bytes] = field(default_factory=dict)
    has_full_records: bool = False
    bucket: S3Settings | None = None
    key_file: Path = Path("nowhere")

    def provider(self) -> CloudProvider:
        """Open the provider, as each command does."""
        ctx = fake_context(self.cloud, self.files, self.folder)
        assert isinstance(ctx.records, FakeRecords)
        ctx.records.is_full = self.has_full_records
        ctx = replace(ctx, bucket=self.bucket, key_file=self.key_file)
        return CloudProvider(ctx, FakeMarket(self.cloud), ends_by_itself=True, caveats=("nothing here is real",))

    def create(self) -> Machine:
        return self.provider().create(replace(life.order(self.cloud.traits), ssh_from="192.0.2.0/24"))

    def destroy(self) -> None:
        self.provider().destroy(M1)
        self.cloud.clock.sleep(timedelta(minutes=2))
        assert self.provider().describe(M1) is None

    def elsewhere(self) -> Laptop:
        """Return another laptop with the same account and no records."""
        return replace(self, files={})


def laptop(cloud: str, tmp_path: Path, volumes: FakeVolumes | None = None) -> Laptop:
    clock = volumes.clock if volumes else FakeClock()
    return Laptop(FakeCloud(CLOUDS[cloud], clock=clock, volumes=volumes), tmp_path)
