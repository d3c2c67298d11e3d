"""Connections of both transports: checks of host keys and user keys, and connections that are cut."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.ssh.failures import HostKeyError
from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.core.errors import UnreachableError
from orchestrator.core.ports import Remote
from tests.adapters.remote.sshd import CuttingProxy, Sshd, open_remote, wait_until


@pytest.mark.parametrize("how", ["run", "send", "lines"])
def test_a_connection_that_is_cut_during_a_command_is_an_unreachable_machine(
    remote: Remote, sshd: Sshd, tmp_path: Path, how: str
) -> None:
    """The call fails at once with the right error, although the machine would answer a new call."""
    begun = tmp_path / "begun"
    argv = ["sh", "-c", 'echo hello; touch "$0"; exec sleep 60', str(begun)]

    def cut() -> None:
        wait_until(begun.exists)
        sshd.cut()

    def act() -> None:
        if how == "run":
            remote.run(argv)
        elif how == "send":
            remote.send(argv, (b"x" * 100_000 for _ in range(1000)))
        else:
            list(remote.lines(argv))

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(UnreachableError):
        act()
    cutter.join()


def test_a_connection_that_is_cut_during_a_stream_is_an_unreachable_machine(
    transport: str, sshd: Sshd, ssh_files: SshFiles
) -> None:
    """The network may fail at any byte."""
    wire = CuttingProxy(sshd.port, dies_after=1_000_000)
    remote = open_remote(transport, wire.to(sshd.address), ssh_files)
    with pytest.raises(UnreachableError):
        remote.send(["cat"], (b"x" * 50_000 for _ in range(100)))
    remote.close()
    wire.close()


def test_a_machine_with_another_host_key_is_refused(
    transport: str, sshd: Sshd, ssh_files: SshFiles, tmp_path: Path
) -> None:
    """Kedge doesn't try to log in there, and the error says what to do."""
    _, other = ensure_key(tmp_path / "other")
    with pytest.raises(HostKeyError, match="its host key differs") as caught:
        open_remote(transport, replace(sshd.address, host_key=other), ssh_files).run(["true"])
    assert "kedge teardown" in caught.value.fix
    assert sshd.logins == 0


def test_a_machine_with_a_host_key_of_another_type_is_refused(transport: str, sshd: Sshd, ssh_files: SshFiles) -> None:
    """A server can't offer a key of a type that isn't pinned."""
    ecdsa = (
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9"
        "nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg="
    )
    with pytest.raises(HostKeyError):
        open_remote(transport, replace(sshd.address, host_key=ecdsa), ssh_files).run(["true"])
    assert sshd.logins == 0


def test_nothing_but_our_key_is_offered(
    transport: str, sshd: Sshd, ssh_files: SshFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that refuses it is offered no other key and no password, and nobody asks the SSH agent."""
    with socket.socket(socket.AF_UNIX) as agent:
        where = ssh_files.runtime.parent / "agent"
        agent.bind(str(where))
        agent.listen()
        agent.settimeout(0)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(where))
        stranger, _ = ensure_key(tmp_path / "stranger")
        with pytest.raises(UnreachableError, match="doesn't accept kedge's key"):
            open_remote(transport, replace(sshd.address, key_file=str(stranger)), ssh_files).run(["true"])
        with pytest.raises(BlockingIOError):
            agent.accept()
    wait_until(lambda: "preauth" in sshd.log)
    methods = {line.split("method ")[1].split()[0] for line in sshd.log.splitlines() if "method " in line}
    assert methods <= {"none", "publickey"}
    assert sshd.log.count("trying public key file") <= 1


def test_a_machine_that_does_not_listen_is_unreachable(transport: str, ssh_files: SshFiles, tmp_path: Path) -> None:
    """A refused connection fails at once."""
    address = Sshd(tmp_path / "never").address
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1"):
        open_remote(transport, address, ssh_files).run(["true"])


def test_commands_share_one_connection(remote: Remote, sshd: Sshd, transport: str) -> None:
    """Neither transport logs in again for each command."""
    if transport == "openssh alone":
        return
    before = sshd.logins
    for _ in range(3):
        assert remote.run(["true"]).exit_code == 0
    assert sshd.logins == before


@pytest.mark.parametrize("script", ["exit 255", "kill -9 $$"])
def test_a_command_that_ends_with_255_is_not_a_broken_connection(remote: Remote, transport: str, script: str) -> None:
    """The OpenSSH client uses 255 for its own errors too; kedge tells them apart.

    A command killed by a signal looks the same.
    """
    if transport == "openssh alone":
        with pytest.raises(UnreachableError):
            remote.run(["sh", "-c", script])
        return
    assert remote.run(["sh", "-c", script]).exit_code == 255


def test_the_users_own_configuration_is_not_read(
    sshd: Sshd, ssh_files: SshFiles, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `Host *` block or a fabric.yml of the user's has no effect."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  ProxyCommand false\n  Port 1\n")
    (tmp_path / ".fabric.yml").write_text("port: 1\ntimeouts: {connect: -1}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    remote = open_remote(transport, sshd.address, ssh_files)
    assert remote.run(["echo", "in"]).stdout == b"in\n"
    remote.close()
