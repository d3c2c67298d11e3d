"""Destroying a machine ends every process that it started, however well hidden, and no other process."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.providers.local.processes import Ident, ident
from orchestrator.core.machine import Machine, MachineState
from tests.adapters.local.box import Box, eventually, make_box

ID = "run-1a2b-m1"

_FORK_TWICE = """
import os, sys, time
if os.fork(): sys.exit()
os.setsid()
if os.fork(): sys.exit()
for number in (0, 1, 2): os.close(number)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""
_STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""


def python(code: str) -> str:
    return f'{shlex.join([sys.executable, "-c", code])} "$PID_FILE"'


HIDDEN = {
    "tmux": """tmux -S "$PID_FILE.sock" new-session -d 'echo $$ > "$PID_FILE"; exec sleep 1000'""",
    "screen": """SCREENDIR=$(mktemp -d) screen -dmS x sh -c 'echo $$ > "$PID_FILE"; exec sleep 1000'""",
    "setsid": """setsid sh -c 'echo $$ > "$PID_FILE"; exec sleep 1000' >/dev/null 2>&1 </dev/null &""",
    "nohup": """nohup sh -c 'echo $$ > "$PID_FILE"; exec sleep 1000' >/dev/null 2>&1 </dev/null &""",
    "forked twice": python(_FORK_TWICE),
}
BARE = f"env -i {python(_FORK_TWICE)}"


@pytest.fixture
def bystander() -> Iterator[Ident]:
    """A process that belongs to no machine."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield ident(process.pid)
        process.kill()


@pytest.fixture
def machine(box: Box) -> Machine:
    return box.provider().create(box.order(ID))


def kill_init(box: Box) -> None:
    init = box.folder(ID).init()
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: not init.is_alive, "init dies")


@pytest.mark.parametrize("init", ["alive", "killed"])
def test_every_hidden_process_ends_and_no_other(box: Box, machine: Machine, bystander: Ident, init: str) -> None:
    """Started under tmux, screen, setsid, nohup, or forked twice. A bystander and a second machine live on."""
    other = box.provider().create(box.order("run-1a2b-m10"))
    theirs = box.start_process(other, HIDDEN["tmux"])
    hidden = {name: box.start_process(machine, script) for name, script in HIDDEN.items()}
    assert all(process.is_alive for process in hidden.values())
    if init == "killed":
        kill_init(box)
    box.provider().destroy(ID)
    assert [name for name, process in hidden.items() if process.is_alive] == []
    assert box.provider().describe(ID) is None
    assert bystander.is_alive
    assert theirs.is_alive
    assert box.ssh(other, "echo still here") == "still here\n"


def test_a_daemon_without_environment_ends(box: Box, machine: Machine) -> None:
    """Its marker is gone, but it still descends from init."""
    daemon = box.start_process(machine, BARE)
    box.provider().destroy(ID)
    assert not daemon.is_alive


def test_a_daemon_without_environment_ends_after_init_was_killed(box: Box, machine: Machine) -> None:
    """It has neither marker nor descent, but init has recorded that it belongs to the machine."""
    daemon = box.start_process(machine, BARE)
    eventually(lambda: daemon in box.folder(ID).known(), "init records the daemon")
    kill_init(box)
    box.provider().destroy(ID)
    assert not daemon.is_alive


def test_an_idle_connection_ends_after_init_was_killed(box: Box, machine: Machine) -> None:
    """An idle control connection runs no command: its sshd has no child with the marker."""
    with subprocess.Popen([*box.ssh_argv(machine), "-N"]) as client:
        log = box.folder(ID).sshd_log
        eventually(lambda: "Accepted publickey" in log.read_text(), "the client is in")
        kill_init(box)
        box.provider().destroy(ID)
        assert client.wait(10) == 255
    assert box.leftovers() == []


def test_a_process_that_ignores_sigterm_ends(box: Box, machine: Machine) -> None:
    """After the grace period it gets SIGKILL."""
    process = box.start_process(machine, f"{python(_STUBBORN)} >/dev/null 2>&1 </dev/null &")
    box.provider().destroy(ID)
    assert not process.is_alive


def test_a_machine_without_folder_is_found_by_its_processes(box: Box, machine: Machine) -> None:
    """A crash may leave only processes. They are listed as a machine, and can be destroyed."""
    process = box.start_process(machine, HIDDEN["setsid"])
    kill_init(box)
    box.folder(ID).root.rename(box.base / "lost")
    assert [(found.id, found.state) for found in box.provider().machines()] == [(ID, MachineState.UNKNOWN)]
    box.provider().destroy(ID)
    assert not process.is_alive
    assert box.provider().machines() == []


def test_a_machine_of_another_state_folder_is_left_alone(box: Box, machine: Machine, tmp_path: Path) -> None:
    """A machine with the same id under another state folder is neither listed nor destroyed."""
    stranger = make_box(tmp_path / "stranger")
    assert stranger.provider().machines() == []
    stranger.provider().destroy(ID)
    assert box.ssh(machine, "echo here") == "here\n"


def test_a_teardown_typed_on_the_machine_spares_its_own_shell(box: Box, machine: Machine) -> None:
    """The command ends everything else and reports that the machine is gone; its shell lives to print that."""
    process = box.start_process(machine, HIDDEN["tmux"])
    code = f"""
from pathlib import Path
from tests.adapters.local.box import Box
provider = Box(Path({str(box.base)!r})).provider()
provider.destroy({ID!r})
print(provider.describe({ID!r}))
"""
    argv = ["env", f"PYTHONPATH={os.pathsep.join(sys.path)}", sys.executable, "-c", code]
    assert box.ssh(machine, f"{shlex.join(argv)}; echo and my shell lives") == "None\nand my shell lives\n"
    assert not process.is_alive
    eventually(lambda: box.leftovers() == [], "init leaves as well")


def test_read_only_folders_are_removed(box: Box, machine: Machine) -> None:
    """Write-protected folders of a program don't keep the machine's folder from being removed."""
    box.ssh(machine, f"cd {shlex.quote(machine.root)} && mkdir -p a/b && touch a/b/c && chmod -R a-w a")
    box.provider().destroy(ID)
    assert not box.folder(ID).root.exists()


def test_links_out_of_the_folder_are_not_followed(box: Box, machine: Machine) -> None:
    """Removing the machine removes the link, not its target."""
    precious = box.base / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    (box.folder(ID).root / "data").symlink_to(precious)
    box.provider().destroy(ID)
    assert (precious / "file").read_text() == "mine"
