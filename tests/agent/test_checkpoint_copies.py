"""The last checkpoint is copied whole before an attempt starts from scratch, whatever a command does to it."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.base.config import TaskContext
from orchestrator.agent.base.files import write_json
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.base.state import RunState
from orchestrator.agent.base.wire import Command, MachineConfig
from orchestrator.agent.results import fresh_start as anew
from orchestrator.agent.results.attempt import record_attempt
from orchestrator.agent.results.checkpoint_order import CheckpointProgress, read_progress
from orchestrator.agent.results.listing import scan
from orchestrator.agent.results.upload import Uploader
from orchestrator.agent.run.resume import prepare_attempt
from orchestrator.agent.s3.store import FolderStore
from orchestrator.agent.waiting.signals import Signals
from tests.agent.box import Box, wait_for
from tests.agent.configs import run_config
from tests.agent.places import FolderPlace, Place

MakeBox = Callable[..., Box]


def stored(store: Place) -> dict[str, bytes]:
    """Read the files that the store's manifest names; all of them are there."""
    manifest = json.loads(store.read("manifest.json") or b"{}")
    return {row["path"]: store.read(f"blobs/{row['sha256']}") or b"" for row in manifest.get("files", ())}


RESTLESS = r"""
cat > train.py <<'END'
import os, pathlib, sys, time
sys.path.insert(0, "")
import writers
step = 0
while True:
    step += 1
    writers.WRITER(pathlib.Path("out") / "last.ckpt", step)
    time.sleep(0.3)
END
cat > writers.py <<'END'
import json, os, pickle, zipfile
SIZE = 4 << 20
def in_place(path, step):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": step}))
        for number in range(4):
            archive.writestr(f"archive/data/{number}", bytes([step % 251]) * SIZE)
def renamed(path, step):
    aside = path.with_name("new.tmp")
    aside.write_bytes(b"begin" + bytes([step % 251]) * SIZE + b"end")
    aside.rename(path)
END
python3 train.py
"""


def is_whole_zip(content: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.testzip() is None and len({archive.read(f"archive/data/{n}")[:1] for n in range(4)}) == 1


def is_whole_text(content: bytes) -> bool:
    return content.startswith(b"begin") and content.endswith(b"end") and len(set(content[5:-3])) == 1


@pytest.mark.parametrize(("writer", "is_whole"), [("in_place", is_whole_zip), ("renamed", is_whole_text)])
def test_a_checkpoint_that_is_always_being_written_is_copied_whole(
    make_box: MakeBox, tmp_path: Path, writer: str, is_whole: Callable[[bytes], bool]
) -> None:
    """It is written every 0.3 s and checked every 0.5 s: every version in the store loads."""
    store = FolderPlace(tmp_path / "store")
    box = make_box(store_url=store.url, sample_every=0.5, ship_every=1.0)
    box.begin("watch")
    box.start(RESTLESS.replace("WRITER", writer), checkpoints="out")
    seen: set[bytes] = set()
    checkpoint = "checkpoints/last.ckpt"

    def has_new() -> bool:
        # The next copy may have replaced it between the reads of the manifest and of the content.
        content = stored(store).get(checkpoint)
        if content and content not in seen:
            assert is_whole(content)
            seen.add(content)
        return len(seen) >= 3

    wait_for(has_new)
    # There is none at the moment at which it is emptied to be written again.
    wait_for(lambda: (box.report()["checkpoint"] or {}).get("name") == "last.ckpt")
    box.ask("stop")
    wait_for(lambda: not (box.root / "snapshot").exists())


ROTATED = r"""
cat > train.py <<'END'
import pathlib, sys, time
step = 0
while True:
    step += 1
    aside = pathlib.Path("out/new.tmp")
    aside.write_bytes(b"begin" + bytes([step % 251]) * 100_000 + b"end")
    aside.rename(f"out/step-{step:06}.ckpt")
    for old in sorted(pathlib.Path("out").glob("step-*.ckpt"))[:-2]:
        old.unlink()
    time.sleep(0.3)
END
python3 train.py
"""


def test_checkpoints_that_are_soon_deleted_for_newer_ones_are_uploaded(make_box: MakeBox, tmp_path: Path) -> None:
    """Each lives for 0.6 s, and they are looked at every 0.8 s: the store gets whole ones, and never loses the last."""
    store = FolderPlace(tmp_path / "store")
    box = make_box(store_url=store.url, sample_every=0.8, ship_every=1.0)
    box.begin("watch")
    box.start(ROTATED, checkpoints="out")
    seen: set[str] = set()

    def has_new() -> bool:
        found = {path: content for path, content in stored(store).items() if "checkpoints/" in path}
        assert found or not seen
        # The next copy may have replaced it between the reads of the manifest and of the content.
        assert all(is_whole_text(content) for content in found.values() if content)
        seen.update(found)
        return len(seen) >= 3

    wait_for(has_new)
    box.ask("stop")
    wait_for(lambda: not (box.root / "snapshot").exists())
    assert "is not in the object store" not in box.log()


KILLED = r"""
cat > train.py <<'END'
import os, pathlib, pickle, time
path = pathlib.Path("out/ckpt.pt")
if path.exists():
    print("found", pickle.loads(path.read_bytes())["step"], flush=True)
    time.sleep(1000)
path.write_bytes(pickle.dumps({"step": 400, "model": bytes(9000)}))
while not os.path.exists("copied"):
    time.sleep(0.1)
with path.open("wb") as file:
    file.write(pickle.dumps({"step": 450, "model": bytes(9000)})[:5000])
    file.flush()
    os.kill(os.getpid(), 9)
END
python3 train.py
"""


def test_a_truncated_checkpoint_never_replaces_a_whole_one(make_box: MakeBox, store: Place) -> None:
    """The store keeps the version before it, and the next attempt finds that version in its place."""
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    box.start(KILLED, restarts=1, restart_after=3.0, checkpoints="out")
    wait_for(lambda: "checkpoints/ckpt.pt" in stored(store))
    (box.root / "code" / "copied").touch()
    wait_for(lambda: " found 400\n" in box.log())
    assert "ckpt.pt was truncated while it was written: restored from the object store" in box.log()
    assert pickle.loads(stored(store)["checkpoints/ckpt.pt"])["step"] == 400


def test_a_killed_command_leaves_the_stored_checkpoint_at_its_end(make_box: MakeBox, store: Place) -> None:
    """Also if nothing starts it again: the last upload doesn't take the truncated file."""
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    box.start(KILLED, checkpoints="out")
    wait_for(lambda: "checkpoints/ckpt.pt" in stored(store))
    (box.root / "code" / "copied").touch()
    over = box.await_state("failed")
    wait_for(lambda: (box.report()["shipped"] or {}).get("time", 0) >= over["since"])
    assert pickle.loads(stored(store)["checkpoints/ckpt.pt"])["step"] == 400


def test_a_disk_without_room_for_a_copy_is_reported(box: Box) -> None:
    """The attempt starts anyway; the copy from before stays."""
    grow = "[ $KEDGE_RESUME ] && truncate -s 4T out/last-20.bin || echo x > out/last-10.bin; echo began; false"
    box.start(grow, restarts=2, checkpoints="out")
    box.await_state("failed")
    assert box.log().count(" began\n") == 3
    assert "no room on the disk for a copy of checkpoint last-20.bin" in box.log()
    assert (box.root / "results/checkpoints.kept/last-10.bin").read_text() == "x\n"


def test_a_command_may_remove_its_checkpoint_folder(box: Box) -> None:
    """The next attempt starts as if there had been no checkpoint."""
    box.start('rm -rf "$KEDGE_CHECKPOINT_DIR"; echo began; false', restarts=1)
    box.await_state("failed")
    assert box.log().count(" began\n") == 2


def test_a_truncated_copy_in_the_store_is_not_restored(tmp_path: Path) -> None:
    """The store has only the truncated checkpoint, too: the whole one that was kept apart is put back."""
    layout = Layout(tmp_path / "machine")
    layout.prepare()
    task = layout.task("")
    task.prepare()
    task.kept.mkdir()
    whole = pickle.dumps({"step": 400})
    (task.kept / "ckpt.pt").write_bytes(whole)
    (task.checkpoints / "ckpt.pt").write_bytes(whole[:-5])
    machine = make_machine(layout, tmp_path / "store")
    Uploader(layout, machine, FolderStore(tmp_path / "store" / "digits-1a2b")).upload(
        RunState(Command()), {}, 1.0, final=True
    )
    write_json(layout.note("attempt"), {"began": 1.0, "had": []})
    run = run_config(checkpoints="out")
    found = prepare_attempt(TaskContext(task, machine, run, run.tasks[0]), lambda _: None, Signals())
    assert (task.checkpoints / "ckpt.pt").read_bytes() == whole
    assert found.checkpoint
    assert found.checkpoint.step == 400


def make_machine(layout: Layout, store: Path) -> MachineConfig:
    names = ("digits-1a2b-m1", "digits-1a2b", "local", str(layout.root))
    return MachineConfig(*names, 1.0, 2.0, "0", store_url=store.as_uri())


def test_the_copy_kept_apart_and_the_attempts_start_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that starts next overwrites the only other copy."""
    layout = Layout(tmp_path / "machine")
    layout.prepare()
    task = layout.task("")
    task.prepare()
    (task.checkpoints / "ckpt.pt").write_bytes(pickle.dumps({"step": 400}))
    write_json(layout.note("attempt"), {"began": 1.0, "had": []})
    run = run_config(checkpoints="out")
    synced: set[int] = set()
    sync = os.fsync

    def note(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    context = TaskContext(task, make_machine(layout, tmp_path / "store"), run, run.tasks[0])
    found = prepare_attempt(context, lambda _: None, Signals())
    record_attempt(task, found)
    kept = task.kept / "ckpt.pt"
    assert {kept.stat().st_ino, task.kept.stat().st_ino, layout.note("attempt").stat().st_ino} <= synced


def test_a_checkpoint_that_could_not_be_judged_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a checkpoint may take seconds, and the watch checks all of them every few seconds."""
    layout = Layout(tmp_path / "machine")
    layout.prepare()
    task = layout.task("")
    task.prepare()
    had = {"name": "ckpt.h5", "bytes": 100, "written": 1.0, "step": None, "kind": ""}
    write_json(layout.note("attempt"), {"began": 2.0, "had": [had]})
    read: list[str] = []

    def count(path: Path) -> CheckpointProgress | None:
        read.append(path.name)
        return read_progress(path)

    monkeypatch.setattr(anew, "read_progress", count)
    beginnings = anew.FreshStarts(task, RunLog(lambda: task.log_file))
    for text in ("1" * 100, "2" * 100, "3" * 40):
        (task.checkpoints / "ckpt.h5").write_text(text)
        for _ in range(3):
            beginnings.look(scan(layout.results), frozenset({"checkpoints/ckpt.h5"}))
    assert read == ["ckpt.h5"] * 3
    assert task.log_file.read_text().count("it seems to have started over") == 1
