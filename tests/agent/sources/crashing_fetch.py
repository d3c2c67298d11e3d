"""Replace a volume's data again and again, each time in a process that is killed one step later.

    python -m tests.agent.sources.crashing_fetch FOLDER OLD NEW

FOLDER is on the volume's disk; OLD and NEW are addresses of archives. Python reports each step that changes a disk to
an audit hook, so that the code runs as it is.

First the volume has the old data, and the machine that is killed wants the new. Then it has the old data and a complete
download of the new, and the machine wants the old. After each kill two other machines get the volume as it was left:
one wants the old data, one the new. Prints one JSON object for each kill: the content that each machine has found, and
what was left beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from tests.agent.sources.machine import Machine, files_below

_STEPS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.utime", "os.chmod"}


def die_at(step: int) -> None:
    """Arrange for SIGKILL just before the given step, counted from 0."""
    done = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal done
        if event in _STEPS or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1

    sys.addaudithook(hook)


def fetch(volume: Path, address: str) -> Path:
    """Fetch an address on a new machine that has the volume."""
    with tempfile.TemporaryDirectory() as root:
        machine = Machine(Path(root))
        machine.attach(volume)
        machine.fetch(address, "set")
    return volume / "set"


def fetch_and_die(volume: Path, address: str, step: int) -> bool:
    """Fetch in a child process; return whether the child was killed."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        die_at(step)
        fetch(volume, address)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def see_after(volume: Path, address: str) -> dict[str, Any]:
    """Fetch on another machine; return what lies there then."""
    copy = Path(shutil.copytree(volume, volume.with_name("copy"), symlinks=True))
    content = files_below(fetch(copy, address))
    left = sorted(path.name for path in (copy / ".fetching").iterdir())
    shutil.rmtree(copy)
    return {"content": {path: raw.decode() for path, raw in content.items()}, "left": left}


def kill_at_each_step(template: Path, wanted: str, addresses: tuple[str, str], printing: IO[str]) -> None:
    """Kill a machine that wants an address at each of its steps, and print what the next machines see."""
    killed, step = True, 0
    while killed:
        volume = Path(shutil.copytree(template, template.with_name("volume"), symlinks=True))
        killed = fetch_and_die(volume, wanted, step)
        if not template.with_name("downloaded").exists() and list(volume.glob(".fetching/*/*/fetched.json")):
            # Twice, because on a tmpfs each copy reverses the order in which a folder's entries are removed.
            once = shutil.copytree(volume, template.with_name("once"))
            shutil.copytree(once, template.with_name("downloaded"))
        old, new = (see_after(volume, address) for address in addresses)
        printing.write(json.dumps({"step": step, "killed": killed, "old": old, "new": new}) + "\n")
        shutil.rmtree(volume)
        step += 1


def main() -> None:
    folder, old, new = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    printing = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    (folder / "template").mkdir()
    fetch(folder / "template", old)
    kill_at_each_step(folder / "template", new, (old, new), printing)
    kill_at_each_step(folder / "downloaded", old, (old, new), printing)
    printing.close()


if __name__ == "__main__":
    main()
