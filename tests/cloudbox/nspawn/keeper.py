"""The keeper of one machine: a process that outlives its parent, so that nothing is left behind.

    python -m tests.cloudbox.nspawn.keeper FOLDER

The first line on its stdin is its `Order`. Each further line, `[image, name in /dev/disk/by-id]`, attaches a disk and
is answered with a line. The end of stdin ends the machine, so the death of the parent does too. The exit status is
POWERED_OFF if the machine has powered itself off, else ENDED.

It runs in its own mount namespace (`keeper_argv`): the machine's root folder is an overlay over a tmpfs that only this
process and the machine see, and that disappears with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.cloudbox.nspawn import probed_torch, rootfs
from tests.cloudbox.nspawn.cgroups import make_groups, remove_groups
from tests.cloudbox.nspawn.disks import Disk
from tests.cloudbox.nspawn.order import ENDED, POWERED_OFF, REPOSITORY, Order, group_name, remove_folder
from tests.cloudbox.nspawn.plug import Plug
from tests.cloudbox.nspawn.seed import write_seed
from tests.support.preloaded.process import EVERYTHING_ANEW

# systemd-nspawn's exit status if the machine asks for a reboot.
_REBOOT = 133
_NSPAWN_STATE = Path("/run/systemd/nspawn")
_BOOT_TIMEOUT_S = 20.0
# Where AWS's deep learning images have their Python with torch.
_IMAGE_PYTHON = "/opt/pytorch"


class Keeper:
    """Runs one machine and removes everything of it afterwards."""

    def __init__(self, folder: Path, order: Order, plug: Plug) -> None:
        self._folder = folder
        self._order = order
        self._plug = plug
        self._root = folder / "root"
        self._disks: list[Disk] = []

    def keep(self) -> int:
        """Run the machine until it ends by itself or stdin ends; return this process's exit status."""
        group = group_name(self._folder)
        try:
            status = self._run(group) if self._has_base() else ENDED
        finally:
            # The file systems first: a disk's content is written when nobody has it mounted any longer.
            for mounted in (self._root, self._folder):
                _unmount(mounted)
            for disk in self._disks:
                disk.close()
            remove_groups(group)
        return POWERED_OFF if status == 0 else ENDED

    def _has_base(self) -> bool:
        # In a separate process, so that the end of stdin doesn't wait for the installation of a Debian.
        return self._order.base == "host" or self._plug.run(rootfs.builder_argv(rootfs.BARE)) == 0

    def _run(self, group: str) -> int:
        self._mount()
        groups = make_groups(group)
        self._disks = [Disk(Path(image), by_id) for image, by_id in self._order.disks]
        status = _REBOOT
        while status == _REBOOT:
            argv = self._nspawn_argv()
            status = self._plug.run(argv, groups=groups, on_start=self._show_disks, on_line=self._attach)
        return status

    def _mount(self) -> None:
        lower = rootfs.HOST if self._order.base == "host" else rootfs.BARE.folder
        _mount("tmpfs", self._folder, "mode=0711")
        # What systemd-nspawn would leave on the host disappears with this namespace.
        _NSPAWN_STATE.mkdir(parents=True, exist_ok=True)
        _mount("tmpfs", _NSPAWN_STATE, "mode=0755")
        upper, work = self._folder / "upper", self._folder / "work"
        for folder in (upper, work, self._root):
            folder.mkdir()
        write_seed(upper, lower, self._order.seed, hidden=(REPOSITORY,))
        if self._order.network:
            # No name server there: with this computer's, each look-up would take seconds.
            (upper / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
        _mount("overlay", self._root, f"lowerdir={lower},upperdir={upper},workdir={work}")

    def _nspawn_argv(self) -> list[str]:
        # In a process namespace, one SIGKILL ends systemd-nspawn and all that it has started.
        return [
            *(("nsenter", f"--net={self._order.network}") if self._order.network else ()),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("systemd-nspawn", f"--directory={self._root}", f"--machine={self._order.seed.name}", "--boot"),
            *("--register=no", "--keep-unit", "--console=pipe", "--link-journal=no", "--timezone=off"),
            *(("--resolv-conf=off",) if self._order.network else ()),
            *(_image_python() if self._order.base == "host" else ()),
            *("--", "systemd.unit=multi-user.target"),
        ]

    def _show_disks(self, pid: int) -> None:
        for disk in self._disks:
            disk.show(_root_of(pid))

    def _attach(self, pid: int, line: str) -> None:
        image, by_id = json.loads(line)
        try:
            disk = Disk(Path(image), by_id)
            self._disks.append(disk)
            disk.show(_root_of(pid))
        except OSError as err:
            print(f"cannot attach {image}: {err}", flush=True)
        else:
            print("attached", flush=True)


def _image_python() -> list[str]:
    """Return the arguments that bind-mount the tests' own Python, read-only, where a training image has its Python."""
    binds = [f"--bind-ro={sys.prefix}:{_IMAGE_PYTHON}"]
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        binds.append(f"--bind-ro={sys.base_prefix}")
    torch = find_spec("torch")
    if torch and torch.origin and EVERYTHING_ANEW not in os.environ:
        inside = Path(_IMAGE_PYTHON) / Path(torch.origin).relative_to(sys.prefix)
        binds += [f"--bind-ro={torch.origin}:{probed_torch.REAL}", f"--bind-ro={probed_torch.__file__}:{inside}"]
    return binds


def _root_of(pid: int) -> Path:
    """Return the root folder of the machine that runs below a process, as seen from this process.

    Raises:
        TimeoutError: No systemd below it within 20 s, or it has ended.
    """
    deadline = time.monotonic() + _BOOT_TIMEOUT_S
    process = psutil.Process(pid)
    while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                # A process with this name runs the machine's own init, so all folders are in place.
                if child.name() == "systemd":
                    return Path(f"/proc/{child.pid}/root")
        time.sleep(0.02)
    raise TimeoutError("the machine's systemd didn't start")


def _mount(kind: str, target: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(target)], check=True)


def _unmount(target: Path) -> None:
    if target.is_mount():
        subprocess.run(["umount", str(target)], check=True)


def main(folder: Path) -> int:
    """Run the machine that the first line of stdin orders."""
    # The parent handles Ctrl-C in the tests' terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plug = Plug(sys.stdin.fileno())
    line = plug.next_line()
    try:
        return Keeper(folder, Order.decode(line), plug).keep() if line else ENDED
    finally:
        remove_folder(folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
