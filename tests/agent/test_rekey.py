"""The host key from user-data gets a second one beside it, then is replaced by it; nobody else has seen the second."""

from __future__ import annotations

import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.remote.sshd import wait_until
from tests.agent.box import Box
from tests.support.newborn import NewbornSshd


@pytest.fixture
def sshd() -> Iterator[NewbornSshd]:
    with tempfile.TemporaryDirectory(prefix="kg-") as folder:
        server = NewbornSshd(Path(folder) / "sshd")
        server.start()
        try:
            yield server
        finally:
            server.stop()


def rekey(
    box: Box, sshd: NewbornSshd, *more: str, reload: str = "", folder: str = ""
) -> subprocess.CompletedProcess[bytes]:
    place = folder or str(sshd.keys)
    return box.call("rekey", "--folder", place, "--reload", reload or sshd.reload, *more)


def printed(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def test_sshd_shows_both_keys_until_the_old_one_is_retired(box: Box, sshd: NewbornSshd) -> None:
    """Clients that have pinned either key can connect meanwhile; afterwards only the new one is left."""
    own = printed(rekey(box, sshd))
    assert own.startswith("ssh-ed25519 ")
    wait_until(lambda: sshd.shown("ed25519") == own)
    assert sshd.shown("ecdsa") == sshd.host_key
    assert printed(rekey(box, sshd, "--retire")) == ""
    wait_until(lambda: sshd.shown("ecdsa") == "")
    assert sshd.shown("ed25519") == own
    key = sshd.keys / "ssh_host_ed25519_key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert {path.name for path in sshd.keys.iterdir()} == {key.name, f"{key.name}.pub"}


def test_a_caller_who_lost_the_connection_asks_again_and_gets_the_same_key(box: Box, sshd: NewbornSshd) -> None:
    """Before the old key is retired, and after; retiring it twice is no error."""
    own = printed(rekey(box, sshd))
    assert printed(rekey(box, sshd)) == own
    assert printed(rekey(box, sshd, "--retire")) == printed(rekey(box, sshd, "--retire")) == ""
    assert printed(rekey(box, sshd)) == own


def test_a_failed_reload_is_reported_and_the_key_is_made_only_once(box: Box, sshd: NewbornSshd) -> None:
    """No client learns of a key that sshd may not show yet."""
    done = rekey(box, sshd, reload="false")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"false ... failed" in done.stderr
    made = (sshd.keys / "ssh_host_ed25519_key").read_bytes()
    printed(rekey(box, sshd))
    assert (sshd.keys / "ssh_host_ed25519_key").read_bytes() == made


def test_a_public_key_without_its_private_key_is_made_again(box: Box, sshd: NewbornSshd) -> None:
    """A machine that was killed in between has no key yet."""
    (sshd.keys / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 HALF\n")
    own = printed(rekey(box, sshd))
    assert own != "ssh-ed25519 HALF"
    wait_until(lambda: sshd.shown("ed25519") == own)


def test_the_only_key_is_not_retired(box: Box, sshd: NewbornSshd) -> None:
    """Otherwise nobody could connect any more."""
    done = rekey(box, sshd, "--retire")
    assert done.returncode == 2
    assert sshd.shown("ecdsa") == sshd.host_key


def test_a_key_that_cannot_be_put_in_place_leaves_the_old_one(box: Box, sshd: NewbornSshd) -> None:
    """No private key is left behind."""
    done = rekey(box, sshd, folder=str(sshd.folder / "nowhere"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert sshd.shown("ecdsa") == sshd.host_key
    assert not list(box.root.glob(".rekey-*"))
