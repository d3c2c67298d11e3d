"""A job that tries to keep its machine: it leaves no room for other processes, or stops those that would end it."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from orchestrator.adapters.host.templates import render
from orchestrator.adapters.providers.digitalocean.self_deletion import SelfDelete, render_end_script
from tests.cloudbox.machines.lab import Lab, open_lab
from tests.cloudbox.machines.machines import MachineSpec
from tests.cloudbox.nspawn.needs import prepare_machines
from tests.cloudbox.nspawn.order import group_name
from tests.support.waiting import wait_until

# It forks until no process fits, and again whenever another process ends.
BOMB = "import os, time\nwhile True:\n try:\n  os.fork() or time.sleep(1000)\n except OSError: time.sleep(0.001)"
ROOM = 80
LIFETIME = 25
_GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab that must leave nothing behind."""
    if reason := prepare_machines():
        pytest.skip(reason)
    with open_lab(tmp_path) as lab:
        yield lab


@contextmanager
def limit_processes(lab: Lab, spec: MachineSpec) -> Iterator[Path]:
    """Limit a machine to ROOM more processes, of any user, with the kernel's own limit; end it afterwards.

    Yields:
        The control group that counts them.
    """
    (keeper,) = (child for child in psutil.Process().children() if "tests.cloudbox.nspawn.keeper" in child.cmdline())
    if (_GROUPS / "pids").is_dir():
        group = _GROUPS / "pids" / f"kedge-room-{keeper.pid}"
        group.mkdir()
        # The keeper first: processes that it starts from now on count as well.
        for process in (keeper, *keeper.children(recursive=True)):
            with suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(process.pid))
    else:
        (_GROUPS / "cgroup.subtree_control").write_text("+pids")
        group = _GROUPS / group_name(lab.machines.folder / spec.name)
    (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + ROOM))
    try:
        yield group
    finally:
        lab.machines.end(spec.name)
        with suppress(FileNotFoundError):
            wait_until(lambda: not (group / "cgroup.procs").read_text())
            group.rmdir()


@pytest.mark.parametrize("asks", [False, True], ids=["powers off", "asks for its deletion"])
def test_a_machine_that_is_full_of_processes_ends_at_its_deadline(lab: Lab, *, asks: bool) -> None:
    """No process can start then. A machine that has to call an API before it powers off calls it after a reboot."""
    with socket.create_server(("127.0.0.1", 0)) as api:
        deadline = render(
            "boot/deadline.sh.j2",
            deadline_file="/var/lib/kedge/m.deadline",
            arm_file="/var/lib/kedge/arm.sh",
            end_file="/var/lib/kedge/end.sh",
            end=f"curl --max-time 1 http://127.0.0.1:{api.getsockname()[1]}" if asks else "",
            lifetime=LIFETIME,
            units="/etc/systemd/system",
        )
        spec = lab.boot_up(user_data=lab.keys.user_data(bootcmd=[deadline]))
        with limit_processes(lab, spec) as group:
            lab.run(spec, f"sudo setpriv --reuid=nobody --clear-groups setsid python3 -c '{BOMB}' >/dev/null 2>&1 &")
            wait_until(lambda: (group / "pids.current").read_text() == (group / "pids.max").read_text())
            assert lab.exits.get(timeout=LIFETIME + 120) == (spec.name, True)
        api.settimeout(0)
        if asks:
            api.accept()[0].close()


def test_a_job_is_cleared_away_by_its_control_groups(lab: Lab) -> None:
    """A job could stop a process that runs as its user to kill it: none is needed, and here none can start."""
    spec = lab.boot_up()
    ending = SelfDelete(endpoint="http://127.0.0.1:9", token="t", token_name="TOKEN", metadata="http://127.0.0.1:9")
    script = render_end_script(ending, state="/srv", user="nobody").encode()
    lab.run(spec, f"echo {base64.b64encode(script).decode()} | base64 -d >/tmp/end.sh; echo | sudo tee /srv/api.curl")
    lab.run(spec, "mkdir /tmp/first; ln -s /bin/false /tmp/first/setpriv")
    # A scope keeps systemd-run in the foreground; in a session of its own it outlives this connection.
    for unit in ("--unit=kedge-run.service", "--slice=user-65534.slice"):
        lab.run(spec, f"sudo systemd-run --quiet {unit} --uid=nobody sleep 1000")
    scope = "sudo systemd-run --quiet --scope --unit=kedge-run-7-1.scope --uid=nobody sleep 1000"
    lab.run(spec, f"setsid --fork {scope} >/dev/null 2>&1 </dev/null")
    wait_until(lambda: lab.run(spec, "pgrep -c -x -u nobody sleep || true") == "3")
    lab.run(spec, "sudo env PATH=/tmp/first:/usr/bin:/bin timeout 3 sh /tmp/end.sh >/dev/null 2>&1 || true")
    assert lab.run(spec, "pgrep -l -u nobody || true") == ""
