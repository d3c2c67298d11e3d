"""A timer of the user's own systemd that gives `kedge recover` every minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.adapters.children import AWS_PLACES
from orchestrator.adapters.files import write_atomically
from orchestrator.adapters.settings import Settings
from orchestrator.adapters.templates import render
from orchestrator.core.errors import KedgeError

NAME = "kedge-recover"
_SUFFIXES = ("service", "timer")
_TIMEOUT_SECONDS = 30
_KEPT = AWS_PLACES | {"XDG_STATE_HOME", "PATH", "HOME"}
_PREFIXES = ("KEDGE_", "AWS_ENDPOINT_URL_")


def install_timer(settings: Settings) -> str:
    """Write the units, start the timer, and say so; nothing is written where there is no systemd to take them.

    Raises:
        KedgeError: there is no systemd that takes units of the user's.
    """
    _systemctl("show-environment")
    folder = _units(settings)
    for suffix in _SUFFIXES:
        text = render(f"systemd/{NAME}.{suffix}.j2", python=sys.executable, environment=_environment(settings))
        # The folder is the user's own, who may keep it elsewhere.
        write_atomically(folder / f"{NAME}.{suffix}", text.encode(), within=folder)
    _systemctl("daemon-reload")
    _systemctl("enable", f"{NAME}.timer")
    # One that ran already has read its units anew, and is begun again with them.
    _systemctl("restart", f"{NAME}.timer")
    said = [f"Installed: {folder / NAME}.timer. See it with `systemctl --user list-timers`."]
    if any(name.startswith("AWS_") and "ACCESS_KEY" in name for name in settings.environ):
        said.append("It doesn't get the AWS keys of this shell: give it a profile (AWS_PROFILE), and install it again.")
    if any(name.endswith("_TOKEN") or name.startswith("SPACES_") for name in settings.environ):
        said.append(
            "It doesn't get the tokens and Spaces' keys of this shell, and recovers no droplet without them: "
            f"write NAME=value lines into {_secrets(settings)} (mode 0600)."
        )
    said.append(
        "It has none of the variables that jobs take from a shell (`secrets`, and `envs` with null): "
        "runs that need them aren't recovered."
    )
    if not _lingers():
        said.append("It ends when you log out, unless `loginctl enable-linger` was given once.")
    return "\n".join(said)


def remove_timer(settings: Settings) -> str:
    """Stop the timer, remove all that its installation has written, and say so.

    Raises:
        KedgeError: the files are gone, but there is no systemd that could be told to stop it.
    """
    files = _files(settings)
    if not any(file.is_symlink() or file.exists() for file in files):
        return "There is no such timer."
    try:
        _systemctl("disable", "--now", f"{NAME}.timer")
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    _systemctl("daemon-reload")
    return "The timer is gone."


def _files(settings: Settings) -> list[Path]:
    """Return what an installation writes, with the link by which systemd starts the timer at login."""
    folder = _units(settings)
    return [*(folder / f"{NAME}.{suffix}" for suffix in _SUFFIXES), folder / "timers.target.wants" / f"{NAME}.timer"]


def _units(settings: Settings) -> Path:
    return _config(settings) / "systemd" / "user"


def _config(settings: Settings) -> Path:
    return Path(settings.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _secrets(settings: Settings) -> Path:
    """Return the file that the unit takes secrets from, where the user has written it."""
    return _config(settings) / "kedge/recover.env"


def _environment(settings: Settings) -> dict[str, str]:
    """What the timer's command needs of this shell's; keys belong into a profile, and tokens into a file of secrets."""
    return {
        name: value
        for name, value in settings.environ.items()
        if name in _KEPT or (name.startswith(_PREFIXES) and not name.endswith("_TOKEN"))
    }


def _systemctl(*words: str) -> None:
    done = _run("systemctl", "--user", *words)
    if done.returncode != 0:
        raise _no_timers(done.stderr.strip())


def _lingers() -> bool:
    """Tell whether the user's systemd goes on without a login."""
    done = _run("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
    return done.stdout.strip() == "yes"


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise _no_timers(str(err)) from err


def _no_timers(why: str) -> KedgeError:
    return KedgeError(
        "this computer's systemd doesn't take a timer of yours",
        why=" ".join(why.split()),
        fix="let cron give it: `* * * * * kedge recover`, or leave `kedge launch --recover` running in tmux",
    )
