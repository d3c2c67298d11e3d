"""Disks of a machine: an image file as a loop device, found by its name in /dev/disk/by-id.

Every loop device is made with the kernel's autoclear flag, in the same call that binds it to its file: the kernel
releases the file when the last holder of the device is gone, even after a crash.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from pathlib import Path

# linux/loop.h
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_MAJOR = 7
# struct loop_config: fd, block size; loop_info64 (5 x u64; number, encryption, key size, flags; names and key; init);
# reserved.
_CONFIG = struct.Struct("=II 5Q 4I 64s 64s 32s 2Q 8Q")

_ATTEMPTS = 20


class Disk:
    """A loop device, open until `close`; `by_id` is its name in /dev/disk/by-id, or a path such as /dev/nvme0n1."""

    def __init__(self, image: Path, by_id: str) -> None:
        self.by_id = by_id
        self.number, self._fd = _open_loop(image)

    def show(self, root: Path) -> None:
        """Create the device node in a running machine: `root` is its root folder, as /proc/PID/root gives it."""
        node = root / f"dev/loop{self.number}"
        if not node.exists():
            os.mknod(node, stat.S_IFBLK | 0o660, os.makedev(_LOOP_MAJOR, self.number))
        link = root / (Path("/dev/disk/by-id") / self.by_id).relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(f"/dev/loop{self.number}")

    def close(self, *, timeout: float = 5.0) -> None:
        """Release the device, and wait up to `timeout` seconds until the kernel has released the file."""
        os.close(self._fd)
        backing = Path(f"/sys/block/loop{self.number}/loop/backing_file")
        deadline = time.monotonic() + timeout
        while backing.exists() and time.monotonic() < deadline:
            time.sleep(0.02)


def _open_loop(image: Path) -> tuple[int, int]:
    file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            number = _free_number()
            device = os.open(_node(number), os.O_RDWR | os.O_CLOEXEC)
            if _configure(device, file):
                return number, device
            os.close(device)
    finally:
        os.close(file)
    raise OSError(errno.EBUSY, "other processes took every free loop device first", str(image))


def _free_number() -> int:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)


def _node(number: int) -> Path:
    node = Path(f"/dev/loop{number}")
    if not node.exists():
        # A host without udev has only the device nodes that it started with.
        os.mknod(node, stat.S_IFBLK | 0o660, os.makedev(_LOOP_MAJOR, number))
    return node


def _configure(device: int, file: int) -> bool:
    fields = [file, 0, *[0] * 5, 0, 0, 0, _LO_FLAGS_AUTOCLEAR, b"", b"", b"", *[0] * 10]
    try:
        fcntl.ioctl(device, _LOOP_CONFIGURE, _CONFIG.pack(*fields))
    except OSError as err:
        if err.errno == errno.EBUSY:
            return False
        raise
    return True
