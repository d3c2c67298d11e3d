"""The root folders below the machines' overlays: this computer's own, or a minimal Debian.

python -m tests.cloudbox.nspawn.rootfs NAME     builds the Debian of this name if it is missing
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOST = Path("/")
CACHE = Path("/var/cache/kedge-cloudbox")
SUITE = "bookworm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Debian:
    """A Debian that is unpacked once; another list of packages gets another folder."""

    name: str
    packages: tuple[str, ...]
    archives: tuple[str, ...] = ()
    """Packages that aren't installed but are in apt's cache, so that they can be installed without a network."""
    user: str = ""
    """An ordinary user with sudo."""

    @property
    def folder(self) -> Path:
        words = [*self.packages, *self.archives, *([self.user] if self.user else [])]
        return CACHE / f"{SUITE}-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:12]}"


BARE = Debian(
    name="bare",
    # Only what an instance of a Debian image has: no zstd, rsync, tmux or curl.
    packages=(
        "ca-certificates",
        "cloud-init",
        "dbus",
        "libpam-systemd",
        "openssh-server",
        # debootstrap doesn't resolve virtual packages: cloud-init's cryptography requires this one.
        "python3-cffi-backend",
        "sudo",
        "systemd",
        "systemd-sysv",
    ),
)
DESK = Debian(
    name="desk",
    # What the README requires of a computer: git, make and Python, without its venv package.
    packages=(
        *("ca-certificates", "dbus", "git", "iproute2", "libpam-systemd", "make", "python3", "sudo"),
        *("systemd", "systemd-sysv"),
    ),
    archives=("openssh-client", "openssh-server", "python3-venv", "rsync", "screen", "tmux", "zstd"),
    user="ada",
)
_MIRROR = "http://deb.debian.org/debian"


def builder_argv(debian: Debian) -> list[str]:
    """Return the command that builds a Debian; its child processes die with it."""
    return [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        sys.executable,
        "-m",
        "tests.cloudbox.nspawn.rootfs",
        debian.name,
    ]


def build(debian: Debian) -> None:
    """Build a Debian if it is missing: in another folder, then renamed. A second builder waits for the first.

    Raises:
        subprocess.CalledProcessError: debootstrap failed; its output was printed.
    """
    aside = CACHE / "building"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
        if not debian.folder.exists():
            # A killed builder may have left this.
            shutil.rmtree(aside, ignore_errors=True)
            _debootstrap(debian, aside)
            aside.rename(debian.folder)


def find_mirror(sources: Path = Path("/etc/apt")) -> str:
    """Return the Debian archive that this computer installs from, or else Debian's own."""
    for path in sorted([*sources.glob("sources.list.d/*"), *sources.glob("sources.list")]):
        for url in re.findall(r"^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+)", path.read_text(), re.MULTILINE):
            if str(url).rstrip("/").endswith("/debian"):
                return str(url)
    return _MIRROR


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _debootstrap(debian: Debian, target: Path) -> None:
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(debian.packages)}", SUITE, str(target)]
    subprocess.run([*argv, find_mirror()], check=True, stdout=sys.stderr)
    shutil.rmtree(target / "var/cache/apt/archives")
    if debian.archives:
        apt = ["apt-get", "-qq", "--no-install-recommends"]
        _inside(target, *apt, "update")
        _inside(target, *apt, "--download-only", "install", *debian.archives)
    if debian.user:
        _inside(target, "useradd", "--create-home", "--shell", "/bin/bash", debian.user)
        (target / "etc/sudoers.d" / debian.user).write_text(f"{debian.user} ALL=(ALL) NOPASSWD: ALL\n")


def _inside(target: Path, *argv: str) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(["chroot", str(target), *argv], check=True, stdout=sys.stderr, env=environ)


if __name__ == "__main__":
    build(next(debian for debian in (BARE, DESK) if debian.name == sys.argv[1]))
