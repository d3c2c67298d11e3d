"""What other machines send is hostile until it is parsed: it ends a connection at most, never the runner."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.agent.base.wire import Command
from orchestrator.agent.nodes import gate
from orchestrator.agent.nodes.agreement import Start, agree, parse_start
from orchestrator.agent.nodes.bond import Bond
from orchestrator.agent.nodes.channel import LOAD_BYTES, Channel, LostError
from orchestrator.agent.nodes.group import Group
from orchestrator.agent.nodes.head import Head
from orchestrator.agent.nodes.messages import Hooks
from orchestrator.agent.nodes.proof import StrangerError, admit, join
from tests.agent.box import wait_for
from tests.agent.groups import TOKEN, addresses
from tests.support.ports import free_port

TEXT = st.one_of(st.text(max_size=20), st.sampled_from(["\ud800", "a\0b", "..", "", "x" * 300, "step1.pt"]))
NUMBER = st.one_of(st.integers(), st.floats(), st.sampled_from([10**400, -1, 1 << 70, True]))
ANYTHING = st.recursive(
    st.one_of(st.none(), TEXT, NUMBER),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)


def make_group(rank: int = 0, *, port: int = 0, **more: Any) -> Group:
    usual = {"run": "digits-1a2b", "task": "", "rank": rank, "addresses": tuple(addresses(2)), "port": port}
    waits = {"least": 2, "most": 2, "wait": 5.0, "patience": 5.0, "recovers": False, "token": TOKEN}
    return Group(**{**usual, **waits, **more})


class Runner:
    """What a runner is told."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.aborts: list[str] = []
        self.stops: list[str] = []
        self.has_to_stop = False

    @property
    def hooks(self) -> Hooks:
        def no_turn(_: str) -> None:
            pass

        return Hooks(self.log.append, no_turn, lambda: self.has_to_stop, self.stops.append, self.aborts.append)


@contextmanager
def connected() -> Iterator[tuple[Channel, socket.socket]]:
    """A machine's connection, and the other end of it."""
    here, there = socket.socketpair()
    with closing(there), closing(_Plain(here)) as channel:
        yield channel, there


class _Plain(Channel):
    """Without the options of TCP, which a pair of sockets doesn't have."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = bytearray()


def send(connection: socket.socket, message: object) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


@given(ANYTHING, ANYTHING)
@example(challenge="\ud800" * 64, proof="\ud800")
def test_a_proof_of_anything_is_none(challenge: object, proof: object) -> None:
    """Neither side takes it, and neither fails in another way."""
    answer = {"challenge": challenge, "proof": proof}
    with connected() as (channel, other):
        send(other, answer)
        with pytest.raises(StrangerError):
            admit(channel, make_group())
    with connected() as (channel, other):
        send(other, answer)
        send(other, {**answer, "run": "digits-1a2b", "task": ""})
        with pytest.raises(StrangerError):
            join(channel, make_group(1))


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(Start._fields, ANYTHING)))
@example({"checkpoints": ["..", "a\0b", "\ud800", "step1.pt"], "can_resume": True})
def test_a_start_of_anything_is_usable(message: dict[str, Any]) -> None:
    """What all agree on can be sent, and names only files within the folder of checkpoints."""
    agreed = agree([Start(), parse_start(message), parse_start(message)])
    assert parse_start(json.loads(json.dumps(agreed.as_message()))) == agreed
    for name in agreed.checkpoints:
        assert name not in {"", ".", ".."}
        assert not {"/", "\0"} & set(name)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(gate.Standing._fields, ANYTHING)))
@example({"sequence": 0, "state": "done", "reason": ""})
@example({"sequence": 0, "state": "failed", "reason": "\ud800"})
def test_a_standing_of_anything_is_known_or_refused(message: dict[str, Any]) -> None:
    """A state that isn't one would never be over; a text that isn't valid could not be reported."""
    try:
        found = gate._parse(message)
    except LostError:
        return
    found.reason.encode()
    assert Command(state=found.state).is_live or Command(state=found.state).is_over or found.state in {"", "idle"}


@pytest.mark.parametrize("ending", ["stopped", "failed"])
@pytest.mark.parametrize("why", [None, ["lost"], 10**400, "\ud800" * 9000])
def test_the_end_of_anything_can_be_logged_and_reported(ending: str, why: object) -> None:
    """Both may be longer than a log's line, and no valid text."""
    runner = Runner()
    with connected() as (channel, other):
        bond = Bond(make_group(), {1: channel}, runner.hooks)
        send(other, {ending: why})
        wait_for(lambda: runner.stops + runner.aborts)
        bond.end()
    (said,) = runner.stops + runner.aborts
    assert len(said.encode()) < 5000


@pytest.mark.parametrize(
    "answer",
    [
        lambda hello: {**hello, "port": -1},
        lambda hello: {**hello, "port": 10**30},
        lambda hello: {**hello, "port": []},
        lambda hello: {**hello, "rank": True, "port": "\ud800"},
        lambda _: {"rank": 1, "failed": "\ud800"},
        lambda hello: {**hello, "gbit_per_second": 10**400},
        lambda hello: {**hello, "gbit_per_second": float("nan")},
        lambda hello: {**hello, "gbit_per_second": "fast"},
    ],
)
def test_a_hello_of_anything_ends_the_meeting_at_most(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The head says what is wrong, or goes on waiting."""
    group, runner = make_group(port=free_port(), wait=0.5), Runner()

    def be_a_machine() -> None:
        listener = socket.create_server((group.addresses[1], 0))
        connection = wait_for(lambda: _connect(group))
        with listener, closing(Channel(connection)) as channel:
            join(channel, make_group(1, port=group.port))
            hello = answer({"rank": 1, "port": listener.getsockname()[1]})
            channel.send({name: part for name, part in hello.items() if name != "gbit_per_second"})
            if "load" in channel.receive():
                channel.send_load()
            if "reverse" in channel.receive() and "gbit_per_second" in hello:
                with closing(Channel(listener.accept()[0])) as back:
                    back.receive_load()
                channel.send({"gbit_per_second": hello["gbit_per_second"]})

    machine = threading.Thread(target=_quietly, args=(be_a_machine,))
    machine.start()
    try:
        with pytest.raises(Exception, match="node 1") as err:
            Head(group, runner.hooks).gather(Start())
    finally:
        machine.join()
    assert type(err.value).__name__ == "GatheringError"
    "".join([str(err.value), *runner.log]).encode()


def _connect(group: Group) -> socket.socket | None:
    try:
        return socket.create_connection((group.addresses[0], group.port), source_address=(group.addresses[1], 0))
    except ConnectionRefusedError:
        return None


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except OSError:
        return


def test_a_load_without_an_end_is_cut_off() -> None:
    """The head measures one machine after the other: none may keep it busy."""
    with connected() as (channel, other):

        def load() -> None:
            for _ in range(2 * LOAD_BYTES // (1 << 20)):
                other.sendall(bytes(1 << 20))

        sender = threading.Thread(target=_quietly, args=(load,))
        sender.start()
        with pytest.raises(LostError):
            channel.receive_load()
        channel.close()
        sender.join()


def test_a_message_about_many_files_with_long_names_arrives() -> None:
    """Names of checkpoints may be long, and take several bytes a letter: the machines would never meet."""
    name = "ä" * 120
    files = tuple(f"{number}-{name}" for number in range(500))
    start = Start(True, (name,), ("v",), (name,), (files,), (files,), 1)
    with connected() as (channel, other):
        sender = threading.Thread(target=send, args=(other, start.as_message()))
        sender.start()
        assert parse_start(channel.receive()) == start
        sender.join()
