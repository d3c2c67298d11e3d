"""Checks that this computer has what kedge needs."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.remote.sshconfig import is_included
from orchestrator.adapters.settings import Settings

_PROGRAMS = (
    ("ssh", "openssh-client", "reach machines"),
    ("ssh-keygen", "openssh-client", "make keys"),
    ("rsync", "rsync", "move data and results"),
    ("git", "git", "list the code to send"),
    ("sshd", "openssh-server", "run machines on this computer (the local provider)"),
    ("tmux", "tmux", "supervise commands on this computer"),
    ("screen", "screen", "supervise commands on this computer, another way"),
    ("zstd", "zstd", "unpack code quicker on this computer"),
)
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where sshd is: often not on an ordinary user's PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    fix: str


def checkup(settings: Settings) -> tuple[Check, ...]:
    """Look at Python, the programs that kedge calls, its folders and the SSH configuration."""
    return (
        _python(),
        *(_program(name, package, purpose, settings) for name, package, purpose in _PROGRAMS),
        _folder("state folder", settings.state_dir),
        _folder("runtime folder", settings.runtime_dir),
        _include(settings),
    )


def _python() -> Check:
    version = platform.python_version()
    return Check(name="Python", ok=sys.version_info >= (3, 11), found=version, fix="install Python 3.11 or newer")


def _program(name: str, package: str, purpose: str, settings: Settings) -> Check:
    path = shutil.which(name, path=f"{settings.environ.get('PATH', '')}:{_SBIN}")
    return Check(
        name=name,
        ok=path is not None,
        found=path or f"missing; it is needed to {purpose}",
        fix=f"brew install {package}" if sys.platform == "darwin" else f"sudo apt-get install {package}",
    )


def _folder(name: str, path: Path) -> Check:
    closed = path.stat().st_mode & 0o077 == 0
    return Check(
        name=name, ok=closed, found=str(path) + ("" if closed else ", open to others"), fix=f"chmod 700 '{path}'"
    )


def _include(settings: Settings) -> Check:
    """Plain `ssh RUN` is a convenience: without it nothing is broken."""
    included = is_included(settings.ssh_config, settings.state_dir / "ssh_config")
    found = (
        "plain `ssh RUN` works" if included else "plain `ssh RUN` doesn't work; `kedge ssh-config --install` does it"
    )
    return Check(name="ssh configuration", ok=True, found=found, fix="")
