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
    """A folder that belongs to the unprivileged user: pytest's own folders lie below a private one of root's."""
    made = Path(tempfile.mkdtemp(prefix="kedge-test-"))
    if os.getuid() == 0:
        os.chown(made, NOBODY.pw_uid, NOBODY.pw_gid)
    yield made
    shutil.rmtree(made)


def unprivileged() -> list[str]:
    """Return the words that run a command without root; none if the tests don't run as root.

    If only root can read the interpreter's folder, the command keeps the right to read it, and no other right.
    """
    if os.getuid() != 0:
        return []
    user = ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"]
    reading = [*user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    probe = subprocess.run([*user, "env", sys.executable, "-c", ""], capture_output=True, check=False, timeout=30)
    return user if probe.returncode == 0 else reading


def test_an_ordinary_user_can_have_a_machine(folder: Path) -> None:
    """The user creates it, reaches it with its key, and destroys it, without any other rights."""
    checkout = Path(__file__).parents[3]
    argv = [*unprivileged(), "env", f"HOME={folder}", sys.executable, "-m", "tests.adapters.local.as_nobody"]
    done = subprocess.run([*argv, str(folder)], cwd=checkout, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["uid"] != 0
    assert seen["user"] == pwd.getpwuid(seen["uid"]).pw_name
    assert (seen["state"], seen["sftp"], seen["left"]) == ("ready", 0, []), seen["stderr"]
