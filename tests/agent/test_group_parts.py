"""Machines of a run resume from one whole checkpoint, whichever of them has written what, and whichever is new."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base import state
from orchestrator.agent.base.layout import Layout
from tests.agent.box import RUN, wait_for
from tests.agent.groups import Machines, MakeBox
from tests.agent.places import Place

# No machine's attempt ends before all have come so far.
MEET = (
    'meet() { touch "$ROOM/$1-$NODE_RANK"; '
    'until [ "$(ls "$ROOM" | grep -c "^$1-")" = "$NNODES" ]; do sleep 0.02; done; }; '
)
WRITE = MEET + 'mkdir -p "$KEDGE_CHECKPOINT_DIR/s1"; echo "part $NODE_RANK" > "$KEDGE_CHECKPOINT_DIR/s1/$NODE_RANK"; '
SHOW = MEET + 'echo "has $(cat "$KEDGE_CHECKPOINT"/* "$KEDGE_CHECKPOINT" 2> /dev/null | tr -d "\\n")."; '


def machines(make_box: MakeBox, store: Place, count: int, **more: Any) -> Machines:
    group = Machines(make_box, count, store_url=store.url, env=store.env, **more)
    for box in group.boxes:
        box.begin("watch")
    return group


def room(folder: Path) -> dict[str, Any]:
    """Let the commands see each other's files in a folder of this computer."""
    (folder / "room").mkdir(exist_ok=True)
    return {"envs": {"ROOM": str(folder / "room")}}


def listed(store: Place, rank: int) -> set[str]:
    """The paths that a machine has uploaded."""
    manifest = json.loads(store.read(f"nodes/{rank}/manifest.json" if rank else "manifest.json") or b"{}")
    return {file["path"] for file in manifest.get("files", ())}


@pytest.mark.parametrize("lost", [0, 1])
def test_machines_complete_each_others_checkpoints_and_a_new_one_gets_all(
    make_box: MakeBox, store: Place, tmp_path: Path, lost: int
) -> None:
    """Each writes its part; then one machine's disk is lost. What came from others is uploaded by nobody else."""
    group = machines(make_box, store, 2)
    group.start(f"{WRITE} meet wrote; exit 3", resume=f"{SHOW} meet shown; exit 4", restarts=1, run=room(tmp_path))
    group.await_state("failed")
    assert all(" has part 0part 1.\n" in box.log() for box in group.boxes), group.logs()
    for rank in (0, 1):
        wait_for(partial(_has_uploaded_only, store, rank, f"checkpoints/s1/{rank}"))
        names = [file["path"] for file in group.boxes[rank].ask("manifest")]
        assert [name for name in names if name.startswith("checkpoints/")] == [f"checkpoints/s1/{rank}"]
    group.boxes[lost].close()
    new = make_box(rank=lost, machine=f"{RUN}-m3", store_url=store.url, env=store.env)
    new.begin("watch")
    group.boxes[lost] = new
    group.start("exit 5", resume=SHOW, run=room(tmp_path))
    group.await_state("succeeded")
    logs = [box.log().rpartition("started, attempt 1 of 1\n")[2] for box in group.boxes]
    assert all(" has part 0part 1.\n" in log for log in logs), group.logs()
    wait_for(lambda: (new.report()["shipped"] or {"time": 0})["time"] >= new.report()["command"]["since"])
    assert _has_uploaded_only(store, lost, f"checkpoints/s1/{lost}")


def _has_uploaded_only(store: Place, rank: int, path: str) -> bool:
    return {each for each in listed(store, rank) if each.startswith("checkpoints/")} == {path}


def test_what_only_the_head_saves_is_on_all_machines_and_never_stale(
    make_box: MakeBox, store: Place, tmp_path: Path
) -> None:
    """It overwrites its checkpoint: the others' copies of the one before count neither as theirs nor as newer."""
    group = machines(make_box, store, 3)
    save = 'place="$KEDGE_CHECKPOINT_DIR/last.pt"; echo "saved again" >> "$place.part"; cp "$place.part" "$place"'
    lines = 'lines="$(wc -l < "$KEDGE_CHECKPOINT")"; echo "$NODE_RANK has $lines lines."; '
    resume = f'{MEET}{lines} meet "shown-$lines"; [ "$NODE_RANK" != 0 ] || {{ {save}; }}; meet "saved-$lines"; exit 4'
    first = f'{MEET}[ "$NODE_RANK" != 0 ] || {{ {save}; }}; meet first; exit 3'
    group.start(first, resume=resume, restarts=2, run=room(tmp_path))
    group.await_state("failed")
    for rank, box in enumerate(group.boxes):
        assert f" {rank} has 1 lines.\n" in box.log(), group.logs()
        assert f" {rank} has 2 lines.\n" in box.log(), group.logs()
    assert [listed(store, rank) & {"checkpoints/last.pt"} for rank in (1, 2)] == [set(), set()]


def test_no_machine_starts_before_all_have_the_checkpoint(make_box: MakeBox, tmp_path: Path) -> None:
    """Here, the head has all of it, but hasn't uploaded it yet."""
    group = Machines(make_box, 2, store_url=(tmp_path / "store").as_uri())
    first = '[ "$NODE_RANK" = 1 ] || echo saved > "$KEDGE_CHECKPOINT_DIR/last.pt"; '
    group.start(f"{MEET}{first}meet wrote; exit 3", resume=f"{SHOW}meet shown", restarts=1, run=room(tmp_path))
    head, other = group.boxes
    wait_for(lambda: head.report()["command"]["reason"] == "waiting until all machines have the checkpoint")
    waiting = "waiting for the parts of checkpoint last.pt that the head uploads"
    wait_for(lambda: other.report()["command"]["reason"] == waiting)
    assert "attempt 2 of 2" not in head.log()
    head.begin("watch")
    group.await_state("succeeded")
    assert all(" has saved.\n" in box.log() for box in group.boxes), group.logs()


def test_machines_of_an_elastic_group_complete_each_others_checkpoints(make_box: MakeBox, tmp_path: Path) -> None:
    """As those of any other group: what a machine has written is needed also if fewer go on."""
    group = Machines(make_box, 2, store_url=(tmp_path / "store").as_uri())
    for box in group.boxes:
        box.begin("watch")
    both = MEET.replace("$NNODES", "2")
    write, show = (text.replace(MEET, both) for text in (WRITE, SHOW))
    run = {**room(tmp_path), "elastic": [1, 2]}
    group.start(f"{write} meet wrote; exit 3", resume=f"{show} meet shown", restarts=1, run=run)
    group.await_state("succeeded")
    assert all(" has part 0part 1.\n" in box.log() for box in group.boxes), group.logs()


def test_a_machine_that_can_not_copy_a_checkpoint_is_not_waited_for(make_box: MakeBox, tmp_path: Path) -> None:
    """It isn't lost, but has failed, so that no replacement comes."""
    group = Machines(make_box, 2, store_url=(tmp_path / "store").as_uri())
    for box in group.boxes:
        box.begin("watch")
    blocks = '[ "$NODE_RANK" = 0 ] || { rm -rf ../../copied-parts; touch ../../copied-parts; }; '
    run = {**room(tmp_path), "recovers": True}
    group.start(f"{WRITE}{blocks}meet wrote; exit 3", resume="sleep 1000", restarts=1, run=run)
    head, other = group.await_state("failed")
    assert other["reason"].startswith("could not start: ")
    assert head["reason"].startswith("node 1 (127.0.0.3) has failed: could not start: ")


def test_a_machine_that_ends_while_another_one_copies_is_noticed(make_box: MakeBox, tmp_path: Path) -> None:
    """The other one doesn't start its command; one that is stopped meanwhile stops both, with the same reason."""
    group = Machines(make_box, 2, store_url=(tmp_path / "store").as_uri())
    head, other = group.boxes
    head_task = Layout(head.root).task("")
    first = '[ "$NODE_RANK" = 1 ] || echo saved > "$KEDGE_CHECKPOINT_DIR/last.pt"; '
    group.start(f"{MEET}{first}meet wrote; exit 3", resume="sleep 1000", restarts=2, run=room(tmp_path))
    copying = "waiting for the parts of checkpoint last.pt that the head uploads"
    wait_for(lambda: other.report()["command"]["reason"] == copying)
    os.kill(state.load(head_task).runner, signal.SIGKILL)
    wait_for(lambda: "lost a machine: the connection to the head (127.0.0.2) is lost" in other.log())
    wait_for(lambda: other.report()["command"]["reason"].startswith("waiting for the head"))
    assert "started, attempt 2" not in other.log()
    head.call("kill")
    group.start("true", 0, resume="sleep 1000", restarts=2, run=room(tmp_path))
    wait_for(lambda: other.report()["command"]["reason"] == copying)
    other.call("stop", "--reason", "spot notice")
    assert [each["reason"] for each in group.await_state("stopped")] == ["spot notice"] * 2


def test_without_a_store_machines_keep_what_they_have(make_box: MakeBox, tmp_path: Path) -> None:
    """Nothing waits for parts that nobody can send."""
    group = Machines(make_box, 2)
    group.start(f"{WRITE} meet wrote; exit 3", resume=SHOW, restarts=1, run=room(tmp_path))
    group.await_state("succeeded")
    for rank, box in enumerate(group.boxes):
        assert f" has part {rank}.\n" in box.log()
        assert not (Layout(box.root).root / "copied-parts" / "+" / "record.json").exists()
