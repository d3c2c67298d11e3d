"""Several machines run a task together: they begin and end each attempt at the same time, or say why they can't."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from functools import partial

import pytest

from orchestrator.agent.base import state
from orchestrator.agent.base.layout import Layout
from tests.agent.box import RUN, Box, wait_for
from tests.agent.groups import TOKEN, Machines, MakeBox
from tests.agent.several import UNTIL_TOLD, task
from tests.support.ports import free_port

HELD = 'echo "up $NODE_RANK of $NNODES"; ' + UNTIL_TOLD


def test_no_machine_starts_before_all_have_come(make_box: MakeBox) -> None:
    """The head names whom it waits for, and logs the bandwidth to each; a restart needs no new measurement."""
    group = Machines(make_box, 3)
    head, *others = group.boxes
    group.start(HELD, 1, 0)
    waiting = f"waiting for node 2 (127.0.0.4) at 127.0.0.2, port {group.port}"
    wait_for(lambda: head.report()["command"]["reason"] == waiting)
    wait_for(lambda: waiting in head.log())
    assert not [box for box in group.boxes if " up " in box.log()]
    group.start(HELD, 2)
    group.await_state("running")
    wait_for(lambda: all(f" up {rank} of 3" in box.log() for rank, box in enumerate(group.boxes)))
    measured = re.findall(r"the network of node (\d) \(\S+\): (\S+) Gbit/s to the head, (\S+) Gbit/s", head.log())
    assert sorted(rank for rank, *_ in measured) == ["1", "2"]
    assert all(float(each) > 0 for _, *both in measured for each in both)
    for box in (*others, head):
        box.call("notice", "now")
    group.await_state("succeeded")


def test_a_failure_on_one_machine_is_a_failure_on_all_and_they_start_again_together(make_box: MakeBox) -> None:
    """Nobody waits for a process that is gone; the attempts of all have the same numbers."""
    group = Machines(make_box, 3)
    fail_once = '[ "$NODE_RANK" != 1 ] || [ -e once ] || { touch once; exit 3; }; '
    group.start(f'echo "up $NODE_RANK"; {fail_once}{UNTIL_TOLD}', restarts=2)
    wait_for(group.have_started_again)
    for rank in (0, 2):
        assert "ending this attempt: " in group.boxes[rank].log()
    assert "node 1 (127.0.0.3) has failed: exit code 3" in group.boxes[0].log()
    for box in group.boxes:
        box.call("notice", "now")
    assert [each["attempt"] for each in group.await_state("succeeded")] == [2, 2, 2]
    assert group.boxes[0].log().count("Gbit/s") == 4


def test_the_last_attempt_of_one_machine_is_the_last_of_all(make_box: MakeBox) -> None:
    """No machine waits for one that won't come again; each says which one has failed."""
    group = Machines(make_box, 3)
    group.start('[ "$NODE_RANK" != 2 ] || exit 3; sleep 1000')
    head, first, second = group.await_state("failed")
    assert "node 2 (127.0.0.4) has failed: exit code 3" in head["reason"]
    assert "the head (127.0.0.2) has failed: node 2 (127.0.0.4)" in first["reason"]
    assert second["exit_code"] == 3


def test_a_machine_that_fails_before_the_command_is_not_waited_for(make_box: MakeBox) -> None:
    """Here, its setup fails for good."""
    group = Machines(make_box, 2)
    group.start("true", 0)
    wait_for(lambda: "waiting for node 1" in group.boxes[0].report()["command"]["reason"])
    group.start("true", 1, run={"setup": "exit 4"})
    head, other = group.await_state("failed")
    assert "node 1 (127.0.0.3) has failed: setup failed with exit code 4" in head["reason"]
    assert "setup failed with exit code 4" in other["reason"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_that_fails_before_its_last_attempt_is_not_waited_for(make_box: MakeBox, rank: int) -> None:
    """The others know of the failure before, after which they expected it again."""
    group = Machines(make_box, 2)
    # As if the code had got a new input of `setup`, which is repeated then.
    breaks = "touch broken; ln -s broken requirements.txt; exit 3"
    command = f'[ "$NODE_RANK" != {rank} ] || {{ {breaks}; }}; sleep 1000'
    group.start(command, run={"setup": "[ ! -e broken ]"}, restarts=1)
    over = group.await_state("failed")
    assert over[rank]["reason"].startswith("setup failed with exit code 1")
    assert "has failed: setup failed with exit code 1" in over[1 - rank]["reason"]


def test_a_machine_stays_until_the_head_has_finished(make_box: MakeBox) -> None:
    """Its command is done, but the head may need it again."""
    group = Machines(make_box, 2)
    head, other = group.boxes
    group.start(f'[ "$NODE_RANK" = 1 ] || {{ {UNTIL_TOLD}; }}')
    wait_for(lambda: other.report()["command"]["reason"] == "done; waiting for the head")
    assert other.report()["command"]["state"] == "running"
    head.call("notice", "now")
    group.await_state("succeeded")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stop_of_one_machine_stops_all(make_box: MakeBox, rank: int) -> None:
    """With the same reason: after a spot notice, all have time for a checkpoint."""
    group = Machines(make_box, 3)
    group.start("sleep 1000", restarts=2)
    group.await_state("running")
    group.boxes[rank].call("stop", "--reason", "spot notice")
    assert [each["reason"] for each in group.await_state("stopped")] == ["spot notice"] * 3


def test_a_machine_that_is_shut_down_comes_back(make_box: MakeBox) -> None:
    """The signal of its systemd isn't a stop of the others: they end the attempt, and wait for it."""
    group = Machines(make_box, 2)
    group.start(HELD, restarts=1)
    group.await_state("running")
    wait_for(lambda: all(" up " in box.log() for box in group.boxes))
    os.kill(state.load(Layout(group.boxes[1].root).task("")).runner, signal.SIGTERM)
    assert group.boxes[1].await_state("stopped")["reason"] == "SIGTERM"
    wait_for(lambda: "waiting for node 1" in group.boxes[0].report()["command"]["reason"])
    assert "node 1 (127.0.0.3) has failed: it was stopped by SIGTERM" in group.boxes[0].log()


def test_a_killed_runner_is_missed_at_once(make_box: MakeBox) -> None:
    """Its machine's watch replaces it; meanwhile, the others have ended the attempt, and wait for it."""
    group = Machines(make_box, 2)
    group.boxes[1].begin("watch")
    group.start(HELD, restarts=1)
    group.await_state("running")
    wait_for(lambda: all(" up " in box.log() for box in group.boxes))
    os.kill(state.load(Layout(group.boxes[1].root).task("")).runner, signal.SIGKILL)
    wait_for(group.have_started_again)
    assert "the connection to node 1 (127.0.0.3) is lost" in group.boxes[0].log()


def test_a_port_that_is_taken_is_named(make_box: MakeBox) -> None:
    """No further attempt is made; machines that wait learn it."""
    group = Machines(make_box, 2)
    with socket.create_server(("127.0.0.2", group.port)):
        group.start("true", 0, restarts=3)
        over = group.boxes[0].await_state("failed")
    assert f"port {group.port} of the head (127.0.0.2) is taken by another program" in over["reason"]
    assert over["attempt"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_wrong_private_address_is_named(make_box: MakeBox, rank: int) -> None:
    """No interface has it."""
    group = Machines(make_box, 2)
    group.addresses[rank] = "192.0.2.9"
    group.start("true", rank, restarts=3)
    over = group.boxes[rank].await_state("failed")
    assert "has its private address 192.0.2.9" in over["reason"]


def test_a_closed_port_is_named_within_seconds(make_box: MakeBox) -> None:
    """A firewall drops packets: here, a full queue does. The machine can't know whether the head has started."""
    group = Machines(make_box, 2)
    with (
        socket.create_server(("127.0.0.2", group.port), backlog=0),
        socket.socket() as first,
        socket.socket() as second,
    ):
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(("127.0.0.2", group.port))
        began = time.monotonic()
        group.start("true", 1)
        said = f"the head can't be reached at 127.0.0.2, port {group.port}: no answer in time"
        wait_for(lambda: said in group.boxes[1].log())
        assert time.monotonic() - began < 20


def test_a_machine_that_the_head_can_not_reach_is_named(make_box: MakeBox) -> None:
    """The one direction is open, the other one isn't."""
    group = Machines(make_box, 2)
    group.start("true", 0, run={"token": ""})
    wait_for(lambda: "waiting for node 1" in group.boxes[0].report()["command"]["reason"])
    with socket.create_connection(("127.0.0.2", group.port)) as member, socket.create_server(("127.0.0.3", 0)) as port:
        closed = port.getsockname()[1]
        port.close()
        stream = member.makefile("rwb")
        assert json.loads(stream.readline()) == {"run": RUN, "task": ""}
        stream.write(json.dumps({"rank": 1, "port": closed, "is_new": True}).encode() + b"\n")
        stream.flush()
        assert json.loads(stream.readline()) == {"load": True}
        stream.write(b"\1" + bytes((256 << 10) - 1))
        stream.flush()
        assert json.loads(stream.readline()) == {"reverse": True}
        text = f"node 1 (127.0.0.3) can't be reached by the head at its port {closed}: Connection refused"
        assert json.loads(stream.readline()) == {"refused": text}
    assert text in group.boxes[0].await_state("failed")["reason"]


def test_strangers_at_the_port_get_nothing_and_are_named(make_box: MakeBox) -> None:
    """Neither who says nothing of use, nor who has another token; a machine of the run is recognized nevertheless."""
    group = Machines(make_box, 3)
    head, _, wrong = group.boxes
    group.start("true", 0)
    wait_for(lambda: "waiting for node 1" in head.report()["command"]["reason"])
    for own in (
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"rank": 2, "port": 1}\n',
        b'{"challenge": "%s", "proof": "0"}\n' % (b"0" * 64),
    ):
        with socket.create_connection(("127.0.0.2", group.port), source_address=("127.0.0.9", 0)) as stranger:
            stranger.sendall(own)
            heard = stranger.makefile("rb").read()
        assert list(json.loads(heard)) == ["challenge"]
    wait_for(lambda: "a connection from 127.0.0.9 to 127.0.0.2" in head.log())
    assert "it doesn't know this run's token" in head.log()
    group.start("true", 2, run={"token": "of another start"})
    wait_for(lambda: "a connection from 127.0.0.4 to 127.0.0.2" in head.log())
    wait_for(lambda: "it may have another token" in wrong.log())
    wrong.call("stop")
    wrong.await_state("stopped")
    group.start("true", 1, 2)
    group.await_state("succeeded")


def test_a_machine_tells_a_stranger_in_the_heads_place_nothing_of_its_run(make_box: MakeBox) -> None:
    """Neither one that asks for no proof, nor one that can't prove itself."""
    group = Machines(make_box, 2)
    heard = []
    with socket.create_server(("127.0.0.2", group.port)) as head:
        group.start("true", 1)
        for greeting in ({"run": RUN, "task": ""}, {"challenge": "0" * 64}):
            connection, _ = head.accept()
            with connection, connection.makefile("rwb") as stream:
                stream.write(json.dumps(greeting).encode() + b"\n")
                stream.flush()
                heard.append(stream.readline())
                if heard[-1]:
                    stream.write(json.dumps({"run": RUN, "task": "", "proof": "0" * 64}).encode() + b"\n")
                    stream.flush()
                    heard.append(stream.readline())
    assert heard[0] == heard[2] == b""
    assert sorted(json.loads(heard[1])) == ["challenge", "proof"]
    assert TOKEN not in heard[1].decode()
    wait_for(lambda: "it doesn't know this run's token" in group.boxes[1].log())
    assert "it asks for no proof, and gives none" in group.boxes[1].log()


def test_machines_whose_configuration_has_no_token_meet_as_before(make_box: MakeBox) -> None:
    """An earlier version of kedge gave them none. The token is in no other file than that of the secrets."""
    group = Machines(make_box, 2)
    group.start("true", run={"token": ""})
    group.await_state("succeeded")
    group.start("true")
    group.await_state("succeeded")
    for box in group.boxes:
        holders = [path for path in box.root.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
        assert [(path.name, path.stat().st_mode & 0o777) for path in holders] == [("secrets.json", 0o600)]


def test_all_machines_resume_from_the_newest_checkpoint_that_all_of_them_have(make_box: MakeBox) -> None:
    """Here, each writes its part, and the attempt ends before one has written its second one."""
    group = Machines(make_box, 3)
    write = 'echo x > "$KEDGE_CHECKPOINT_DIR/step$1.pt"'
    first = f'write() {{ {write}; }}; write 1; [ "$NODE_RANK" = 1 ] || write 2; sleep 0.5; exit 3'
    group.start(first, resume='echo "from ${KEDGE_CHECKPOINT##*/}."', restarts=1)
    group.await_state("succeeded")
    assert all(" from step1.pt.\n" in box.log() for box in group.boxes), group.logs()


def test_machines_without_checkpoints_follow_the_head_that_has_them(make_box: MakeBox) -> None:
    """All run the same script: that of the head, which resumes."""
    group = Machines(make_box, 2)
    first = '[ "$NODE_RANK" = 1 ] || echo x > "$KEDGE_CHECKPOINT_DIR/step1.pt"; sleep 0.5; exit 3'
    group.start(first, resume='echo "from ${KEDGE_CHECKPOINT##*/}."', checkpoints="ckpt", restarts=1)
    group.await_state("succeeded")
    assert " from step1.pt.\n" in group.boxes[0].log()
    assert " from .\n" in group.boxes[1].log()


def test_two_tasks_of_the_same_machines_meet_at_their_own_ports(make_box: MakeBox) -> None:
    """A task without a port runs on one machine alone, and a shell of a task isn't taken for one of the group."""
    group = Machines(make_box, 2)
    tasks = [task(name, f'echo "$NNODES at $MASTER_PORT"; {UNTIL_TOLD}', port=free_port()) for name in ("a", "b")]
    alone = task("alone", 'echo "alone ${NNODES:-of none}"')
    config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "addresses": group.addresses}
    for rank, box in enumerate(group.boxes):
        box.ask("start", stdin=json.dumps({**config, "tasks": [*tasks, alone][: 3 - rank]}).encode())
    for each in tasks:
        for box in group.boxes:
            wait_for(partial(_says, box, each["name"], f" 2 at {each['port']}\n"))
    wait_for(partial(_says, group.boxes[0], "alone", " alone of none\n"))
    shell = Layout(group.boxes[0].root).task("a").shell_file.read_text()
    assert "MASTER_ADDR" in shell
    assert "PET_" not in shell
    for box in group.boxes:
        box.call("notice", "now")
    group.await_state("succeeded")


def _says(box: Box, name: str, text: str) -> bool:
    return any(text in log.read_text() for log in box.root.glob(f"results/{name}/run.log"))
