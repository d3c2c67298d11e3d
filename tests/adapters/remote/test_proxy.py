"""Machines without a public address: reached through a second sshd, by both transports, with pinned host keys."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.failures import HostKeyError
from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.proxy import expand, proxy_command
from orchestrator.adapters.ssh.ssh_files import SshFiles, answers
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import SshAddress
from tests.adapters.remote.sshd import Sshd, running_sshd
from tests.support.waiting import wait_until

BASTION = """
Host bastion
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {key}
    IdentitiesOnly yes
    UserKnownHostsFile {known}
"""


@pytest.fixture
def bastion(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "bastion") as server:
        yield server


@pytest.fixture
def user_config(tmp_path: Path, bastion: Sshd) -> Path:
    """The user's SSH configuration, which has a block for the bastion."""
    address = bastion.address
    (tmp_path / "known").write_text(f"[127.0.0.1]:{address.port} {address.host_key}\n")
    config = tmp_path / "ssh config"
    config.write_text(
        BASTION.format(port=address.port, user=address.user, key=address.key_file, known=tmp_path / "known")
    )
    return config


@pytest.fixture
def through(ssh_files: SshFiles, user_config: Path) -> Iterator[SshConnector]:
    made = SshConnector(replace(ssh_files, user_config=user_config), SystemClock())
    yield made
    made.close()


def proxied_addresses(sshd: Sshd, user_config: Path) -> tuple[SshAddress, SshAddress]:
    """Return the machine's address behind a jump host, and behind a proxy command of the user's."""
    command = f"ssh -F '{user_config}' -W %h:%p bastion"
    return replace(sshd.address, jump_host="bastion"), replace(sshd.address, proxy_command=command)


@pytest.mark.parametrize("way", [0, 1])
def test_both_ways_in_go_through_the_bastion(
    through: SshConnector, sshd: Sshd, bastion: Sshd, user_config: Path, way: int
) -> None:
    """Paramiko within a command, the OpenSSH client for terminals, rsync and later commands."""
    address = proxied_addresses(sshd, user_config)[way]
    target = f"127.0.0.1 port {sshd.port}"
    remote = through.connect(address)
    assert remote.run(["cat"], stdin=b"x" * 100_000).stdout == b"x" * 100_000
    assert bastion.log.count(target) >= 1
    before = bastion.log.count(target)
    argv = through.ssh_argv(address, "-o", "ControlPath=none")
    done = subprocess.run([*argv, "echo here"], capture_output=True, timeout=30, check=False)
    assert done.stdout == b"here\n", done.stderr
    assert bastion.log.count(target) > before


def test_the_machine_still_proves_itself_by_its_pinned_key(
    through: SshConnector, sshd: Sshd, user_config: Path, tmp_path: Path
) -> None:
    """Whoever controls the bastion could answer instead of the machine."""
    _, other = ensure_key(tmp_path / "other")
    impostor = replace(sshd.address, host_key=other, jump_host="bastion")
    with pytest.raises(HostKeyError):
        through.connect(impostor)
    argv = through.ssh_argv(impostor)
    done = subprocess.run([*argv, "true"], capture_output=True, timeout=30, check=False)
    assert done.returncode == 255
    assert sshd.logins == 0


def test_a_bastion_that_the_user_does_not_know_is_refused_with_its_reason(
    through: SshConnector, sshd: Sshd, tmp_path: Path
) -> None:
    """Nobody is asked to trust a host key in the middle of a launch."""
    (tmp_path / "known").write_text("")
    with pytest.raises(UnreachableError) as refused:
        through.connect(replace(sshd.address, jump_host="bastion"))
    assert "the jump host or proxy command failed: Host key verification failed" in refused.value.why


def test_a_kept_connection_has_the_agents_socket_and_no_token(
    ssh_files: SshFiles, sshd: Sshd, user_config: Path
) -> None:
    """It outlives the command. The user's own SSH to the jump host may need the SSH agent, but no token."""
    marker, agent = f"kedge-marker-{uuid4().hex}", f"/nowhere/{uuid4().hex}"
    environ = {**os.environ, "AWS_SESSION_TOKEN": marker, "GITHUB_TOKEN": marker, "SSH_AUTH_SOCK": agent}
    made = SshConnector(replace(ssh_files, user_config=user_config), SystemClock(), environ=environ)
    address = proxied_addresses(sshd, user_config)[0]
    made.connect(address)
    wait_until(lambda: answers(ssh_files.control_socket(address)))
    assert holders(agent)
    assert holders(marker) == []
    made.forget(address)


def holders(text: str) -> list[str]:
    """List the processes on this computer that have a value in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if text in process.environ().values():
                found.append(process.name())
    return found


def test_a_machine_behind_a_bastion_is_not_probed(through: SshConnector, sshd: Sshd) -> None:
    """This computer can't reach it directly, whatever its provider opens."""
    assert through.reaches(replace(sshd.address, host="203.0.113.1", jump_host="bastion"))


def test_the_command_is_what_openssh_would_run() -> None:
    """The bastion's port comes after its name; tokens are expanded as in ssh_config(5)."""
    address = SshAddress(host="10.0.0.7", port=22, user="kedge", host_key="k", key_file="f", jump_host="ada@b:2222")
    command = proxy_command(address, None)
    assert command.endswith("-p 2222 -W '[%h]:%p' -- ada@b")
    assert "StrictHostKeyChecking=yes" in command
    assert expand("%h %p %r 100%% %x", address) == "10.0.0.7 22 kedge 100% %x"
