"""The private network of a box's machines: what is admitted arrives, and nothing else."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cloudbox.machines.network import Admission, Network
from tests.cloudbox.nspawn.namespaces import entered, make_namespace

ONE, OTHER, STRANGER = "10.1.2.3", "10.4.5.6", "10.7.8.9"


@pytest.fixture
def network() -> Iterator[Network]:
    """A network, on a computer that allows one."""
    try:
        os.close(make_namespace())
    except OSError as err:
        pytest.skip(f"network namespaces need root and Linux: {err}")
    made = Network()
    yield made
    made.close()


def join(network: Network, private: str, *services: str) -> str:
    """Let a machine join that is named by its address, with that address on 127. as its public one."""
    namespace = network.join(private, interface="ens5", private=private, public=f"127{private[2:]}", services=services)
    assert namespace, "it has a network of its own"
    return namespace


@contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """Make sockets as a machine does; None: as this computer does."""
    if namespace is None:
        yield
        return
    file = os.open(namespace, os.O_RDONLY)
    try:
        with entered(file):
            yield
    finally:
        os.close(file)


@contextmanager
def listening(namespace: str | None, address: str, port: int) -> Iterator[int]:
    """Send back what clients say; the port."""
    with inside(namespace):
        listener = socket.create_server((address, port))

    def serve() -> None:
        # It ends when the listener is shut down.
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.sendall(client.recv(99))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def say(namespace: str | None, address: str, port: int, seconds: float = 10.0) -> str:
    """Say something to an address, and return the answer."""
    with inside(namespace):
        client = socket.socket()
    with client:
        client.settimeout(seconds)
        client.connect((address, port))
        client.sendall(b"hello")
        return client.recv(99).decode()


def is_dropped(ask: Callable[[float], str]) -> bool:
    """Tell whether nobody answers within a moment, not even with a refusal."""
    try:
        ask(0.3)
    except TimeoutError:
        return True
    return False


def test_only_what_is_admitted_arrives(network: Network) -> None:
    """By its source and its port; the rest is dropped without an answer, and rules that change apply at once."""
    one, other, stranger = (join(network, each) for each in (ONE, OTHER, STRANGER))
    with listening(one, ONE, 29500), listening(one, ONE, 29600):
        assert is_dropped(lambda seconds: say(other, ONE, 29500, seconds))
        network.admit(ONE, [Admission(sources=(OTHER,), protocol="tcp", ports=(29500, 29501))])
        assert say(other, ONE, 29500) == "hello"
        assert is_dropped(lambda seconds: say(other, ONE, 29600, seconds))
        assert is_dropped(lambda seconds: say(stranger, ONE, 29500, seconds))
        network.admit(ONE, [Admission(sources=("10.0.0.0/8", STRANGER))])
        assert say(stranger, ONE, 29600) == "hello"
        with pytest.raises(ConnectionRefusedError):
            say(stranger, ONE, 29700)


def test_a_machine_reaches_the_boxs_services_and_nothing_else_of_this_computer(network: Network) -> None:
    """At the same address as here; its own loopback addresses are its own, but this computer reaches its sshd."""
    with listening(None, "127.0.0.1", 0) as service, listening(None, "127.0.0.1", 0) as hidden:
        one = join(network, ONE, f"http://127.0.0.1:{service}/path")
        assert say(one, "127.0.0.1", service) == "hello"
        with pytest.raises(ConnectionRefusedError):
            say(one, "127.0.0.1", hidden)
        with pytest.raises(ConnectionResetError):
            say(None, "127.1.2.3", 22)
        with listening(one, "127.1.2.3", 22):
            assert say(None, "127.1.2.3", 22) == "hello"


def test_a_machine_that_ends_says_nothing_any_more(network: Network) -> None:
    """Its connections aren't closed: peers have to notice the silence."""
    one, other = join(network, ONE), join(network, OTHER)
    for each in (ONE, OTHER):
        network.admit(each, [Admission(sources=("10.0.0.0/8",))])
    with inside(one):
        listener = socket.create_server((ONE, 29500))
    with inside(other):
        client = socket.socket()
    with listener, client:
        client.connect((ONE, 29500))
        accepted, _ = listener.accept()
        network.leave(ONE)
        accepted.close()
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_where_namespaces_are_not_allowed_machines_share_this_computers_network(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, `ip` is missing; the private address is there nevertheless."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not network.join("one", interface="ens5", private="10.9.9.9", public="127.9.9.9", services=())
    network.admit("one", [])
    with socket.create_server(("10.9.9.9", 0)) as listener:
        assert listener.getsockname()[0] == "10.9.9.9"
    network.leave("one")
