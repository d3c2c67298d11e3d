"""The systemd unit of `kedge recover` runs kedge's own code, and no module from the folder it is started in."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.host.templates import render
from orchestrator.adapters.host.timer import RECOVER

EVIL = "import pathlib\npathlib.Path({ran!r}).touch()\n"


@pytest.mark.parametrize("module", ["orchestrator/__init__.py", "json.py", "invoke.py", "msgspec/__init__.py"])
def test_the_unit_imports_no_module_from_the_users_home(tmp_path: Path, module: str) -> None:
    """Systemd starts it there every minute: any program that can write to the home folder would get kedge's tokens."""
    home, ran = tmp_path / "home", tmp_path / "ran"
    (home / module).parent.mkdir(parents=True)
    (home / module).write_text(EVIL.format(ran=str(ran)))
    unit = render(
        "systemd/user-timer.service.j2",
        **{"what": RECOVER.what, "command": RECOVER.command, "secrets": "recover.env", "limit": RECOVER.limit},
        python=sys.executable,
        environment={},
    )
    (command,) = [line.removeprefix("ExecStart=") for line in unit.splitlines() if line.startswith("ExecStart=")]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "KEDGE_STATE_DIR": str(tmp_path / "state")}
    env["KEDGE_RUNTIME_DIR"] = str(tmp_path / "run")
    done = subprocess.run(shlex.split(command), cwd=home, env=env, capture_output=True, text=True, check=False)
    assert not ran.exists()
    assert (done.returncode, "No live run" in done.stdout) == (0, True), done.stderr
