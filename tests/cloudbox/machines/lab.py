"""Helpers for tests of machines: keys, SSH with a pinned host key, and a search for leftovers."""

from __future__ import annotations

import contextlib
import queue
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from tests.cloudbox.machines.first_boot import Image
from tests.cloudbox.machines.machines import Machines, MachineSpec
from tests.cloudbox.nspawn.order import group_prefix
from tests.support.waiting import wait_until

METADATA_URL = "http://127.0.1.1:1338"

AWAIT_CLOUD_INIT = "until [ -e /run/cloud-init/result.json ]; do sleep 0.1; done"
"""A shell command that ends when cloud-init has; `cloud-init status --wait` takes 0.25 s of CPU."""


@dataclass
class Keys:
    """The keys of a run, as a launch makes them: the user's key, and the pinned host key."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("user", "host"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.folder / name)]
            subprocess.run(argv, check=True)

    def public(self, name: str) -> str:
        return (self.folder / f"{name}.pub").read_text().strip()

    def user_data(self, **more: object) -> bytes:
        """Return a cloud-config for a user with a key and a known host key."""
        user = {"name": "kedge", "shell": "/bin/bash", "sudo": "ALL=(ALL) NOPASSWD:ALL"}
        config = {
            "users": [{**user, "ssh_authorized_keys": [self.public("user")]}],
            "ssh_keys": {"ed25519_private": (self.folder / "host").read_text(), "ed25519_public": self.public("host")},
            **more,
        }
        return b"#cloud-config\n" + yaml.safe_dump(config).encode()

    def ssh(self, address: str, command: str, *, check: bool = True) -> str:
        """Run a shell command as the user, on a machine with the pinned host key only."""
        known = self.folder / f"known-{address}"
        known.write_text(f"{address} {self.public('host')}\n")
        options = {
            "IdentityFile": self.folder / "user",
            "UserKnownHostsFile": known,
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 30,
            "LogLevel": "ERROR",
        }
        settings = [f"-o{name}={value}" for name, value in options.items()]
        argv = ["ssh", "-F", "none", *settings, f"kedge@{address}", command]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()


@dataclass
class Lab:
    """Machines for one test, and their reported ends."""

    machines: Machines
    keys: Keys
    exits: queue.Queue[tuple[str, bool]] = field(default_factory=queue.Queue)

    def boot(
        self,
        *,
        base: str = "host",
        disks: tuple[tuple[str, str], ...] = (),
        user_data: bytes = b"",
        image: Image | None = None,
    ) -> MachineSpec:
        spec = make_spec(user_data or self.keys.user_data(), base=base, disks=disks)
        if image:
            spec = replace(spec, files=image.files, services=image.services, hidden=image.hidden)
        self.machines.boot(spec, lambda name, powered_off: self.exits.put((name, powered_off)))
        return spec

    def await_ssh(self, spec: MachineSpec) -> None:
        try:
            wait_until(lambda: self.keys.ssh(spec.address, "echo up", check=False) == "up")
        except AssertionError as err:
            err.add_note(self.machines.console(spec.name))
            raise

    def boot_up(self, **how: object) -> MachineSpec:
        """Boot a machine, and wait until cloud-init has carried out all of its user-data."""
        spec = self.boot(**how)  # type: ignore[arg-type]
        self.await_ssh(spec)
        self.run(spec, AWAIT_CLOUD_INIT)
        return spec

    def run(self, spec: MachineSpec, command: str) -> str:
        return self.keys.ssh(spec.address, command)


@contextlib.contextmanager
def open_lab(folder: Path) -> Iterator[Lab]:
    """Make a lab; fail if it leaves anything behind."""
    machines = Machines(folder / "machines")
    try:
        yield Lab(machines=machines, keys=Keys(folder))
    finally:
        machines.close()
    assert not traces(machines.folder)


def make_spec(user_data: bytes, *, base: str = "host", disks: tuple[tuple[str, str], ...] = ()) -> MachineSpec:
    # Any address of 127.0.0.0/8 can be bound; a random one, so that test workers don't collide.
    address = ".".join(["127", *(str(2 + secrets.randbelow(250)) for _ in range(3))])
    return MachineSpec(
        name=f"i-{secrets.token_hex(6)}",
        address=address,
        user_data=user_data,
        region="us-east-1",
        zone="us-east-1a",
        environment={"AWS_EC2_METADATA_SERVICE_ENDPOINT": METADATA_URL},
        base=base,
        disks=disks,
    )


def traces(folder: Path, *disks: Path) -> list[str]:
    """List all that is left of machines below a folder: processes, mounts, loop devices, control groups and files."""
    markers = [str(path).encode() for path in (folder, *disks)]
    left = [
        f"{path}: {text.replace(bytes(1), b' ').decode()[:300]}"
        # A process inside a machine doesn't have the folder in its command line, but sees the overlay from there.
        for pattern in ("proc/[0-9]*/cmdline", "proc/[0-9]*/mountinfo", "sys/block/loop*/loop/backing_file")
        for path, text in _texts(pattern)
        if any(marker in text for marker in markers)
    ]
    left += [f"file {path}" for path in [folder, *Path("/run/systemd/nspawn").rglob("i-*")] if path.exists()]
    return left + [f"group {group}" for group in _groups_of(folder)]


def _texts(pattern: str) -> Iterator[tuple[Path, bytes]]:
    for path in Path("/").glob(pattern):
        # The process may have ended.
        with contextlib.suppress(OSError):
            yield path, path.read_bytes()


def _groups_of(folder: Path) -> list[Path]:
    # Only groups of this folder: tests that were killed together with their keepers leave groups behind.
    root, names = Path("/sys/fs/cgroup"), f"{group_prefix(folder)}*"
    return [*root.glob(names), *root.glob(f"*/{names}")]
