"""A stand-in for the user's systemd: agrees to everything, and starts services like systemd."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

UNITS = Path(os.environ.get("XDG_CONFIG_HOME", "/nowhere")) / "systemd" / "user"
FILE = "EnvironmentFile"


def install_systemd(folder: Path) -> None:
    """Put `systemctl` and `loginctl` into a folder; the user lingers, unless the folder has a file `logs-out`."""
    folder.mkdir()
    here = Path(__file__)
    for name in ("systemctl", "loginctl"):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {here} {folder} {name} "$@"\n')
        (folder / name).chmod(0o755)


def read_assignments(lines: Iterable[str]) -> dict[str, str]:
    """Read NAME=value lines."""
    return {name: value for name, found, value in (line.partition("=") for line in lines) if found}


def start(unit: Path, log_file: Path) -> int:
    """Run a service's program with the unit's environment and none of the caller's."""
    config = os.environ["XDG_CONFIG_HOME"]
    settings = [line.partition("=")[::2] for line in unit.read_text().splitlines()]
    given = [shlex.split(value)[0].replace("%%", "%") for name, value in settings if name == "Environment"]
    (secrets,) = [Path(value.removeprefix("-").replace("%E", config)) for name, value in settings if name == FILE]
    (command,) = [shlex.split(value) for name, value in settings if name == "ExecStart"]
    environ = {"HOME": os.environ["HOME"], "XDG_CONFIG_HOME": config, **read_assignments(given)}
    if secrets.is_file():
        environ |= read_assignments(secrets.read_text().splitlines())
    with log_file.open("wb") as log:
        done = subprocess.run(command, env=environ, cwd=environ["HOME"], stdout=log, stderr=log, check=False)
    log_file.with_name("status").write_text(str(done.returncode))
    return int(done.returncode != 0)


def main(folder: Path, program: str, *words: str) -> int:
    """Do what a command asks for."""
    if program == "loginctl":
        print("no" if (folder / "logs-out").exists() else "yes")
        return 0
    _user, verb, *names = words
    running = folder / f"{names[-1]}.running" if names else folder
    enabled = running.with_suffix(".enabled")
    if verb in ("restart", "enable"):
        (running if verb == "restart" else enabled).touch()
    elif verb == "disable":
        for file in (enabled, running)[: 1 + ("--now" in names)]:
            file.unlink(missing_ok=True)
    elif verb in ("is-active", "is-enabled"):
        return 0 if (running if verb == "is-active" else enabled).exists() else 3
    elif verb == "show":
        print((folder / "status").read_text())
    elif verb == "start":
        return start(UNITS / names[-1], folder / "log")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
