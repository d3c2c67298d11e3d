"""`kedge recover --install` on a computer with a real user systemd: a machine of the box."""

from __future__ import annotations

import base64
import contextlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.machines.lab import Keys, Lab, traces
from tests.cloudbox.machines.machines import Machines, MachineSpec
from tests.cloudbox.nspawn.needs import prepare_machines
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.support.waiting import wait_until

SOURCES = ("orchestrator", "templates", "infra")
KEDGE = "~/venv/bin/python -m orchestrator.cli"
UNITS = "test ! -d ~/.config/systemd || find ~/.config/systemd -name 'kedge-recover*'"
WITHOUT_SYSTEMD = "env -u XDG_RUNTIME_DIR -u DBUS_SESSION_BUS_ADDRESS"
"""A shell without systemd's variables: opened by `su`, or on a computer without systemd."""

INSTALL = """
set -e
tar -x -C /home/kedge -f /opt/kedge.tar --no-same-owner
/opt/pytorch/bin/python -m venv --without-pip /home/kedge/venv
packages=$(echo /home/kedge/venv/lib/python*/site-packages)
echo /home/kedge >"$packages/kedge.pth"
echo /opt/pytorch/lib/python*/site-packages >>"$packages/kedge.pth"
chown -R kedge: /home/kedge
loginctl enable-linger kedge
"""
"""Kedge as a user has it: in their own environment, with its packages."""


def packed_sources() -> str:
    """Return this checkout's program as a tar, in base64."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in SOURCES:
            tar.add(REPOSITORY / name, name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return base64.b64encode(packed.getvalue()).decode()


class Desk:
    """A user at a computer, over SSH."""

    def __init__(self, lab: Lab, spec: MachineSpec) -> None:
        self._lab = lab
        self._spec = spec

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a command as the user."""
        return self._lab.keys.ssh(self._spec.address, f"{{ {command}; }} 2>&1", check=check)

    def units(self) -> list[str]:
        """List the timer's files."""
        return sorted(Path(line).name for line in self.run(UNITS).splitlines())


@pytest.fixture(scope="module")
def computer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A computer with kedge, whose user's systemd runs without a login."""
    if reason := prepare_machines():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("desk")
    with contextlib.closing(Machines(folder / "machines")) as machines:
        lab = Lab(machines=machines, keys=Keys(folder))
        sources = {"path": "/opt/kedge.tar", "encoding": "b64", "content": packed_sources()}
        yield Desk(lab, lab.boot_up(user_data=lab.keys.user_data(write_files=[sources], runcmd=[INSTALL])))
    assert not traces(folder / "machines")


@pytest.fixture
def desk(computer: Desk) -> Iterator[Desk]:
    """The computer; no test leaves a timer on it."""
    yield computer
    computer.run(f"{KEDGE} recover --uninstall", check=False)
    assert computer.units() == []


def test_the_timer_runs_kedge_recover(desk: Desk) -> None:
    """It is enabled and waits for its time; then `kedge recover` runs and reports what it did."""
    said = desk.run(f"{KEDGE} recover --install")
    assert said.startswith("Installed: /home/kedge/.config/systemd/user/kedge-recover.timer.")
    assert "enable-linger" not in said, "the user's systemd goes on without a login"
    look = "systemctl --user is-enabled kedge-recover.timer; systemctl --user is-active kedge-recover.timer"
    assert desk.run(look).split() == ["enabled", "active"]
    # Empty while its service runs, as it does where a minute has just begun.
    next_round = "systemctl --user show --property=NextElapseUSecRealtime --value kedge-recover.timer"
    wait_until(lambda: desk.run(next_round).strip(), seconds=180)

    # A minute is long for a test: a drop-in is how a user would shorten it.
    folder = "~/.config/systemd/user/kedge-recover.timer.d"
    desk.run(f"mkdir -p {folder} && printf '[Timer]\\nOnActiveSec=1s\\n' >{folder}/soon.conf")
    desk.run("systemctl --user daemon-reload && systemctl --user restart kedge-recover.timer")
    log = "sudo journalctl --no-pager -o cat _SYSTEMD_USER_UNIT=kedge-recover.service"
    wait_until(lambda: "No live run was launched with --recover." in desk.run(log), seconds=120, pause=0.3)
    is_over = "systemctl --user is-active kedge-recover.service"
    wait_until(lambda: desk.run(is_over, check=False) == "inactive", pause=0.3)
    assert desk.run("systemctl --user show kedge-recover.service -P Result -P ExecMainStatus").split() == [
        "success",
        "0",
    ]
    desk.run(f"rm -r {folder}")


def test_uninstall_removes_all(desk: Desk) -> None:
    """No file, no link and no timer; a second uninstall finds none."""
    desk.run(f"{KEDGE} recover --install")
    assert desk.units() == ["kedge-recover.service", "kedge-recover.timer", "kedge-recover.timer"]
    assert desk.run(f"{KEDGE} recover --uninstall") == "The timer is gone."
    assert desk.units() == []
    assert "kedge" not in desk.run("systemctl --user list-timers --all; systemctl --user list-unit-files")
    assert desk.run(f"{KEDGE} recover --uninstall") == "There is no such timer."


def test_a_second_installation_replaces_the_first(desk: Desk) -> None:
    """As after an upgrade of kedge, or with another profile."""
    desk.run(f"{KEDGE} recover --install")
    desk.run(f"AWS_PROFILE=lab {KEDGE} recover --install")
    assert "AWS_PROFILE=lab" in desk.run("systemctl --user show kedge-recover.service -P Environment")
    assert desk.run("systemctl --user is-active kedge-recover.timer") == "active"


def test_without_a_user_systemd_it_says_so_and_writes_nothing(desk: Desk) -> None:
    """And what to do instead."""
    said = desk.run(f"{WITHOUT_SYSTEMD} {KEDGE} recover --install; echo status $?")
    assert "this computer's systemd doesn't accept a timer of yours" in said
    assert "cron" in said
    assert said.endswith("status 1")
    assert desk.units() == []


def test_without_a_user_systemd_uninstall_leaves_no_file(desk: Desk) -> None:
    """The timer isn't there at the next login; whether it still runs is unknown, and the output says so."""
    desk.run(f"{KEDGE} recover --install")
    said = desk.run(f"{WITHOUT_SYSTEMD} {KEDGE} recover --uninstall; echo status $?")
    assert "doesn't accept a timer" in said
    assert said.endswith("status 1")
    assert desk.units() == []
    desk.run("systemctl --user stop kedge-recover.timer")


def test_tokens_are_in_a_separate_file(desk: Desk) -> None:
    """No unit contains one; the output says where the timer looks for them, and it finds them there."""
    said = desk.run(f"DIGITALOCEAN_ACCESS_TOKEN=dop_v1_abc KEDGE_AMD_DELETE_TOKEN=dop_v1_def {KEDGE} recover --install")
    assert "/home/kedge/.config/kedge/recover.env" in said
    assert "dop_v1" not in desk.run("cat ~/.config/systemd/user/kedge-recover.*")
    desk.run("mkdir -p ~/.config/kedge; echo KEDGE_PROVIDER=nobody >~/.config/kedge/recover.env")
    shown = desk.run("systemctl --user show --property=EnvironmentFiles kedge-recover.service")
    assert "/home/kedge/.config/kedge/recover.env" in shown
    desk.run("rm -r ~/.config/kedge")


def test_reap_has_a_timer_of_its_own(desk: Desk) -> None:
    """With the same code; it runs `reap`, and the timer of `recover` stays as it was."""
    desk.run(f"{KEDGE} reap --install")
    assert desk.run("systemctl --user is-active kedge-reap.timer") == "active"
    assert "orchestrator.cli reap --yes" in desk.run("systemctl --user show kedge-reap.service -P ExecStart")
    assert desk.units() == []
    assert desk.run(f"{KEDGE} reap --uninstall") == "The timer is gone."
    assert desk.run("systemctl --user is-active kedge-reap.timer", check=False) == "inactive"
