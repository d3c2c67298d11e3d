"""How old the store's newest checkpoint gets, whatever the interval at which a script writes them.

The loop runs on a clock of the test's, so that its scans, its uploads and the script meet in every possible way.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.agent.base.config import write_run_config
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.results.restore import restore
from orchestrator.agent.results.upload import MANIFEST
from orchestrator.agent.watch import upload_loop
from tests.agent.configs import run_config
from tests.agent.uploads import uploading_machine

SCAN_EVERY = 5.0
SCANS_UNTIL_UPLOADED = 3
"""Once it is time: a checkpoint is complete in the second of them, or counts as never settling in the third."""
WATCHED_S = 600
INTERVALS = (1, 4, 5, 7, 7.5, 8, 10, 11, 14.5, 15, 23, 29.5, 30, 35)
"""Seconds between two checkpoints, many of which meet the scans and uploads again and again."""


@dataclass
class Clock:
    """Replaces the module `time` in the loop.

    Attributes:
        now: seconds since the script's start.
    """

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()

    def ticks(self, until: float) -> Iterator[float]:
        for self.now in itertools.takewhile(lambda now: now < until, itertools.count(0.0, 0.5)):
            yield self.now


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("upload_every", [10.0, 30.0])
@pytest.mark.parametrize("is_in_place", [True, False], ids=["in_place", "new_file"])
def test_store_has_what_was_written_an_upload_and_three_scans_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_place: bool, upload_every: float, interval: float
) -> None:
    """A file that is rewritten, or new ones of which the newest two are kept; their format is unknown."""
    layout, store = Layout(tmp_path / "machine"), tmp_path / "store"
    layout.prepare()
    machine = uploading_machine(layout, store).replace(sample_every=SCAN_EVERY, ship_every=upload_every)
    write_run_config(layout, run_config())
    log = RunLog(lambda: layout.task("").log_file)
    restore(layout, machine, log)
    clock = Clock()
    monkeypatch.setattr(upload_loop, "time", clock)
    loop = upload_loop.UploadLoop(layout, machine, log, last_upload=lambda: time.time() + 3600, in_haste=lambda: False)
    folder = layout.task("").checkpoints
    folder.mkdir(exist_ok=True)
    written: list[float] = []
    waited = []
    for now in clock.ticks(WATCHED_S):
        if now >= len(written) * interval:
            checkpoint = folder / ("last.bin" if is_in_place else f"step-{len(written):04}.bin")
            checkpoint.write_text(str(now))
            os.utime(checkpoint, (now, now))
            written.append(now)
            for old in sorted(folder.iterdir())[:-2]:
                old.unlink()
        loop.step()
        stored = newest_stored(store)
        waited.append(now - next((at for at in written if at > stored), now))
    assert max(waited) <= upload_every + SCANS_UNTIL_UPLOADED * SCAN_EVERY


def newest_stored(store: Path) -> float:
    """Return when the store's newest checkpoint was written; -1 without one."""
    files = [row for manifest in store.rglob(MANIFEST) for row in json.loads(manifest.read_text())["files"]]
    return max((float(row["mtime"]) for row in files if row["path"].endswith(".bin")), default=-1.0)
