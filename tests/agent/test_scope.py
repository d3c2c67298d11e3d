"""The command's own control group; tests/in_cloudbox/aws/test_restarts.py checks it on machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.base.wire import LOCAL, MachineConfig
from orchestrator.agent.run.scope import in_own_scope

COMMAND = ["printf", "%s\n", "a word", "it's"]


def machine(provider: str) -> MachineConfig:
    return MachineConfig(
        machine="m1", run="r", provider=provider, root="/opt/kedge", created=0, deadline_at=0, usd_per_hour="1"
    )


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemd that refuses every scope; the requests are in `asked`."""
    program = tmp_path / "sudo"
    program.write_text(f'#!/bin/sh\nprintf "%s " "$@" >>{tmp_path}/asked\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_command_starts_although_its_scope_is_refused(refusing: Path) -> None:
    """Its arguments are unchanged; the requested scope contains the process that becomes the command."""
    argv = in_own_scope(machine("aws"), COMMAND, systemd=refusing)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.communicate(timeout=60)[0] == "a word\nit's\n"
    asked = (refusing / "asked").read_text()
    assert asked == f"-n /bin/sh /opt/kedge/boot/ask.sh scope {process.pid} "


@pytest.mark.parametrize(("provider", "folder"), [(LOCAL, "."), ("aws", "missing")])
def test_without_systemd_the_command_is_started_directly(refusing: Path, provider: str, folder: str) -> None:
    """Nor on a local machine, even if this computer has systemd: its init finds processes by their ancestors."""
    assert in_own_scope(machine(provider), COMMAND, systemd=refusing / folder) == COMMAND
