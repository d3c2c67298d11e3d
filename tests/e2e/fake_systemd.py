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
# In sh, because each kedge command calls it several times.
SYSTEMCTL = """\
#!/bin/sh
shift
verb=$1
for name; do :; done
file={folder}/$name
case $verb in
restart) : >"$file.running" ;;
enable) : >"$file.enabled" ;;
disable)
    rm -f "$file.enabled"
    case " $* " in *" --now "*) rm -f "$file.running" ;; esac
    ;;
is-active) [ -e "$file.running" ] || exit 3 ;;
is-enabled) [ -e "$file.enabled" ] || exit 3 ;;
show) cat {folder}/status ;;
start) exec {python} -S {here} {folder} "$name" ;;
esac
"""
LOGINCTL = """\
#!/bin/sh
if [ -e {folder}/logs-out ]; then echo no; else echo yes; fi
"""


def install_systemd(folder: Path) -> None:
    """Put `systemctl` and `loginctl` into a folder; the user lingers, unless the folder has a file `logs-out`."""
    folder.mkdir()
    words = {"folder": str(folder), "python": sys.executable, "here": str(Path(__file__))}
    for name, script in (("systemctl", SYSTEMCTL), ("loginctl", LOGINCTL)):
        (folder / name).write_text(script.format(**{word: shlex.quote(value) for word, value in words.items()}))
        (folder / name).chmod(0o755)


def read_assignments(lines: Iterable[str]) -> dict[str, str]:
    """Read NAME=value lines."""
    return {name: value for name, found, value in (line.partition("=") for line in lines) if found}


def main(folder: Path, name: str) -> int:
    """Run a service's program with the unit's environment and none of the caller's."""
    config = os.environ["XDG_CONFIG_HOME"]
    settings = [line.partition("=")[::2] for line in (UNITS / name).read_text().splitlines()]
    given = [shlex.split(value)[0].replace("%%", "%") for name, value in settings if name == "Environment"]
    (secrets,) = [Path(value.removeprefix("-").replace("%E", config)) for name, value in settings if name == FILE]
    (command,) = [shlex.split(value) for name, value in settings if name == "ExecStart"]
    environ = {"HOME": os.environ["HOME"], "XDG_CONFIG_HOME": config, **read_assignments(given)}
    if secrets.is_file():
        environ |= read_assignments(secrets.read_text().splitlines())
    with (folder / "log").open("wb") as log:
        done = subprocess.run(command, env=environ, cwd=environ["HOME"], stdout=log, stderr=log, check=False)
    (folder / "status").write_text(str(done.returncode))
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
