"""Plain `ssh <run>`: kedge's include file and the line that includes it, as OpenSSH itself reads them."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.options import openssh_argv, openssh_options
from orchestrator.adapters.ssh.ssh_config import install_include, is_included, write_ssh_config
from orchestrator.adapters.ssh.ssh_files import SshFiles
from tests.adapters.remote.sshd import Sshd, wait_until
from tests.support.ports import free_port


def settings_of(config: Path, alias: str) -> dict[str, str]:
    done = subprocess.run(["ssh", "-G", "-F", str(config), alias], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_plain_ssh_reaches_the_machine_through_the_users_configuration(
    sshd: Sshd, ssh_files: SshFiles, tmp_path: Path
) -> None:
    """With the line installed, the run's id is enough, although a later block sets everything differently."""
    include, user_config = tmp_path / "kedge state" / "ssh config", tmp_path / "home" / ".ssh" / "config"
    user_config.parent.mkdir(parents=True)
    user_config.write_text("Host *\n  Port 1\n  User nobody\n  StrictHostKeyChecking no\n  ForwardAgent yes\n")
    ssh_files.open_runtime()
    write_ssh_config(include, {"digits-1a2b": sshd.address}, ssh_files)
    install_include(user_config, include)
    argv = ["ssh", "-F", str(user_config), "-o", "ControlMaster=no", "digits-1a2b", "echo in"]
    assert subprocess.run(argv, capture_output=True, timeout=20, check=True).stdout == b"in\n"
    seen = settings_of(user_config, "digits-1a2b")
    assert seen["stricthostkeychecking"] == "true"
    assert seen["forwardagent"] == "no"
    assert seen["userknownhostsfile"] == str(ssh_files.known_hosts(sshd.address))
    assert seen["controlpath"] == str(ssh_files.control_socket(sshd.address))
    assert settings_of(user_config, "elsewhere")["port"] == "1"


def test_plain_ssh_refuses_another_host_key(sshd: Sshd, ssh_files: SshFiles, tmp_path: Path) -> None:
    """The include file is as strict as kedge itself."""
    _, other = ensure_key(tmp_path / "other")
    ssh_files.open_runtime()
    write_ssh_config(tmp_path / "config", {"run": replace(sshd.address, host_key=other)}, ssh_files)
    argv = ["ssh", "-F", str(tmp_path / "config"), "-o", "ControlMaster=no", "run", "true"]
    done = subprocess.run(argv, capture_output=True, timeout=20, check=False)
    assert done.returncode == 255
    assert b"Host key verification failed" in done.stderr
    assert sshd.logins == 0


def test_each_machine_has_a_block_until_it_is_gone(ssh_files: SshFiles, tmp_path: Path) -> None:
    """The file lists the machines that are up now."""
    address = Sshd(tmp_path / "one").address
    config = tmp_path / "config"
    write_ssh_config(config, {"a": address, "b": replace(address, port=2222)}, ssh_files)
    assert settings_of(config, "b")["port"] == "2222"
    write_ssh_config(config, {"a": address}, ssh_files)
    assert settings_of(config, "a")["port"] == str(address.port)
    assert settings_of(config, "b")["port"] == "22"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_the_include_line_is_added_once_at_the_top(tmp_path: Path) -> None:
    """The rest stays below it, and the mode stays. A second call changes nothing."""
    user_config, include = tmp_path / "config", tmp_path / "with space" / "kedge 100%"
    user_config.write_bytes(b"Host a\xff\n  Port 3\n")
    user_config.chmod(0o640)
    assert not is_included(user_config, include)
    assert install_include(user_config, include)
    assert is_included(user_config, include)
    content = user_config.read_bytes()
    assert not install_include(user_config, include)
    assert user_config.read_bytes() == content
    assert content.startswith(b"Include ")
    assert content.endswith(b"\n\nHost a\xff\n  Port 3\n")
    assert stat.S_IMODE(user_config.stat().st_mode) == 0o640


def test_a_user_without_a_configuration_gets_a_private_one(tmp_path: Path) -> None:
    """Only the user can read the folder and the file."""
    user_config = tmp_path / ".ssh" / "config"
    install_include(user_config, tmp_path / "kedge")
    assert stat.S_IMODE(user_config.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(user_config.stat().st_mode) == 0o600


def test_a_configuration_that_is_a_link_stays_one(tmp_path: Path) -> None:
    """Dotfiles that are kept in a repository are changed there."""
    kept = tmp_path / "dotfiles"
    kept.write_text("Port 3\n")
    user_config = tmp_path / "config"
    user_config.symlink_to(kept)
    install_include(user_config, tmp_path / "kedge")
    assert user_config.is_symlink()
    assert kept.read_text().startswith("Include ")


@pytest.mark.parametrize(
    ("text", "included"),
    [
        ('Include "{path}"\n', True),
        ("include = {path}\n", True),
        ("# Include {path}\n", False),
        ("Host a\n  Include {path}\n", False),
        ("Match all\nInclude {path}\n", False),
        ("Include other {path}\nHost a\n", True),
        ("Include {path}.bak\n", False),
    ],
)
def test_an_include_counts_only_where_it_holds_for_every_host(tmp_path: Path, text: str, included: bool) -> None:
    """A comment, another file, or a line within a block doesn't count."""
    user_config = tmp_path / "config"
    user_config.write_text(text.format(path=tmp_path / "kedge"))
    assert is_included(user_config, tmp_path / "kedge") is included


FORWARDS = """
Host *
  ForwardAgent yes
  ForwardX11 yes
  ForwardX11Trusted yes
  Tunnel yes
  PermitLocalCommand yes
  LocalCommand touch {ran}
  GSSAPIDelegateCredentials yes
  UpdateHostKeys yes
  VerifyHostKeyDNS yes
  AddKeysToAgent yes
  RemoteForward {theirs} 127.0.0.1:22
  LocalForward {ours} 127.0.0.1:22
  DynamicForward {dynamic}
"""
"""What people set for hosts that they trust. Without kedge's block, a hijacked machine would get all of it."""


def test_nothing_of_the_laptop_is_forwarded_to_a_machine(sshd: Sshd, ssh_files: SshFiles, tmp_path: Path) -> None:
    """No agent, no X11 and no ports, although the user's configuration forwards all of them to every host."""
    include, user_config, ran = tmp_path / "kedge", tmp_path / "config", tmp_path / "ran"
    ports = {"theirs": free_port(), "ours": free_port(), "dynamic": free_port()}
    user_config.write_text(FORWARDS.format(ran=ran, **ports))
    ssh_files.open_runtime()
    write_ssh_config(include, {"run": sshd.address}, ssh_files)
    install_include(user_config, include)
    look = f"echo agent=$SSH_AUTH_SOCK display=$DISPLAY; ss -Hltn sport = :{ports['theirs']}"
    with subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL) as agent:
        wait_until((tmp_path / "agent").exists)
        argv = ["ssh", "-F", str(user_config), "-o", "ControlMaster=no", "run", look]
        env = {**os.environ, "SSH_AUTH_SOCK": str(tmp_path / "agent"), "DISPLAY": "127.0.0.1:9"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=True)
        agent.terminate()
    assert done.stdout == "agent= display=\n"
    assert not ran.exists()
    seen = settings_of(user_config, "run")
    assert not {"localforward", "remoteforward", "dynamicforward"} & set(seen)
    off = ("forwardagent", "forwardx11", "forwardx11trusted", "gssapidelegatecredentials", "permitlocalcommand")
    assert {seen[key] for key in (*off, "updatehostkeys", "verifyhostkeydns", "addkeystoagent", "tunnel")} == {
        "no",
        "false",
    }
    assert (seen["identitiesonly"], seen["clearallforwardings"]) == ("yes", "yes")


def test_a_port_is_forwarded_where_the_command_line_asks_for_it(
    sshd: Sshd, ssh_files: SshFiles, tmp_path: Path
) -> None:
    """As the top of the file explains, for example for a TensorBoard on the machine."""
    config, port = tmp_path / "config", free_port()
    ssh_files.open_runtime()
    write_ssh_config(config, {"run": sshd.address}, ssh_files)
    assert "-o ClearAllForwardings=no -L" in config.read_text()
    forward = ["-o", "ClearAllForwardings=no", "-L", f"{port}:127.0.0.1:{sshd.port}"]
    argv = ["ssh", "-F", str(config), "-o", "ControlMaster=no", *forward, "run", "cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdin
        assert client.stdout
        client.stdin.write(b"in\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"in\n"
        with socket.create_connection(("127.0.0.1", port), timeout=5) as through:
            assert through.recv(8).startswith(b"SSH-2.0")
        client.terminate()


def test_kedges_own_commands_forward_nothing_either(ssh_files: SshFiles, sshd: Sshd) -> None:
    """SSH, rsync and `exec` get the same options as the block, and don't read the user's configuration."""
    argv = openssh_argv(openssh_options(ssh_files, sshd.address), sshd.address)
    done = subprocess.run([argv[0], "-G", *argv[1:]], capture_output=True, text=True, check=True)
    seen = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert argv[1:3] == ["-F", "none"]
    assert {seen[key] for key in ("forwardagent", "forwardx11", "forwardx11trusted", "updatehostkeys", "tunnel")} <= {
        "no",
        "false",
    }
    assert (seen["identitiesonly"], seen["clearallforwardings"]) == ("yes", "yes")
