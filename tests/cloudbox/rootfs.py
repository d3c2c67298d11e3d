"""The root folders that machines are laid over: this computer, or a Debian that has nothing of ours.

Run as a module, it builds the bare Debian where there is none yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOST = Path("/")
CACHE = Path("/var/cache/kedge-cloudbox")
SUITE = "bookworm"
# What an instance of a Debian image has, and no more: no zstd, rsync, tmux or curl.
PACKAGES = (
    "ca-certificates",
    "cloud-init",
    "dbus",
    "libpam-systemd",
    "openssh-server",
    # debootstrap doesn't follow virtual packages: this is what cloud-init's cryptography asks for.
    "python3-cffi-backend",
    "sudo",
    "systemd",
    "systemd-sysv",
)
_MIRROR = "http://deb.debian.org/debian"


def bare_folder() -> Path:
    """Return where the bare Debian lies once it is built: another list of packages is another folder."""
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    return CACHE / f"{SUITE}-{digest}"


def builder_argv() -> list[str]:
    """Return the command that builds the bare Debian; all that it starts dies with it."""
    return ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "tests.cloudbox.rootfs"]


def build_bare() -> Path:
    """Build the bare Debian where it is missing: aside, then renamed; a second builder waits for the first.

    Raises:
        subprocess.CalledProcessError: debootstrap failed; its output was printed.
    """
    folder, aside = bare_folder(), CACHE / "building"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
        if not folder.exists():
            # What a builder that was killed has left.
            shutil.rmtree(aside, ignore_errors=True)
            _debootstrap(aside)
            aside.rename(folder)
    return folder


def find_mirror(sources: Path = Path("/etc/apt")) -> str:
    """Return the Debian archive that this computer itself installs from, else Debian's own."""
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


def _debootstrap(target: Path) -> None:
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(target), find_mirror()]
    subprocess.run(argv, check=True, stdout=sys.stderr)
    shutil.rmtree(target / "var/cache/apt/archives")


if __name__ == "__main__":
    build_bare()
