"""A machine that uploads all the time, and what happens in the middle of one of its uploads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.s3.store import FolderStore
from orchestrator.agent.watch.upload_loop import UploadLoop
from tests.support.waiting import wait_until


def uploading_machine(layout: Layout, store: Path) -> MachineConfig:
    """Return the configuration of a machine that scans and uploads in each round, an hour before its deadline."""
    now = time.time()
    return MachineConfig(
        machine="digits-1a2b-m1",
        run="digits-1a2b",
        provider="local",
        root=str(layout.root),
        created=now,
        deadline_at=now + 3600,
        usd_per_hour="1.99",
        store_url=store.as_uri(),
        sample_every=0.0,
        ship_every=0.0,
    )


@contextmanager
def during_upload(loop: UploadLoop, store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Upload once; the body runs when the first content is in the store, and nothing else follows before its end."""
    may_go_on = threading.Event()
    put = FolderStore.put

    def put_and_wait(self: FolderStore, key: str, chunks: Iterable[bytes]) -> None:
        put(self, key, chunks)
        may_go_on.wait(60)

    monkeypatch.setattr(FolderStore, "put", put_and_wait)
    uploading = threading.Thread(target=loop.step)
    uploading.start()
    wait_until(lambda: any(store.rglob("blobs/*")))
    try:
        yield
    finally:
        may_go_on.set()
        uploading.join()
