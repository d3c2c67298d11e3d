"""A local machine is reached through real SSH, keeps itself up, and ends itself at its deadline."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import psutil
import pytest

from orchestrator.adapters.providers.local.folder import Facts
from orchestrator.adapters.providers.local.layout import lay_out, package_folder, sockets_folder
from orchestrator.adapters.providers.local.sshd import find_program, start_sshd
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineState
from orchestrator.core.protocol.wire import MachineConfig
from tests.adapters.local.box import Box, eventually, make_box
from tests.adapters.local.standin import broken_agent

ID = "run-1a2b-m1"


def test_ssh_works_with_the_pinned_host_key(box: Box) -> None:
    """The OpenSSH client logs in, and accepts only the machine's own host key."""
    machine = box.provider().create(box.order(ID))
    assert box.ssh(machine, "echo $((6 * 7))") == "42\n"


def test_ssh_refuses_a_machine_with_another_host_key(box: Box) -> None:
    """Each machine has a key of its own: one can't pass for another."""
    one, two = (box.provider().create(box.order(machine_id)) for machine_id in (ID, "run-1a2b-m2"))
    assert one.address is not None
    assert two.address is not None
    mixed = replace(one, address=replace(one.address, host_key=two.address.host_key))
    done = subprocess.run([*box.ssh_argv(mixed), "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_ssh_refuses_another_key(box: Box, tmp_path: Path) -> None:
    """Only the key in the order can log in."""
    machine = box.provider().create(box.order(ID))
    assert machine.address is not None
    stranger = make_box(tmp_path / "stranger")
    foreign = replace(machine, address=replace(machine.address, key_file=str(stranger.key)))
    argv = [*box.ssh_argv(foreign), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_a_session_carries_the_marker_and_finds_the_launcher(box: Box) -> None:
    """Every process that is started over SSH can be found later, and the agent is on its PATH."""
    machine = box.provider().create(box.order(ID))
    script = 'echo "$KEDGE_MACHINE"; command -v kedge-agent'
    assert box.ssh(machine, script).splitlines() == [ID, machine.agent]


def test_the_agent_is_told_of_its_machine(box: Box) -> None:
    """machine.json holds what core.protocol.wire promises: prices, deadline, a folder for sockets, the end command."""
    order = box.order(ID, usd_per_hour=Decimal("1.99"), store_url="file:///store")
    machine = box.provider().create(order)
    config = msgspec.json.decode((Path(machine.root) / "machine.json").read_bytes(), type=MachineConfig)
    assert (config.machine, config.run, config.provider, config.root) == (ID, "run-1a2b", "local", machine.root)
    assert (config.usd_per_hour, config.store_url) == ("1.99", "file:///store")
    assert config.deadline_at - config.created == order.lifetime_seconds
    assert config.created == machine.created_at.timestamp()
    sockets = Path(config.sockets)
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert len(os.fsencode(sockets / "a-name-of-thirty-bytes-at-most")) < 104
    assert not config.path, "commands don't find kedge's own programs first"


def test_the_end_command_ends_the_machine(box: Box) -> None:
    """An agent ends its own machine with it, although nobody else is there."""
    machine = box.provider().create(box.order(ID))
    config = json.loads((Path(machine.root) / "machine.json").read_text())
    subprocess.run(config["end_command"], check=False, timeout=30)  # a process of the machine: it may end too
    eventually(lambda: box.leftovers() == [], "the machine goes")


def test_the_end_command_works_after_init_was_killed(box: Box) -> None:
    """It then does init's work itself, although it is one of the machine's processes."""
    machine = box.provider().create(box.order(ID))
    config = json.loads((Path(machine.root) / "machine.json").read_text())
    init = box.folder(ID).init()
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: not init.is_alive, "init dies")
    box.ssh(machine, f"setsid {' '.join(repr(word) for word in config['end_command'])} >/dev/null 2>&1 &")
    eventually(lambda: box.leftovers() == [], "the machine goes")
    assert box.provider().describe(ID) is None


def test_a_deadline_ends_the_machine_with_nobody_there(box: Box) -> None:
    """Processes, folder and sockets are removed when the lifetime is over, and not before."""
    machine = box.provider().create(box.order(ID, lifetime_seconds=15))
    process = box.start_process(machine, """setsid sh -c 'echo $$ > "$PID_FILE"; exec sleep 1000' >/dev/null 2>&1 &""")
    eventually(lambda: box.leftovers() == [], "the machine goes")
    assert machine.deadline_at.timestamp() <= time.time() < machine.deadline_at.timestamp() + 30
    assert not process.is_alive


def test_a_machine_whose_init_was_killed_is_lost(box: Box) -> None:
    """Nothing restarts its agent: it is listed until it is destroyed, and then nothing of it is left."""
    box.provider().create(box.order(ID))
    init = box.folder(ID).init()
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: not init.is_alive, "init dies")
    assert [found.state for found in box.provider().machines()] == [MachineState.UNKNOWN]
    box.provider().destroy(ID)
    assert box.leftovers() == []


def test_an_sshd_that_dies_is_restarted(box: Box) -> None:
    """It has the same port and the same key, so clients that knew the machine still connect."""
    machine = box.provider().create(box.order(ID))
    old = int(box.folder(ID).sshd_pid.read_text())
    os.kill(old, signal.SIGKILL)
    pid_file = box.folder(ID).sshd_pid
    eventually(lambda: pid_file.exists() and pid_file.read_text().strip() not in ("", str(old)), "sshd is back")
    assert box.ssh(machine, "echo back") == "back\n"


def test_an_agent_that_dies_is_restarted(box: Box) -> None:
    """The watch uploads checkpoints and keeps the agent's own deadline."""
    machine = box.provider().create(box.order(ID))

    def watches() -> list[psutil.Process]:
        init = box.folder(ID).init()
        assert init is not None
        return [child for child in psutil.Process(init.pid).children() if is_watch(child)]

    def is_watch(child: psutil.Process) -> bool:
        try:
            return child.status() != psutil.STATUS_ZOMBIE and "watch" in child.cmdline()
        except psutil.NoSuchProcess:  # init has just reaped it
            return False

    eventually(lambda: len(watches()) == 1, "the watch runs")
    old = watches()[0]
    old.kill()
    eventually(lambda: [watch for watch in watches() if watch != old] != [], "the watch is back")
    assert box.ssh(machine, "true") == ""


def test_a_port_that_is_in_use_is_skipped(box: Box) -> None:
    """Sshd binds the port itself, so that no other process can take it in between."""
    folder, order = box.folder(ID), box.order(ID)
    folder.root.mkdir(parents=True)
    lay_out(folder, facts(box), order)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder.host_key], check=True)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as soon_free:
        ports = [taken.getsockname()[1], soon_free.getsockname()[1]]
        soon_free.close()
        process, port = start_sshd(folder, ports)
    process.terminate()
    process.wait()
    assert port == ports[1]


def facts(box: Box) -> Facts:
    return Facts(
        run_id="run-1a2b",
        created=time.time(),
        lifetime=60,
        usd_per_hour="0",
        gpus=0,
        zstd=True,
        sockets=str(sockets_folder(box.base / "run", box.folder(ID).root)),
        python=sys.executable,
        package=package_folder(),
    )


def test_a_program_that_is_missing_is_named_with_its_package() -> None:
    """The error says what to install."""
    with pytest.raises(KedgeError, match="no-such-sshd is not installed") as raised:
        find_program("no-such-sshd", "openssh-server")
    assert "apt install openssh-server" in raised.value.fix


def test_a_boot_that_fails_says_why_and_leaves_nothing(box: Box) -> None:
    """The reason is the last line of the installer's output."""
    with pytest.raises(KedgeError, match="agent can't be installed") as raised:
        box.provider().create(box.order(ID, agent_archive=broken_agent()))
    assert raised.value.why == "no agent today"
    assert box.leftovers() == []


def test_an_archive_that_is_damaged_leaves_nothing(box: Box) -> None:
    """The damage is found before anything runs."""
    with pytest.raises(KedgeError, match="archive can't be unpacked"):
        box.provider().create(box.order(ID, agent_archive=b"not an archive"))
    assert box.leftovers() == []


def test_a_long_state_path_works(tmp_path: Path) -> None:
    """Sockets lie elsewhere, so the state path may be longer than a socket's path."""
    box = make_box(tmp_path / ("long" * 20) / ("longer" * 15))
    assert len(str(box.state_dir)) > 160
    machine = box.provider().create(box.order(ID))
    try:
        sockets = json.loads((Path(machine.root) / "machine.json").read_text())["sockets"]
        assert len(sockets) <= 70
        assert box.ssh(machine, f"tmux -S {sockets}/tmux new-session -d 'sleep 1000'") == ""
    finally:
        box.provider().destroy(ID)
    assert box.leftovers() == []
    assert not Path(sockets).exists()


def test_init_is_light() -> None:
    """One runs for each machine: it loads nothing that only the laptop's side needs."""
    code = "import sys, orchestrator.adapters.providers.local.init; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    heavy = {"msgspec", "jinja2", "pydantic", "fabric", "paramiko", "asyncio", "orchestrator.adapters.host.templates"}
    assert not heavy & set(done.stdout.split())
