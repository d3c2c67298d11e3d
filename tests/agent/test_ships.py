"""When results are copied to the store, and what a copy may claim."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.agent import processes, state
from orchestrator.agent.files import read_json
from orchestrator.agent.layout import Layout
from orchestrator.agent.restore import restore
from orchestrator.agent.runlog import RunLog
from orchestrator.agent.ships import ShipLoop
from orchestrator.agent.wire import RUNNING, STOPPED, Command, MachineConfig
from tests.waiting import wait_until


def test_a_copy_that_began_before_the_end_is_not_the_last_one(tmp_path: Path) -> None:
    """A command ends in the middle of a copy, which is older than its end; the next one has what was saved last."""
    layout = Layout(tmp_path / "machine")
    checkpoints = layout.results / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "10.pt").write_text("ten")
    # Much to read: the copy is under way for a while.
    (layout.results / "output").mkdir()
    with (layout.results / "output" / "z").open("wb") as file:
        file.truncate(256 << 20)
    store = tmp_path / "store"
    now = time.time()
    machine = MachineConfig(
        machine="digits-1a2b-m1",
        run="digits-1a2b",
        provider="local",
        root=str(layout.root),
        created=now,
        deadline=now + 3600,
        usd_per_hour="1.99",
        store_url=store.as_uri(),
        sample_every=0.0,
        ship_every=0.0,
    )
    log = RunLog(layout.log_file)
    restore(layout, machine, log)
    live = state.State(
        command=Command(state=RUNNING, attempt=1, since=now),
        runner=os.getpid(),
        runner_identity=processes.identify(os.getpid()),
    )
    state.save(layout, live)
    loop = ShipLoop(layout, machine, log, last_ship=lambda: now + 3600, in_haste=lambda: True)

    copying = threading.Thread(target=loop.step)
    copying.start()
    wait_until(lambda: any(store.rglob("blobs/*")))
    (checkpoints / "20.pt").write_text("twenty")
    over = live.turned(STOPPED, reason="spot notice")
    state.save(layout, replace(over, runner=0, runner_identity=""))
    assert copying.is_alive()
    copying.join()
    assert 0 < read_json(layout.note("shipped"))["time"] < over.command.since
    loop.step()
    last = read_json(layout.note("shipped"))
    assert last["time"] >= over.command.since
    assert last["checkpoint"] == "20.pt"
