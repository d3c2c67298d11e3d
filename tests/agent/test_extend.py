"""`extend`: the machine's own deadline is moved, and everything on it goes by the new one."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from tests.agent.box import Box, wait_for

MakeBox = Callable[..., Box]


def machine_file(box: Box) -> dict[str, object]:
    return dict(json.loads((box.root / "machine.json").read_text()))


def cloud_box(make_box: MakeBox, tmp_path: Path, **machine: object) -> Box:
    """A rented machine, whose timer is a file."""
    armed = shlex.quote(str(tmp_path / "armed"))
    arm = ["sh", "-c", f'echo "$0" >{armed}']
    return make_box(provider="aws", arm_command=arm, margin=30.0, later="kept", **machine)


def test_timer_and_agent_are_moved_with_their_margin_kept(make_box: MakeBox, tmp_path: Path) -> None:
    """The same again changes nothing; what only another version's machine.json has stays in it."""
    box = cloud_box(make_box, tmp_path)
    assert box.report()["extends"]
    deadline = int(time.time()) + 7200
    for _ in range(2):
        assert box.call("extend", "--deadline", str(deadline)).returncode == 0
        assert (tmp_path / "armed").read_text() == f"{deadline}\n"
        assert machine_file(box) == {**box.machine, "deadline": deadline - 30.0}
        assert box.report()["deadline"] == deadline - 30.0


def test_what_can_not_be_moved_stays_as_it_is(make_box: MakeBox, tmp_path: Path) -> None:
    """A deadline that is over, a timer that can't be armed, and a machine that an earlier version has made."""
    box = cloud_box(make_box, tmp_path)
    failing = make_box(provider="aws", arm_command=["false"])
    old = make_box(provider="do")
    assert not old.report()["extends"]
    soon = str(int(time.time()) + 20)
    later = str(int(time.time()) + 7200)
    for each, deadline, code in ((box, soon, 2), (failing, later, 1), (old, later, 2)):
        done = each.call("extend", "--deadline", deadline)
        assert done.returncode == code, done.stderr
        assert machine_file(each) == each.machine
    assert not (tmp_path / "armed").exists()


def test_a_machine_ends_at_its_new_deadline_and_not_at_the_old_one(make_box: MakeBox, tmp_path: Path) -> None:
    """A running watch goes by it, and the running command finds it in its file."""
    ended = tmp_path / "ended"
    box = make_box(deadline=time.time() + 30, end_command=["sh", "-c", f"date +%s.%N >>{shlex.quote(str(ended))}"])
    box.begin("watch")
    box.start('echo "$KEDGE_DEADLINE_FILE" >"$KEDGE_OUTPUT_DIR/place"; while true; do sleep 0.1; done')
    place = box.root / "results" / "output" / "place"
    wait_for(lambda: place.exists() and place.read_text())
    old = float(box.machine["deadline"])
    new = int(time.time()) + 12
    assert new < old
    assert box.call("extend", "--deadline", str(new)).returncode == 0
    wait_for(lambda: float(Path(place.read_text().strip()).read_text()) == new)
    at = float(wait_for(lambda: ended.exists() and ended.read_text()))
    assert new <= at < old


def test_a_command_that_starts_again_has_the_new_deadline(make_box: MakeBox) -> None:
    """Its runner has read the old one."""
    box = make_box()
    box.start('echo "has $KEDGE_DEADLINE"; sleep 1; exit 1', restarts=1, restart_after=1.0)
    wait_for(lambda: "has " in box.log())
    deadline = int(time.time()) + 9000
    assert box.call("extend", "--deadline", str(deadline)).returncode == 0
    box.await_state("failed")
    assert f"has {deadline}\n" in box.log()
