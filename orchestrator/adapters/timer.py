"""A timer of the user's own systemd that gives `kedge recover` every minute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.adapters.files import write_atomically
from orchestrator.adapters.settings import Settings
from orchestrator.adapters.templates import render
from orchestrator.core.errors import KedgeError

NAME = "kedge-recover"
_TIMEOUT_SECONDS = 30
_KEPT = ("AWS_", "KEDGE_", "XDG_STATE_HOME", "PATH", "HOME")


def install_timer(settings: Settings) -> str:
    """Write the units, start the timer, and say so.

    Raises:
        KedgeError: there is no systemd that takes units of the user's.
    """
    folder = _units(settings)
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("service", "timer"):
        text = render(f"systemd/{NAME}.{suffix}.j2", python=sys.executable, environment=_environment(settings))
        write_atomically(folder / f"{NAME}.{suffix}", text.encode())
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", f"{NAME}.timer")
    said = [f"Installed: {folder / NAME}.timer. See it with `systemctl --user list-timers`."]
    if any("ACCESS_KEY" in name for name in settings.environ):
        said.append("It doesn't get the AWS keys of this shell: give it a profile (AWS_PROFILE), and install it again.")
    said.append("It has none of the variables that jobs name under `secrets`: runs that need them aren't recovered.")
    said.append("It ends when you log out, unless `loginctl enable-linger` was given once.")
    return "\n".join(said)


def remove_timer(settings: Settings) -> str:
    """Stop the timer, remove the units, and say so."""
    folder = _units(settings)
    if not (folder / f"{NAME}.timer").exists():
        return "There is no such timer."
    _systemctl("disable", "--now", f"{NAME}.timer")
    for suffix in ("service", "timer"):
        (folder / f"{NAME}.{suffix}").unlink(missing_ok=True)
    _systemctl("daemon-reload")
    return "The timer is gone."


def _units(settings: Settings) -> Path:
    home = settings.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "systemd" / "user"


def _environment(settings: Settings) -> dict[str, str]:
    """What the timer's command needs of this shell's; AWS's keys belong into a profile, not into a unit."""
    return {
        name: value
        for name, value in settings.environ.items()
        if name.startswith(_KEPT) and "SECRET" not in name and "TOKEN" not in name and "ACCESS_KEY" not in name
    }


def _systemctl(*words: str) -> None:
    argv = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise _no_timers(str(err)) from err
    if done.returncode != 0:
        raise _no_timers(done.stderr.strip())


def _no_timers(why: str) -> KedgeError:
    return KedgeError(
        "this computer's systemd doesn't take a timer of yours",
        why=why,
        fix="let cron give it: `* * * * * kedge recover`, or leave `kedge launch --recover` running in tmux",
    )
