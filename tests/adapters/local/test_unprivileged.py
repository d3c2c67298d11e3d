"""A local machine needs no root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the unprivileged user's: pytest's own ones lie below a private one of root's."""
    made = Path(tempfile.mkdtemp(prefix="kedge-test-"))
    if os.getuid() == 0:
        os.chown(made, NOBODY.pw_uid, NOBODY.pw_gid)
    yield made
    shutil.rmtree(made)


def unprivileged() -> list[str]:
    """Return what makes a command run without root: nothing, where that is so already.

    Where the interpreter lies in a folder of root's alone, the right to read it is kept, and no other.
    """
    if os.getuid() != 0:
        return []
    user = ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"]
    reading = [*user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    probe = subprocess.run([*user, "env", sys.executable, "-c", ""], capture_output=True, check=False, timeout=30)
    return user if probe.returncode == 0 else reading


def test_an_ordinary_user_can_have_a_machine(folder: Path) -> None:
    """Created, reached with its own key, and ended, by a user who may do nothing else."""
    checkout = Path(__file__).parents[3]
    argv = [*unprivileged(), "env", f"HOME={folder}", sys.executable, "-m", "tests.adapters.local.as_nobody"]
    done = subprocess.run([*argv, str(folder)], cwd=checkout, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["uid"] != 0
    assert seen["user"] == pwd.getpwuid(seen["uid"]).pw_name
    assert (seen["state"], seen["sftp"], seen["left"]) == ("ready", 0, []), seen["said"]
