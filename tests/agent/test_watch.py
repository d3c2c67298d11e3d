"""The watch daemon: a deadline that always fires, and the end of a machine that is done."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.parse import read_machine_config
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.watch.boot_watchdog import BootWatchdog
from orchestrator.agent.watch.head import HeadWatch
from tests.agent.box import RUN, Box, wait_for
from tests.agent.configs import encode

MakeBox = Callable[..., Box]
TRAIN = """trap 'echo saved > "$KEDGE_CHECKPOINT_DIR/last.pt"; exit 1' TERM; echo up; while true; do sleep 0.05; done"""


def ends_by(path: Path) -> list[str]:
    """An end command that writes down the time."""
    return ["sh", "-c", f"date +%s.%N >> {shlex.quote(str(path))}"]


def test_the_deadline_stops_the_command_and_then_ends_the_machine(make_box: MakeBox, tmp_path: Path) -> None:
    """First SIGTERM and a checkpoint, with reason `deadline`; the machine ends at the deadline, not before."""
    box = make_box(end_command=ends_by(tmp_path / "ended"))
    box.start(TRAIN)
    wait_for(lambda: " up\n" in box.log())
    # Only now, so that a slow start doesn't use it up; the command has half of it to stop.
    now = time.time()
    box.machine |= {"created": now, "deadline": now + 10}
    (box.root / "machine.json").write_text(json.dumps(box.machine))
    box.begin("watch")
    stopped = box.await_state("stopped")
    assert stopped["reason"] == "deadline"
    assert re.search(r"asked to stop: deadline; it has [0-5] s to checkpoint", box.log())
    assert (box.root / "results/checkpoints/last.pt").exists()
    ended = float(wait_for(lambda: (tmp_path / "ended").exists() and (tmp_path / "ended").read_text()))
    assert 0 <= ended - box.machine["deadline"] < 30
    assert stopped["since"] < box.machine["deadline"]


@pytest.mark.parametrize("trouble", ["store", "state", "tools", "disk"])
def test_the_deadline_fires_whatever_else_fails(make_box: MakeBox, tmp_path: Path, trouble: str) -> None:
    """A broken store, an unreadable state or hanging tools don't delay it."""
    now = time.time()
    box = make_box(
        deadline=now + 3,
        store_url="nonsense://x" if trouble == "store" else "",
        path=[str(tmp_path / "tools")] if trouble == "tools" else [],
        end_command=ends_by(tmp_path / "ended"),
    )
    if trouble == "state":
        (box.root / "state.json").mkdir()
    if trouble == "tools":
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools/nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
        (tmp_path / "tools/nvidia-smi").chmod(0o755)
    if trouble == "disk":
        for name in ("results/run.log", "end.log", "heartbeat.json"):
            (box.root / name).symlink_to("/dev/full")
    box.begin("watch")
    # The tools hang for twenty seconds, until they are ended.
    wait_for((tmp_path / "ended").exists, timeout=18)


def test_a_failing_end_command_is_tried_again(make_box: MakeBox, tmp_path: Path) -> None:
    """The machine has to end: after a failure the command is run again."""
    script = tmp_path / "end"
    script.write_text('#!/bin/sh\necho x >> "$0.tries"\n[ $(wc -l < "$0.tries") -ge 2 ]\n')
    script.chmod(0o755)
    box = make_box(deadline=time.time() + 1, end_command=[str(script)])
    box.begin("watch")
    wait_for(lambda: Path(f"{script}.tries").exists() and Path(f"{script}.tries").read_text() == "x\n" * 2)
    assert "the end command failed" in box.log()


def test_a_machine_that_is_done_ends_once_its_results_are_safe(make_box: MakeBox, tmp_path: Path) -> None:
    """With a store, success means: everything is uploaded, the linger is over, the machine ends."""
    store = tmp_path / "store"
    box = make_box(store_url=store.as_uri(), linger=0.3, end_command=ends_by(tmp_path / "ended"))
    box.begin("watch")
    box.start('echo done > "$KEDGE_OUTPUT_DIR/a"')
    wait_for((tmp_path / "ended").exists)
    manifest = json.loads((store / box.machine["run"] / "manifest.json").read_text())
    assert manifest["command"]["state"] == "succeeded"
    assert "output/a" in [file["path"] for file in manifest["files"]]


def test_a_machine_after_the_head_stays_until_the_head_is_done(make_box: MakeBox, tmp_path: Path) -> None:
    """It is done at once, and the run isn't; each has a place of its own in the store."""
    store = tmp_path / "store"
    place = store / RUN / "manifest.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"time": time.time() - 60, "command": {"state": "failed"}, "files": []}))
    ended = tmp_path / "ended"
    box = make_box(store_url=store.as_uri(), linger=0.3, rank=1, end_command=ends_by(ended))
    box.begin("watch")
    box.start('echo done > "$KEDGE_OUTPUT_DIR/a"')
    own = place.parent / "nodes" / "1" / "manifest.json"
    wait_for(lambda: own.exists() and json.loads(own.read_text())["command"]["state"] == "succeeded")
    assert not ended.exists()
    place.write_text(json.dumps({"time": time.time() + 1, "command": {"state": "succeeded"}, "files": []}))
    wait_for(ended.exists)


def second_machine(folder: Path, now: float) -> MachineConfig:
    """Return the configuration of a run's second machine, whose store is a folder."""
    return MachineConfig(
        machine=f"{RUN}-m2",
        run=RUN,
        provider="local",
        root=str(folder),
        created=now,
        deadline_at=now + 3600,
        usd_per_hour="1",
        store_url=folder.as_uri(),
        ship_every=0.0,
        rank=1,
    )


@pytest.mark.parametrize(
    ("state", "age", "is_done"),
    [
        ("running", -1, False),
        ("stopped", -1, False),
        ("succeeded", -1, True),
        ("failed", -1, True),
        ("failed", 1, False),
    ],
)
def test_only_the_last_word_of_a_run_s_own_head_counts(tmp_path: Path, state: str, age: float, is_done: bool) -> None:
    """An upload that is older than the machine is of an earlier head, from which the run was resumed."""
    now = time.time()
    config = second_machine(tmp_path, now)
    head = HeadWatch(config)
    head.look()
    assert not head.is_done
    place = tmp_path / RUN / "manifest.json"
    place.parent.mkdir()
    place.write_text(json.dumps({"time": now - age, "command": {"state": state}, "files": []}))
    later = HeadWatch(config)
    later.look()
    assert later.is_done is is_done
    place.write_text(json.dumps({"time": now + 2, "command": {"state": "running"}, "files": []}))
    later.look()
    assert not later.is_done


def test_a_head_that_uploads_nothing_any_more_is_lost(tmp_path: Path) -> None:
    """The store says for ever that it runs. Time during which the store can't be read doesn't count."""
    now = time.time()
    config = second_machine(tmp_path, now)
    place = tmp_path / RUN / "manifest.json"
    place.parent.mkdir()
    head = HeadWatch(config, silence=0.2)
    running = {"command": {"state": "running"}, "files": []}
    place.write_text("{damaged")
    time.sleep(0.3)
    with pytest.raises(AgentError):
        head.look()
    place.write_text(json.dumps({"time": now + 1, **running}))
    head.look()
    assert not head.is_done
    time.sleep(0.3)
    head.look()
    assert head.is_done
    place.write_text(json.dumps({"time": now + 2, **running}))
    head.look()
    assert not head.is_done


@pytest.mark.parametrize("trouble", ["damaged", "out of reach"])
def test_a_machine_ends_if_its_command_failed_because_of_the_store(
    make_box: MakeBox, tmp_path: Path, trouble: str
) -> None:
    """It has nothing to upload, and must not touch the store; it doesn't bill until its deadline because of that."""
    place = tmp_path / "store" / RUN
    place.mkdir(parents=True)
    if trouble == "damaged":
        (place / "manifest.json").write_text("{damaged")
    else:
        (place / "manifest.json").mkdir()
    times = {"deadline": time.time() + 60, "linger": 0.3}
    box = make_box(store_url=place.parent.as_uri(), end_command=ends_by(tmp_path / "ended"), **times)
    box.begin("watch")
    box.start("echo began")
    wait_for((tmp_path / "ended").exists, timeout=50)
    command = box.command()
    assert (command["state"], command["attempt"], " began\n" in box.log()) == ("failed", 1, False)
    assert [path.name for path in place.iterdir()] == ["manifest.json"]


def test_a_machine_whose_boot_failed_ends_if_nobody_follows_it(make_box: MakeBox, tmp_path: Path) -> None:
    """Not at once, and the log says when; by default, five times the linger is ten minutes."""
    box = make_box(linger=0.2, end_command=ends_by(tmp_path / "ended"))
    (box.root / "ready").write_text('{"ok": false, "phases": []}')
    began = time.time()
    box.begin("watch")
    ended = float(wait_for(lambda: (tmp_path / "ended").exists() and (tmp_path / "ended").read_text().strip()))
    assert ended - began >= 1.0
    assert "the boot went wrong: the machine ends in 1 s unless somebody follows" in box.log()


def unready(box: Box) -> BootWatchdog:
    layout = Layout(box.root)
    return BootWatchdog(layout, read_machine_config(layout), RunLog(lambda: layout.task("").log_file))


def test_a_failed_boot_is_kept_for_ten_minutes_after_the_last_follower(box: Box) -> None:
    """They count from when the watch saw the failure, and again from the last follower or boot."""
    ready = box.root / "ready"
    ready.write_text('{"ok": false, "phases": []}')
    boot = unready(box)
    assert [boot.is_abandoned(now) for now in (1000.0, 1599.0, 1600.0)] == [False, False, True]
    (box.root / "followed.json").write_text('{"time": 1500.0}')
    assert [boot.is_abandoned(now) for now in (1600.0, 2099.0, 2100.0)] == [False, False, True]
    ready.unlink()
    assert not boot.is_abandoned(3000.0)
    ready.write_text('{"ok": false, "phases": []}')
    assert [boot.is_abandoned(now) for now in (3001.0, 3600.0, 3601.0)] == [False, False, True]


@pytest.mark.parametrize("sentinel", ['{"ok": true, "phases": []}', '{"port": 22, "host_key": "x"}', "", None])
def test_a_ready_or_booting_machine_does_not_end(box: Box, sentinel: str | None) -> None:
    """Only a sentinel that reports a failure is one: other providers write their own."""
    if sentinel is not None:
        (box.root / "ready").write_text(sentinel)
    boot = unready(box)
    assert [boot.is_abandoned(now) for now in (1000.0, 1e9)] == [False, False]


@pytest.mark.parametrize("saved", ["begun", "kept"])
def test_a_failed_boot_does_not_end_a_machine_that_somebody_uses(box: Box, saved: str) -> None:
    """A command started by hand has its own outcome, and a run that keeps its machine keeps this one."""
    (box.root / "ready").write_text('{"ok": false, "phases": []}')
    if saved == "begun":
        box.start("sleep 1000")
    else:
        (box.root / "run.json").write_bytes(encode(box.config("true", keep=True)))
    boot = unready(box)
    assert [boot.is_abandoned(now) for now in (1000.0, 1e9)] == [False, False]


@pytest.mark.parametrize(("command", "store"), [("stop", True), ("finish", False), ("keep", True)])
def test_a_machine_waits_for_its_deadline_when_it_was_stopped_or_has_no_store(
    make_box: MakeBox, tmp_path: Path, command: str, store: bool
) -> None:
    """A stopped run may be started again, results without a store must be fetched, and a kept machine stays."""
    url = (tmp_path / "store").as_uri() if store else ""
    box = make_box(store_url=url, linger=0.0, end_command=ends_by(tmp_path / "ended"))
    box.begin("watch")
    box.start(TRAIN if command == "stop" else "true", keep=command == "keep")
    if command == "stop":
        wait_for(lambda: " up\n" in box.log())
        box.ask("stop")
    box.await_state("stopped", "succeeded")
    if command == "keep":
        wait_for((tmp_path / "store" / box.machine["run"] / "manifest.json").exists)
    elif store:
        wait_for(lambda: (box.report()["shipped"] or {}).get("checkpoint") == "last.pt")
    time.sleep(1.5)
    assert not (tmp_path / "ended").exists()


def test_the_end_can_be_asked_for(make_box: MakeBox, tmp_path: Path) -> None:
    """`end` runs the end command now; a machine without one reports that."""
    assert make_box(end_command=ends_by(tmp_path / "ended")).call("end").returncode == 0
    assert (tmp_path / "ended").exists()
    refused = make_box().call("end")
    assert (refused.returncode, b"teardown" in refused.stderr) == (2, True)


def test_a_power_off_ends_the_watch_and_is_not_interrupted_by_it(make_box: MakeBox, tmp_path: Path) -> None:
    """Every process gets SIGTERM while the end command still runs; the watch exits without killing it."""
    ended = shlex.quote(str(tmp_path / "ended"))
    box = make_box(deadline=time.time() + 1, end_command=["sh", "-c", f"kill $PPID; sleep 0.5; echo x >> {ended}"])
    watch = box.begin("watch")
    assert watch.wait(timeout=120) == 0
    assert (tmp_path / "ended").read_text() == "x\n"
    assert "watch, end" not in box.log()
