"""The script that runs as root for the job's user: what it does, and what it refuses even if sudo allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.adapters.host.templates import render
from tests.support.waiting import wait_until

JOB = "nobody"
REFUSED = 2

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="processes of two users need root on Linux"
)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[int]:
    """The pid of a process of the job's user."""
    argv = ["setpriv", f"--reuid={JOB}", "--clear-groups", "sleep", "60"]
    with subprocess.Popen(argv, cwd=tmp_path) as process:
        # Before, it is still setpriv, with root's rights.
        wait_until(lambda: psutil.Process(process.pid).name() == "sleep")
        yield process.pid
        process.kill()


def ask(folder: Path, *words: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Call the script as sudo does, without a systemd that answers."""
    script = folder / "ask.sh"
    script.write_text(render("boot/ask.sh.j2", end_unit="no-such-end.service", run_unit="no-such.service", user=JOB))
    env = {"PATH": path, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent"}
    return subprocess.run(["/bin/sh", str(script), *words], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("sh",),
        ("sh", "-c", "id"),
        ("end", "now"),
        ("start", "sshd.service"),
        ("scope",),
        ("scope", ""),
        ("scope", "1"),
        ("scope", "self"),
        ("scope", "JOB/../1"),
        ("scope", "JOB/"),
        ("scope", "JOB 1"),
        ("scope", "JOB", "1"),
        ("scope", "JOB\n1"),
        ("scope", "-1"),
        ("scope", "0JOB"),
        ("scope", "ROOT"),
        ("end\nscope", "JOB"),
        ("*",),
    ],
)
def test_anything_but_the_jobs_own_requests_is_refused(tmp_path: Path, job: int, words: tuple[str, ...]) -> None:
    """Also another user's process, two processes at once, and words that only look like a pid."""
    given = [word.replace("JOB", str(job)).replace("ROOT", str(os.getpid())) for word in words]
    done = ask(tmp_path, *given)
    assert (done.returncode, "not allowed" in done.stderr) == (REFUSED, True), done


def test_a_process_of_the_jobs_user_is_accepted(tmp_path: Path, job: int) -> None:
    """The request gets as far as systemd, which isn't there. So do the other two requests."""
    for words in (("scope", str(job)), ("end",), ("start",)):
        done = ask(tmp_path, *words)
        assert (done.returncode != REFUSED, "not allowed" in done.stderr) == (True, False), done


def test_only_the_systems_programs_are_run(tmp_path: Path, job: int) -> None:
    """If sudo keeps PATH, the job controls it."""
    for name in ("stat", "id", "busctl", "systemctl", "date"):
        program = tmp_path / "mine" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho 0\n")
        program.chmod(0o755)
    for words in (("scope", str(job)), ("scope", "1"), ("end",), ("start",)):
        ask(tmp_path, *words, path=f"{tmp_path}/mine:/usr/bin:/bin")
    assert not (tmp_path / "ran").exists()
