"""How kedge connects to a machine, and which connection stays open after a command."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.failures import HostKeyError
from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.openssh import OpenSshRemote
from orchestrator.adapters.ssh.ssh_files import SshFiles, answers
from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.machine import SshAddress
from tests.adapters.remote.sshd import Sshd, wait_until
from tests.support.clocks import FakeClock
from tests.support.ports import free_port

SLOW_IMPORTS = ("fabric", "paramiko", "cryptography", "tenacity", "jinja2", "pydantic")


def leave_master(connector: SshConnector, ssh_files: SshFiles, address: SshAddress) -> None:
    connector.connect(address)
    wait_until(lambda: answers(ssh_files.control_socket(address)))


def as_program(ssh_files: SshFiles, address: SshAddress, body: str) -> str:
    """Return a script that has the same `connector` and `address`."""
    return textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from orchestrator.adapters.host.clock import SystemClock
        from orchestrator.adapters.ssh.connector import SshConnector
        from orchestrator.adapters.ssh.ssh_files import SshFiles
        from orchestrator.core.machine import SshAddress
        ssh_files = SshFiles(pins=Path({str(ssh_files.pins)!r}), runtime=Path({str(ssh_files.runtime)!r}))
        connector, address = SshConnector(ssh_files, SystemClock()), {address!r}
    """) + textwrap.dedent(body)


def run_program(script: str) -> str:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_command_uses_the_socket_of_the_first_and_imports_nothing_slow(
    sshd: Sshd, ssh_files: SshFiles, connector: SshConnector
) -> None:
    """The first command leaves a control socket. The second needs no login and loads no SSH library."""
    leave_master(connector, ssh_files, sshd.address)
    logins = sshd.logins
    output = run_program(
        as_program(
            ssh_files,
            sshd.address,
            f"""
            print(connector.connect(address).run(["echo", "hello"]).stdout)
            print([name for name in {SLOW_IMPORTS!r} if name in sys.modules])
            """,
        )
    )
    assert output == "b'hello\\n'\n[]\n"
    assert sshd.logins == logins


def test_a_command_reuses_its_own_connection(sshd: Sshd, connector: SshConnector) -> None:
    """A second `connect` in one command returns the same connection."""
    assert connector.connect(sshd.address) is connector.connect(sshd.address)


def test_a_broken_connection_is_opened_again(sshd: Sshd, connector: SshConnector) -> None:
    """After a cut, the next `connect` doesn't return the broken one."""
    first = connector.connect(sshd.address)
    sshd.cut()
    with pytest.raises(UnreachableError):
        first.run(["true"])
    assert connector.connect(sshd.address).run(["true"]).exit_code == 0


def test_a_stale_socket_is_removed(sshd: Sshd, ssh_files: SshFiles, connector: SshConnector) -> None:
    """A killed master leaves one, which costs no time."""
    ssh_files.open_runtime()
    with socket.socket(socket.AF_UNIX) as remains:
        remains.bind(str(ssh_files.control_socket(sshd.address)))
    begun = time.monotonic()
    assert connector.connect(sshd.address).run(["true"]).exit_code == 0
    assert time.monotonic() - begun < 9


def test_a_master_without_its_machine_is_noticed(sshd: Sshd, ssh_files: SshFiles, connector: SshConnector) -> None:
    """No command hangs on the socket of a dead connection."""
    leave_master(connector, ssh_files, sshd.address)
    connector.close()
    sshd.stop()
    begun = time.monotonic()
    with pytest.raises(UnreachableError):
        connector.connect(sshd.address).run(["true"])
    assert time.monotonic() - begun < 30


def test_a_machine_is_reachable_if_its_port_or_a_kept_socket_answers(
    sshd: Sshd, ssh_files: SshFiles, connector: SshConnector
) -> None:
    """A closed port means no. An open connection still works behind a firewall that was closed later."""
    address = sshd.address
    assert connector.reaches(address)
    leave_master(connector, ssh_files, address)
    moved = replace(address, port=free_port())
    assert not connector.reaches(moved)
    ssh_files.control_socket(address).rename(ssh_files.control_socket(moved))
    assert connector.reaches(moved)


def test_a_machine_that_still_boots_is_waited_for(sshd: Sshd, connector: SshConnector) -> None:
    """Until the time limit, refused connections are retried."""
    sshd.stop()
    starter = threading.Timer(0.5, sshd.start)
    starter.start()
    remote = connector.connect(sshd.address, within=timedelta(seconds=20))
    starter.join()
    assert remote.run(["true"]).exit_code == 0


def test_waiting_for_a_machine_ends_at_the_deadline(ssh_files: SshFiles, tmp_path: Path) -> None:
    """The error is that of the last attempt, and the wait doesn't exceed the time limit."""
    clock = FakeClock()
    address = Sshd(tmp_path / "never").address
    with pytest.raises(UnreachableError, match="doesn't answer"):
        SshConnector(ssh_files, clock, within=timedelta(minutes=1)).connect(address)
    assert timedelta(seconds=50) < sum(clock.pauses, timedelta(0)) <= timedelta(minutes=1)


def test_a_wrong_host_key_is_not_retried(sshd: Sshd, ssh_files: SshFiles, tmp_path: Path) -> None:
    """It will not become the right one."""
    clock = FakeClock()
    _, other = ensure_key(tmp_path / "other")
    with pytest.raises(HostKeyError):
        SshConnector(ssh_files, clock, within=timedelta(minutes=1)).connect(replace(sshd.address, host_key=other))
    assert clock.pauses == []


def test_the_ssh_argv_accepts_only_the_pinned_host_key(
    sshd: Sshd, ssh_files: SshFiles, connector: SshConnector, tmp_path: Path
) -> None:
    """Terminals and rsync use it: they log in with kedge's key alone, and only to the right machine."""
    _, other = ensure_key(tmp_path / "other")
    own = connector.ssh_argv(sshd.address, "-o", "ControlMaster=no")
    done = subprocess.run([*own, "echo in"], capture_output=True, timeout=20, check=False)
    assert done.stdout == b"in\n"
    wrong = connector.ssh_argv(replace(sshd.address, host_key=other), "-o", "ControlMaster=no")
    done = subprocess.run([*wrong, "echo in"], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"Host key verification failed" in done.stderr
    assert sshd.logins == 1


def test_the_ssh_argv_of_a_terminal_leaves_a_socket_for_others(
    sshd: Sshd, ssh_files: SshFiles, connector: SshConnector
) -> None:
    """An interactive session opens the shared connection if there is none, and isn't delayed by it."""
    done = subprocess.run(
        [*connector.ssh_argv(sshd.address), "echo in"], stdout=subprocess.PIPE, timeout=20, check=True
    )
    assert done.stdout == b"in\n"
    assert isinstance(connector.connect(sshd.address), OpenSshRemote)


def test_ctrl_c_in_a_command_leaves_the_shared_connection(sshd: Sshd, ssh_files: SshFiles) -> None:
    """The terminal's signal reaches every process of the command, but not the master."""
    script = as_program(
        ssh_files,
        sshd.address,
        """
        import time
        connector.connect(address)
        print("connected", flush=True)
        time.sleep(60)
        """,
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"connected\n"
        wait_until(lambda: answers(ssh_files.control_socket(sshd.address)))
        os.killpg(command.pid, signal.SIGINT)
        command.wait(20)
    assert answers(ssh_files.control_socket(sshd.address))
    assert OpenSshRemote(ssh_files, sshd.address).run(["true"]).exit_code == 0


def test_forgetting_a_machine_closes_its_connection_and_drops_its_pin(
    sshd: Sshd, ssh_files: SshFiles, connector: SshConnector
) -> None:
    """Nothing is left: no master, no socket, no known host. A second call is no error."""
    leave_master(connector, ssh_files, sshd.address)
    assert list(ssh_files.pins.iterdir())
    connector.forget(sshd.address)
    connector.forget(sshd.address)
    wait_until(lambda: not ssh_files.control_socket(sshd.address).exists())
    assert list(ssh_files.pins.iterdir()) == []


@pytest.fixture
def loose(ssh_files: SshFiles) -> Path:
    ssh_files.runtime.mkdir()
    ssh_files.runtime.chmod(0o755)
    return ssh_files.runtime


def test_the_sockets_folder_is_private(ssh_files: SshFiles, loose: Path) -> None:
    """If others could read it, its mode is corrected."""
    ssh_files.open_runtime()
    assert stat.S_IMODE(loose.stat().st_mode) == 0o700


def test_a_sockets_folder_that_is_a_link_is_refused(ssh_files: SshFiles, tmp_path: Path) -> None:
    """Somebody else may have made the link, to get at the sockets."""
    ssh_files.runtime.symlink_to(tmp_path)
    with pytest.raises(BadRequestError, match="is a link"):
        ssh_files.open_runtime()


def test_a_sockets_folder_with_too_long_a_path_is_refused(tmp_path: Path) -> None:
    """Kedge's error comes before ssh's, which is hard to understand."""
    ssh_files = SshFiles(pins=tmp_path, runtime=tmp_path / ("x" * 80))
    with pytest.raises(BadRequestError, match="too long"):
        ssh_files.open_runtime()
