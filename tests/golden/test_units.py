"""The systemd unit: its text, and what systemd reports about it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.host.templates import TemplateError, render
from orchestrator.core.task import SupervisorKind

GOLDEN = Path(__file__).parent / "units"
UNIT = "systemd/kedge-run.service.j2"
KINDS = [SupervisorKind.SYSTEMD, SupervisorKind.SYSTEMD_USER]


def unit_of(kind: SupervisorKind, root: str, *, named: bool = False) -> str:
    user = "" if kind is SupervisorKind.SYSTEMD_USER else "root"
    return render(UNIT, description="digits", root=root, user=user, stop_seconds=135, named=named)


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_is_the_reviewed_one(kind: SupervisorKind) -> None:
    """A change of the template shows as a change of these files."""
    text = unit_of(kind, "/root/.kedge runs/digits-1")
    assert text == (GOLDEN / f"{kind.value}.service").read_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["plain", "with space", "100%h", "cost$HOME", "ünïcode"])
def test_systemd_accepts_the_unit(tmp_path: Path, kind: SupervisorKind, name: str) -> None:
    """Checked by `systemd-analyze verify`, with an agent in a folder of this name."""
    root = tmp_path / name
    launcher = root / "bin" / "kedge-agent"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    unit = tmp_path / "kedge-run.service"
    unit.write_text(unit_of(kind, str(root)))
    done = verify(unit, kind, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_reports_an_agent_that_is_missing(tmp_path: Path) -> None:
    """So the check above does look at the launcher."""
    unit = tmp_path / "kedge-run.service"
    unit.write_text(unit_of(SupervisorKind.SYSTEMD, str(tmp_path)))
    assert "is not executable" in verify(unit, SupervisorKind.SYSTEMD, tmp_path).stderr


@pytest.mark.parametrize("root", ['a"b', "a'b", "a\\b", "a\nExecStartPre=/bin/evil"])
def test_a_folder_that_a_unit_cannot_name_is_refused(root: str) -> None:
    """Better than a unit that runs something else."""
    with pytest.raises(TemplateError) as caught:
        unit_of(SupervisorKind.SYSTEMD, f"/{root}")
    assert caught.value.why
    assert caught.value.fix


def verify(unit: Path, kind: SupervisorKind, runtime: Path) -> subprocess.CompletedProcess[str]:
    options = ["--user"] if kind is SupervisorKind.SYSTEMD_USER else []
    return subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *options, str(unit)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(runtime), "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
