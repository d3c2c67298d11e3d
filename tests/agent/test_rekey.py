"""The host key that came with user-data is replaced by one that nobody else has seen."""

from __future__ import annotations

import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.adapters.remote.sshd import Sshd, running_sshd, wait_until
from tests.agent.box import Box


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with tempfile.TemporaryDirectory(prefix="kg-") as folder, running_sshd(Path(folder) / "sshd") as server:
        yield server


def seen_key(sshd: Sshd) -> str:
    """The host key that a stranger is shown: type and key."""
    shown = subprocess.run(
        ["ssh-keyscan", "-t", "ed25519", "-p", str(sshd.port), "127.0.0.1"],
        capture_output=True,
        check=False,
        timeout=20,
    )
    return " ".join(shown.stdout.decode().split()[1:3])


def rekey(box: Box, sshd: Sshd, reload: str) -> subprocess.CompletedProcess[bytes]:
    return box.call("rekey", "--file", str(sshd.folder / "host/id_ed25519"), "--reload", reload)


def test_sshd_shows_the_new_key_and_the_old_one_is_gone(box: Box, sshd: Sshd) -> None:
    """What is printed is what sshd shows from then on; connections go on working with it."""
    old = seen_key(sshd)
    done = rekey(box, sshd, f"kill -HUP {sshd_pid(sshd)}")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.decode().strip()
    assert printed.startswith("ssh-ed25519 ")
    wait_until(lambda: seen_key(sshd) == printed)
    assert printed != old
    key = sshd.folder / "host/id_ed25519"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (sshd.folder / "host/id_ed25519.pub").read_text().strip() == printed
    assert {path.name for path in key.parent.iterdir()} == {"id_ed25519", "id_ed25519.pub"}


def test_a_reload_that_fails_is_told(box: Box, sshd: Sshd) -> None:
    """The key was printed before: the caller knows both."""
    done = rekey(box, sshd, "false")
    assert (done.returncode, done.stdout.startswith(b"ssh-ed25519 ")) == (1, True)
    assert b"false ... failed" in done.stderr


def test_a_key_that_cannot_be_replaced_leaves_the_old_one(box: Box, sshd: Sshd) -> None:
    """And no private key lies about."""
    old = seen_key(sshd)
    done = box.call("rekey", "--file", str(sshd.folder / "nowhere/key"), "--reload", "true")
    assert done.returncode == 1
    assert seen_key(sshd) == old
    assert not list(box.root.glob(".rekey-*"))


def sshd_pid(sshd: Sshd) -> int:
    """The one that listens, which shows its configuration."""
    children = psutil.Process().children()
    return next(child.pid for child in children if f"{sshd.folder}/config" in " ".join(child.cmdline()))
