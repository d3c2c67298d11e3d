"""The environment, read once: where kedge keeps its state and what the user's shell says.

This is the only module that reads environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_config_path, user_state_path

from orchestrator.adapters.private import follow_own_link, make_private_folder
from orchestrator.core.network import parse_address_range
from orchestrator.core.printable import require_printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the laptop's environment says.

    Attributes:
        state_dir: the ledger, keys, local machines and caches; nobody else may enter it.
        runtime_dir: a short private path for sockets, whose paths may not exceed 107 bytes.
        provider: for jobs that name none.
        config_file: the user's settings for all jobs; it need not be there.
        ssh_config: the user's own OpenSSH configuration.
        ssh_from: the address range that may reach machines, as CIDR; empty to find this computer's own address.
        selftest_seconds: how long the self-test's training takes, as text; empty for two minutes.
        environ: where secrets and inherited variables are taken from.
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
        BadRequestError: a folder that is somebody else's or a link, no range of addresses, or what can't be shown.
    """
    env = os.environ if environ is None else environ
    for name, value in env.items():
        # A token isn't shown, not even in the error.
        if name.startswith("KEDGE_") and not name.endswith("_TOKEN"):
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
    """Return where kedge's state is, for who only looks; None where there is none of this user's.

    Raises:
        BadRequestError: it is a link of somebody else's.
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
    """Tell whether a folder is the user's, as XDG_RUNTIME_DIR must be; `su` and `sudo` leave that of another user."""
    try:
        return folder.stat().st_uid == os.getuid()
    except OSError:
        return False
