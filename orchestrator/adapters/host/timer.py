"""Timers of the user's own systemd that run a kedge command again and again: `kedge recover`, `kedge reap`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.host.child_environment import AWS_PLACES
from orchestrator.adapters.host.files import read_small, write_atomically
from orchestrator.adapters.host.settings import Settings
from orchestrator.adapters.host.templates import render
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.values.credentials import is_own_credential, is_own_secret

_SUFFIXES = ("service", "timer")
_TIMEOUT_SECONDS = 30
_FIRST_ROUND_SECONDS = 300
_MOST_BYTES = 1 << 20
_STATE_DIR = "KEDGE_STATE_DIR"
RUN_BY = "KEDGE_TIMER"
"""The variable by which a command learns that a timer runs it: the timer's name."""
_KEPT = AWS_PLACES | {"XDG_STATE_HOME", "PATH", "HOME"}
_PREFIXES = ("KEDGE_", "AWS_ENDPOINT_URL_")
_GIVEN = "Environment="


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A command that systemd runs again and again.

    Attributes:
        word: its first word; its units are called `kedge-<word>`.
        command: the whole command.
        what: what it is for, in a line.
        minutes: how often it runs.
        limit: how long one round may take, as systemd writes it; then it is killed, and the next one begins later.
        without_tokens: what it can't do without tokens.
        notes: what else to know, a sentence each.
        instead: what to do if there is no systemd.
    """

    word: str
    command: str
    what: str
    minutes: int
    limit: str
    without_tokens: str
    notes: tuple[str, ...] = ()
    instead: str

    @property
    def name(self) -> str:
        """The name of its units."""
        return f"kedge-{self.word}"

    @property
    def units(self) -> tuple[str, ...]:
        """The files of its units."""
        return tuple(f"{self.name}.{suffix}" for suffix in _SUFFIXES)


RECOVER = Timer(
    word="recover",
    command="recover",
    what="give runs that have lost their machine another one",
    minutes=1,
    # It may wait for a machine to boot.
    limit="1h",
    without_tokens="recovers nothing at DigitalOcean, AMD or Lambda",
    notes=(
        "It has none of the variables that jobs take from a shell (`secrets`, and `envs` with null): "
        "runs that need them aren't recovered.",
    ),
    instead="let cron run it: `* * * * * kedge recover`, or leave `kedge launch --recover` running in tmux",
)
REAP = Timer(
    word="reap",
    command="reap --yes",
    what="end what is past its deadline",
    minutes=15,
    # A machine that is slow to end takes ten minutes.
    limit="30min",
    without_tokens="ends nothing at DigitalOcean, AMD or Lambda",
    notes=("It ends nothing while this computer is off or asleep.",),
    instead="let cron run it: `*/15 * * * * kedge reap --yes`, or set a reaper up elsewhere (docs/reaper.md); "
    "then write `reaper: elsewhere` into your settings (docs/lambda.md), where launches look for it",
)


def install_timer(settings: Settings, timer: Timer) -> str:
    """Write the units, start the timer, and describe it; without a systemd that takes them, nothing is written.

    Raises:
        KedgeError: there is no systemd that takes units of the user's.
    """
    _systemctl(timer, "show-environment")
    folder = _units(settings.environ)
    values = {"what": timer.what, "minutes": timer.minutes, "limit": timer.limit, "command": timer.command}
    for suffix, unit in zip(_SUFFIXES, timer.units, strict=True):
        text = render(
            f"systemd/user-timer.{suffix}.j2",
            python=sys.executable,
            environment=_environment(settings, timer),
            secrets=f"{timer.word}.env",
            **values,
        )
        # The folder is the user's own, who may keep it elsewhere.
        write_atomically(folder / unit, text.encode(), within=folder)
    _systemctl(timer, "daemon-reload")
    _systemctl(timer, "enable", f"{timer.name}.timer")
    # A timer that was running starts again with the new units.
    _systemctl(timer, "restart", f"{timer.name}.timer")
    said = [f"Installed: {folder / timer.name}.timer. See it with `systemctl --user list-timers`."]
    if any(name.startswith("AWS_") and "ACCESS_KEY" in name for name in settings.environ):
        said.append("It doesn't get the AWS keys of this shell: give it a profile (AWS_PROFILE), and install it again.")
    if any(is_own_credential(name) and not name.startswith("AWS_") for name in settings.environ):
        said.append(
            f"It doesn't get the tokens and keys of this shell, and {timer.without_tokens} without them: "
            f"write NAME=value lines into {secrets_file(settings.environ, timer)} (mode 0600)."
        )
    said += timer.notes
    if not lingers(timer):
        said.append("It ends when you log out, unless you run `loginctl enable-linger` once.")
    return "\n".join(said)


def run_once(timer: Timer) -> str:
    """Run a round now, and return what is wrong with it; empty if it succeeds."""
    log = f"`journalctl --user -u {timer.name}`"
    try:
        done = _run(timer, "systemctl", "--user", "start", f"{timer.name}.service", seconds=_FIRST_ROUND_SECONDS)
    except KedgeError:
        return f"Its first round isn't over yet: {log} shows it."
    if done.returncode == 0:
        return ""
    if _exit_code(timer) == StillBillingError.exit_code:
        return f"! Its first round ended what it could, but something may still be billing: {log} names it."
    return f"! Its first round failed: {log} says why."


def remove_timer(settings: Settings, timer: Timer) -> str:
    """Stop the timer, and remove everything that its installation has written.

    Raises:
        KedgeError: the files are gone, but there is no systemd that could be told to stop it.
    """
    files = [*(_units(settings.environ) / unit for unit in timer.units), _link(settings, timer)]
    if not any(file.is_symlink() or file.exists() for file in files):
        return "There is no such timer."
    try:
        _systemctl(timer, "disable", "--now", f"{timer.name}.timer")
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    _systemctl(timer, "daemon-reload")
    return "The timer is gone."


def why_not_running(environ: Mapping[str, str], timer: Timer) -> str:
    """Say why systemd doesn't run a timer now, or won't after a reboot of this computer; empty if it does.

    Raises:
        KedgeError: there is no systemd that could be asked.
    """
    if not (_units(environ) / f"{timer.name}.timer").exists():
        return f"no {timer.name} timer is installed on this computer"
    if _run(timer, "systemctl", "--user", "is-active", "--quiet", f"{timer.name}.timer").returncode != 0:
        return f"the {timer.name} timer of this computer isn't running"
    if _run(timer, "systemctl", "--user", "is-enabled", "--quiet", f"{timer.name}.timer").returncode != 0:
        return f"the {timer.name} timer of this computer isn't enabled: it ends when this computer is off"
    return ""


def state_dir_of(environ: Mapping[str, str], timer: Timer) -> Path | None:
    """Return the state folder that a timer's command works with; None if no unit names one.

    Raises:
        BadRequestError: the unit can't be read.
    """
    try:
        unit = os.fsdecode(read_small(_units(environ) / f"{timer.name}.service", limit=_MOST_BYTES))
    except FileNotFoundError:
        return None
    # Written by `quote_systemd`, whose escapes are those of a shell's double quotes, and %%.
    given = (shlex.split(line.removeprefix(_GIVEN)) for line in unit.splitlines() if line.startswith(_GIVEN))
    found = [word.replace("%%", "%").partition("=")[2] for (word,) in given if word.startswith(f"{_STATE_DIR}=")]
    return Path(found[-1]) if found else None


def lingers(timer: Timer) -> bool:
    """Tell whether the user's systemd, and its timers with it, keeps running without a login."""
    done = _run(timer, "loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
    return done.stdout.strip() == "yes"


def secrets_file(environ: Mapping[str, str], timer: Timer) -> Path:
    """Return the file, written by the user, that a timer reads secrets from."""
    return _config(environ) / "kedge" / f"{timer.word}.env"


def _link(settings: Settings, timer: Timer) -> Path:
    """Return the link by which systemd starts a timer at login."""
    return _units(settings.environ) / "timers.target.wants" / f"{timer.name}.timer"


def _units(environ: Mapping[str, str]) -> Path:
    return _config(environ) / "systemd" / "user"


def _config(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _environment(settings: Settings, timer: Timer) -> dict[str, str]:
    """Return what the timer's command needs of this shell; keys belong in a profile, tokens in a file of secrets."""
    kept = {
        name: value
        for name, value in settings.environ.items()
        if name in _KEPT or (name.startswith(_PREFIXES) and not is_own_secret(name))
    }
    # Absolute: the shell's may be relative to a folder that systemd doesn't start the command in.
    return kept | {_STATE_DIR: str(settings.state_dir), RUN_BY: timer.name}


def _exit_code(timer: Timer) -> int | None:
    """Return what the last round's command exited with; None if systemd doesn't say."""
    shown = _run(timer, "systemctl", "--user", "show", "--property=ExecMainStatus", "--value", f"{timer.name}.service")
    said = shown.stdout.strip()
    return int(said) if said.isdecimal() else None


def _systemctl(timer: Timer, *words: str) -> None:
    done = _run(timer, "systemctl", "--user", *words)
    if done.returncode != 0:
        raise _no_timers(timer, done.stderr.strip())


def _run(timer: Timer, *argv: str, seconds: float = _TIMEOUT_SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise _no_timers(timer, str(err)) from err


def _no_timers(timer: Timer, why: str) -> KedgeError:
    return KedgeError(
        "this computer's systemd doesn't accept a timer of yours", why=" ".join(why.split()), fix=timer.instead
    )
