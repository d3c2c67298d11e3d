"""Reads the environment, once: the paths of kedge's state, and the defaults set in the user's shell.

This is the only module that reads environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_config_path, user_state_path

from orchestrator.adapters.host.private import follow_own_link, make_private_folder
from orchestrator.core.values.credentials import is_own_secret
from orchestrator.core.values.network import parse_address_range
from orchestrator.core.values.printable import require_printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the laptop's environment sets.

    Attributes:
        state_dir: the ledger, keys, local machines and caches; nobody else may enter it.
        runtime_dir: a short private path for sockets, whose paths may not exceed 107 bytes.
        provider: the provider of jobs that don't name one.
        config_file: the user's settings for all jobs; it may be missing.
        ssh_config: the user's own OpenSSH configuration.
        ssh_from: the address range that may reach machines, as CIDR; empty to find this computer's own address.
        selftest_seconds: how long the self-test's training takes, as text; empty for two minutes.
        environ: the source of secrets and inherited variables.
    """

    state_dir: Path
    runtime_dir: Path
    provider: str
    config_file: Path
    ssh_config: Path
    ssh_from: str
    selftest_seconds: str
    cwd: Path
    environ: Mapping[str, str]


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read KEDGE_STATE_DIR, KEDGE_RUNTIME_DIR, KEDGE_PROVIDER, KEDGE_SSH_FROM and others from the environment.

    Raises:
        BadRequestError: a folder is a link or belongs to another user, KEDGE_SSH_FROM isn't an address range, or a
            value has characters that can't be shown.
    """
    env = os.environ if environ is None else environ
    for name, value in env.items():
        # Secrets are left out, because the error would show them.
        if name.startswith("KEDGE_") and not is_own_secret(name):
            require_printable(value, f"{name}: ")
    return Settings(
        state_dir=Path(os.path.realpath(make_private_folder(follow_own_link(_state_dir(env))))),
        runtime_dir=make_private_folder(_runtime_dir(env)),
        provider=env.get("KEDGE_PROVIDER") or "local",
        config_file=Path(env.get("KEDGE_CONFIG") or user_config_path("kedge") / "config.yaml").expanduser(),
        ssh_config=Path(env.get("KEDGE_SSH_CONFIG") or "~/.ssh/config").expanduser(),
        ssh_from=parse_address_range(env.get("KEDGE_SSH_FROM") or "", everybody=True),
        selftest_seconds=env.get("KEDGE_SELFTEST_SECONDS", ""),
        cwd=Path.cwd(),
        environ=dict(env),
    )


def find_state_dir() -> Path | None:
    """Return the folder of kedge's state without creating it; None if this user has none.

    Raises:
        BadRequestError: it is another user's link.
    """
    state = follow_own_link(_state_dir(os.environ))
    return state if _is_own(state) else None


def _state_dir(env: Mapping[str, str]) -> Path:
    return Path(env.get("KEDGE_STATE_DIR") or user_state_path("kedge")).expanduser().absolute()


def _runtime_dir(env: Mapping[str, str]) -> Path:
    if env.get("KEDGE_RUNTIME_DIR"):
        return Path(env["KEDGE_RUNTIME_DIR"])
    place = env.get("XDG_RUNTIME_DIR")
    if place and _is_own(Path(place)):
        return Path(place) / "kedge"
    return Path(env.get("TMPDIR") or "/tmp") / f"kedge-{os.getuid()}"  # noqa: S108 - refused if it isn't ours


def _is_own(folder: Path) -> bool:
    """Tell whether the user owns a folder: `su` and `sudo` may leave another user's XDG_RUNTIME_DIR."""
    try:
        return folder.stat().st_uid == os.getuid()
    except OSError:
        return False
