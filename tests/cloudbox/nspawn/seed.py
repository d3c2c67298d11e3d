"""The files that turn a copy of a Debian into an instance: user-data, address and environment.

They are written into the upper folder of an overlay that is not mounted yet: there, hiding a folder of the lower layer
takes one attribute instead of a walk through it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

# How the kernel marks hidden files in an upper folder: https://docs.kernel.org/filesystems/overlayfs.html, "whiteouts
# and opaque directories".
_OPAQUE = "trusted.overlay.opaque"
_WHITEOUT = os.makedev(0, 0)

_CLOUD_INIT = """\
datasource_list: [NoCloud]
locale: false
network: {config: disabled}
manage_etc_hosts: false
apt: {preserve_sources_list: true}
ssh_genkeytypes: [ed25519]
"""
# The machine shares the host's network, so its sshd listens only on the machine's own loopback address.
_SSHD = """\
Include /etc/ssh/sshd_config.d/*.conf
ListenAddress {address}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """What makes one machine an instance when it boots."""

    name: str
    address: str
    user_data: bytes
    region: str
    zone: str
    environment: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    services: tuple[str, ...] = ()
    """Units that start at boot: a timer with timers.target, anything else with multi-user.target."""
    hidden: tuple[str, ...] = ()
    """Glob patterns, relative to the root, of files of the lower folder that the machine doesn't have."""


def write_seed(upper: Path, lower: Path, seed: Seed, *, hidden: tuple[Path, ...] = ()) -> None:
    """Write all differences from `lower` into `upper`; `hidden` are absolute paths that the machine must not see."""
    _write_emptied(upper, lower)
    lacking = (Path("/") / path.relative_to(lower) for pattern in seed.hidden for path in lower.glob(pattern))
    for path in (*hidden, *lacking):
        _hide(upper, lower, path)
    _write_identity(upper, seed)
    _write_cloud_init(upper, lower, seed)
    _write_services(upper, lower, seed)
    for name, text in seed.files.items():
        file = upper / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if text.startswith("#!"):
            file.chmod(0o755)


def _write_emptied(upper: Path, lower: Path) -> None:
    for name, mode in {
        # The tests' interpreter may lie below /root: the machine's users must be able to enter it.
        "root": 0o711,
        "home": 0o755,
        "opt": 0o755,
        "srv": 0o755,
        "mnt": 0o755,
        "tmp": 0o1777,
        "var/tmp": 0o1777,
        "var/log": 0o755,
        "var/cache": 0o755,
        "var/lib/cloud": 0o755,
        "etc/ssh": 0o755,
        "etc/cloud/cloud.cfg.d": 0o755,
        "etc/systemd/system.conf.d": 0o755,
        "etc/profile.d": 0o755,
        "etc/sudoers.d": 0o750,
    }.items():
        _make_empty(upper / name, mode)
    # An instance starts other services than the host; only cloud-init's own links are the same on both.
    for wants in lower.glob("etc/systemd/system/*.wants"):
        if wants.name != "cloud-init.target.wants":
            _make_empty(upper / wants.relative_to(lower), 0o755)


def _make_empty(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)
    os.setxattr(folder, _OPAQUE, b"y")


def _hide(upper: Path, lower: Path, path: Path) -> None:
    relative = path.relative_to("/")
    emptied_above = any(_is_opaque(upper / parent) for parent in relative.parents)
    if emptied_above or not (lower / relative).exists():
        return
    (upper / relative).parent.mkdir(parents=True, exist_ok=True)
    os.mknod(upper / relative, stat.S_IFCHR, _WHITEOUT)


def _is_opaque(folder: Path) -> bool:
    return folder.is_dir() and _OPAQUE in os.listxattr(folder)


def _write_identity(upper: Path, seed: Seed) -> None:
    etc = upper / "etc"
    # systemd-nspawn refuses to share a journal with a machine that has the host's id.
    identity = hashlib.sha256(seed.name.encode()).hexdigest()[:32]
    (etc / "machine-id").write_text(f"{identity}\n")
    (etc / "hostname").write_text(f"{seed.name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{seed.address} {seed.name}\n")
    (etc / "fstab").write_text("")
    assignments = [f"{name}={value}" for name, value in seed.environment.items()]
    (etc / "environment").write_text("\n".join(assignments) + "\n")
    exports = [f"export {assignment}" for assignment in assignments]
    (etc / "profile.d/box.sh").write_text("\n".join(exports) + "\n")
    sudoers = etc / "sudoers.d/box"
    sudoers.write_text(f'Defaults env_keep += "{" ".join(seed.environment)}"\n')
    sudoers.chmod(0o440)
    quoted = " ".join(f'"{assignment}"' for assignment in assignments)
    (etc / "systemd/system.conf.d/box.conf").write_text(f"[Manager]\nDefaultEnvironment={quoted}\n")


def _write_cloud_init(upper: Path, lower: Path, seed: Seed) -> None:
    _hide(upper, lower, Path("/etc/cloud/cloud-init.disabled"))
    # Debian's own file: it sends the output of user-data's commands to /var/log/cloud-init-output.log.
    _copy(upper, lower, "etc/cloud/cloud.cfg.d/05_logging.cfg")
    (upper / "etc/cloud/cloud.cfg.d/90-box.cfg").write_text(_CLOUD_INIT)
    nocloud = upper / "var/lib/cloud/seed/nocloud"
    nocloud.mkdir(parents=True)
    (nocloud / "meta-data").write_text(
        f"instance-id: {seed.name}\nlocal-hostname: {seed.name}\n"
        f"region: {seed.region}\navailability-zone: {seed.zone}\n",
    )
    (nocloud / "user-data").write_bytes(seed.user_data)


def _write_services(upper: Path, lower: Path, seed: Seed) -> None:
    (upper / "etc/ssh/sshd_config").write_text(_SSHD.format(address=seed.address))
    (upper / "etc/ssh/sshd_config.d").mkdir()
    _copy(upper, lower, "etc/ssh/moduli")
    for unit in ("ssh.service", "cloud-init.target", *seed.services):
        target = "timers" if unit.endswith(".timer") else "multi-user"
        wants = upper / f"etc/systemd/system/{target}.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        folder = "/etc/systemd/system" if f"/etc/systemd/system/{unit}" in seed.files else "/usr/lib/systemd/system"
        (wants / unit).symlink_to(f"{folder}/{unit}")


def _copy(upper: Path, lower: Path, name: str) -> None:
    if (lower / name).exists():
        shutil.copy(lower / name, upper / name)
