"""The laptop's own SSH key."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.adapters.ssh.keys import ensure_key


def test_a_key_is_made_once(tmp_path: Path) -> None:
    """The second call returns the same key: ed25519, without a passphrase, and private."""
    private, public = ensure_key(tmp_path / "keys")
    assert ensure_key(tmp_path / "keys") == (private, public)
    assert public.startswith("ssh-ed25519 ")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700


def test_two_commands_at_once_have_one_key(tmp_path: Path) -> None:
    """The slower one takes the key of the faster one, and no temporary file is left."""
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: ensure_key(tmp_path / "keys"), range(8)))
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["id_ed25519"]
