"""The keeper of a desk: a process that ends and deletes the computer when the process that started it is gone.

    unshare --mount --propagation private python -m tests.newcomer.keeper FOLDER [ARGUMENT OF SYSTEMD-NSPAWN ...]

When its stdin closes, the computer is switched off. The computer's writes are in memory, over the Debian that
`tests.cloudbox.nspawn.rootfs` has built, and survive its reboots.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cloudbox.nspawn import rootfs
from tests.cloudbox.nspawn.cgroups import make_groups, remove_groups
from tests.cloudbox.nspawn.order import group_name
from tests.cloudbox.nspawn.plug import Plug

_REBOOT = 133
"""The exit code of systemd-nspawn if the computer wants to reboot."""


def keep(folder: Path, arguments: Sequence[str]) -> None:
    """Run the computer until it powers off or stdin closes."""
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    group, plug = group_name(folder), Plug(sys.stdin.fileno())
    _mount("tmpfs", folder, "mode=0711,size=4g")
    for inner in (upper, work, root):
        inner.mkdir()
    _mount("overlay", root, f"lowerdir={rootfs.DESK.folder},upperdir={upper},workdir={work}")
    # What systemd-nspawn leaves on this computer disappears with this namespace.
    nspawn_state = Path("/run/systemd/nspawn")
    nspawn_state.mkdir(parents=True, exist_ok=True)
    _mount("tmpfs", nspawn_state, "mode=0755")
    argv = [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("systemd-nspawn", f"--directory={root}", "--machine=desk", "--boot", "--register=no", "--keep-unit"),
        *("--console=pipe", "--link-journal=no", "--timezone=off", *arguments),
    ]
    try:
        groups = make_groups(group)
        while plug.run(argv, groups=groups) == _REBOOT:
            pass
    finally:
        subprocess.run(["umount", "--lazy", root, folder], check=True)
        remove_groups(group)


def _mount(kind: str, target: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(target)], check=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2:])
