"""What is said of a run while its watch begins the next mode: nothing of the mode before is taken for the new one's."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from orchestrator.agent.base import state
from orchestrator.agent.base.config import open_tasks, write_run_config
from orchestrator.agent.base.files import write_json
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.record import to_json
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.base.wire import FAILED, SUCCEEDED, MachineConfig, RunConfig
from orchestrator.agent.results.restore import restore
from orchestrator.agent.results.upload import MANIFEST
from orchestrator.agent.run.start import enter_mode
from orchestrator.agent.watch.report import make_report
from orchestrator.agent.watch.upload_loop import UploadLoop
from tests.agent.configs import run_config
from tests.agent.uploads import during_upload, uploading_machine
from tests.support.waiting import wait_until

MODES = 60


def write_machine(layout: Layout, store: Path) -> MachineConfig:
    layout.prepare()
    machine = uploading_machine(layout, store)
    write_json(layout.machine_file, to_json(machine))
    return machine


def end(layout: Layout, run: RunConfig, ending: str, reason: str) -> None:
    """Write the state of a mode whose only task has ended."""
    (context,) = open_tasks(layout, run)
    context.task.prepare()
    state.save(context.task, state.fresh("nohup", 0, 1.0).turned(ending, reason=reason))


def test_state_and_mode_are_of_the_same_mode(tmp_path: Path) -> None:
    """However often another mode begins while they are read: here, each ends with its own number as the reason."""
    layout = Layout(tmp_path)
    write_machine(layout, tmp_path / "store")
    modes = [run_config(mode=f"m{number}", sequence=number) for number in range(MODES)]
    for number, run in enumerate(modes):
        end(layout, run, FAILED, str(number))
    write_run_config(layout, modes[0])
    seen: list[tuple[int, str]] = []

    def go_on() -> None:
        for number, run in enumerate(modes[1:]):
            wait_until(lambda number=number: len(seen) > number)  # type: ignore[misc]
            write_run_config(layout, run)

    watch = threading.Thread(target=go_on)
    watch.start()
    while watch.is_alive():
        seen += [(now.sequence, now.command.reason) for now in (make_report(layout), state.observe_run(layout))]
    watch.join()
    assert len({sequence for sequence, _ in seen}) > 10
    assert [(sequence, reason) for sequence, reason in seen if str(sequence) != reason] == []


def test_manifest_is_of_the_mode_in_which_the_upload_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next mode begins during an upload: the store must not say that it has succeeded, or has no results."""
    layout, store = Layout(tmp_path / "machine"), tmp_path / "store"
    machine = write_machine(layout, store)
    second = run_config(mode="fast", sequence=1)
    first = run_config(mode="validate").replace(then=(second,))
    end(layout, first, SUCCEEDED, "")
    write_run_config(layout, first)
    (layout.results / "output").mkdir(exist_ok=True)
    (layout.results / "output" / "z").write_text("z")
    log = RunLog(lambda: layout.task("").log_file)
    restore(layout, machine, log)
    loop = UploadLoop(layout, machine, log, last_upload=lambda: time.time() + 3600, in_haste=lambda: True)
    with during_upload(loop, store, monkeypatch):
        enter_mode(layout, second)
    (written,) = store.rglob(MANIFEST)

    def stored() -> tuple[int, str, str, list[str]]:
        manifest = json.loads(written.read_text())
        earlier = [each["mode"] for each in manifest["earlier"]]
        return manifest["sequence"], manifest["mode"], manifest["command"]["state"], earlier

    assert stored() == (0, "validate", "waiting", [])
    loop.step()
    assert stored() == (1, "fast", "waiting", ["validate"])
