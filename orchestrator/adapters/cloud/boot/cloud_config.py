"""Renders cloud-config: what a rented machine does at its first boot, the same for every cloud with cloud-init.

Order: the deadline's timer (bootcmd, at every boot, in plain sh), the machine's own firewall if its cloud has none,
masking of the image's unattended upgrades, the users and the host key (sshd answers from here on), prepare.sh
(machine.json, torch), then kedge-boot.service: the agent, the volumes, and what the agent does by itself. A machine
without an IAM role waits before that until the agent is sent over SSH (supply.sh). A machine whose agent doesn't run
in time ends itself (unready.sh). Each step appends its result to `<root>/boot.jsonl`; `<root>/ready` is written last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

import msgspec

from orchestrator.adapters.cloud.boot.job_user import END_UNIT, render_ask, render_rights, render_run_units
from orchestrator.adapters.host.templates import render
from orchestrator.core.machine import CLOUD_ADMIN, CLOUD_USER
from orchestrator.core.protocol.wire import BootOrder, MachineConfig

STATE = "/var/lib/kedge"
"""Root's folder: the deadline, and secrets that only root reads."""

ARM_COMMAND = ("/bin/sh", f"{STATE}/arm.sh")
"""Arms the deadline's timer, at the recorded deadline or at the one that follows; only root can run it."""

UNREADY_SECONDS = 600
"""How long a machine stays without an agent: time enough for somebody to look at it."""

DISK_WAIT_SECONDS = 180
"""How long a boot waits for a volume to be attached."""

UPGRADES = (
    "apt-daily.timer",
    "apt-daily.service",
    "apt-daily-upgrade.timer",
    "apt-daily-upgrade.service",
    "unattended-upgrades.service",
)
"""Units by which Debian and Ubuntu images upgrade themselves; fact: first-boot-apt-holds-the-lock."""

_APT = """\
// kedge: whoever installs something waits for dpkg's lock, for ten minutes at most.
DPkg::Lock::Timeout "600";
"""
_NEEDRESTART = """\
# kedge: what runs the training is not restarted after an installation.
$nrconf{override_rc}{qr(^kedge-)} = 0;
"""
_LIMITS = f"""\
# kedge: RDMA cards pin the memory that they read and write.
{CLOUD_USER} - memlock unlimited
"""
SCRATCH_WAIT_SECONDS = 60
"""How long a boot waits for an image that mounts the machine's local disks itself."""

_UNITS = "/etc/systemd/system"
_MARGIN_SHARE = 20
_MARGIN_MOST_SECONDS = 60


class Origin(StrEnum):
    """Where a data volume comes from; it decides what the machine may do to the volume."""

    MADE = "ours"
    """Created by kedge: formatted if it is blank."""
    RESTORED = "restored"
    """Created by kedge from a snapshot: never formatted; its file system grows to the volume's size."""
    FOUND = "found"
    """Not created by kedge: mounted as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootVolume:
    """A data volume to mount.

    Attributes:
        serial: the disk's serial number.
        target: where to mount it, relative to the machine's data folder.
        device: a path to try on machines whose disks report no serial, such as /dev/xvdf; empty for none.
    """

    serial: str
    target: str
    origin: Origin
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNames:
    """The names of a cloud's disks on its machines.

    Attributes:
        volume_model: a data volume's model, as udev writes it into the names in /dev/disk/by-id.
        local: glob patterns, separated by spaces, of the disks that come with a machine and are lost with it. No
            data volume's name may match.
        mounted_by: a systemd unit of the cloud's images that mounts the local disks; empty for none.
        mounted_at: where that unit mounts them.
    """

    volume_model: str
    local: str
    mounted_by: str = ""
    mounted_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootSpec:
    """Everything that user-data is rendered from. Its only secret is the host key, which is replaced after the boot.

    Attributes:
        machine: its `created` and `deadline` are filled in on the machine, at its first boot.
        lifetime_seconds: from the first boot until the machine ends itself, whatever happens. The deadline in
            machine.json is earlier by a margin (see `plan_margin`).
        authorized_key: a line of authorized_keys.
        host_private_key: an ECDSA key in OpenSSH's format.
        host_public_key: the same as a line of a .pub file.
        agent_sha256: of the archive at `agent/<sha256>.tar.gz` under the run's prefix of the store; empty if the
            agent is sent over SSH.
        unready_seconds: counted from each boot; if the agent doesn't run by then, the machine ends itself.
        sudo: the job's user may become root.
        end_script: root runs it before the machine powers off; empty if powering off ends the machine.
        ssh_from: the only network that may reach the machine, as CIDR; empty if the cloud has a firewall.
    """

    machine: MachineConfig
    lifetime_seconds: int
    boot: BootOrder
    authorized_key: str
    host_private_key: str
    host_public_key: str
    agent_sha256: str = ""
    unready_seconds: int = UNREADY_SECONDS
    sudo: bool = False
    end_script: str = ""
    ssh_from: str = ""
    volumes: tuple[BootVolume, ...] = ()


def plan_margin(lifetime_seconds: int) -> int:
    """Return how many seconds the agent's deadline is earlier than the timer that ends the machine.

    The timer limits what a machine can cost. In the seconds before it, the agent has the command write a checkpoint,
    uploads the results, and asks for the end itself.
    """
    return min(_MARGIN_MOST_SECONDS, lifetime_seconds // _MARGIN_SHARE)


def render_cloud_config(spec: BootSpec, bootstrap: Mapping[str, str], *, disks: DiskNames) -> str:
    """Render the cloud-config: plain text, the same text for the same machine.

    Args:
        spec: the machine.
        bootstrap: the agent's modules that fetch the rest of it, as `read_bootstrap` returns them; none if the agent
            is sent over SSH.
        disks: the names of the cloud's disks.

    Raises:
        TemplateError: a value can't be quoted for the place where it is needed.
    """
    files = render_files(spec, bootstrap, disks)
    return render(
        "boot/user-data.yaml.j2",
        spec=spec,
        admin=CLOUD_ADMIN,
        user=CLOUD_USER,
        rights=render_rights(sudo=spec.sudo),
        deadline=render_deadline(spec).rstrip("\n"),
        closing=render_closing(spec).rstrip("\n"),
        upgrades=UPGRADES,
        files={path: text.rstrip("\n") for path, text in files.items()},
    )


def render_files(spec: BootSpec, bootstrap: Mapping[str, str], disks: DiskNames) -> dict[str, str]:
    """Render the files that cloud-init writes: path -> text."""
    root = spec.machine.root
    return {
        "/etc/apt/apt.conf.d/90kedge": _APT,
        "/etc/needrestart/conf.d/kedge.conf": _NEEDRESTART,
        # For what is started over SSH; units have limits of their own. fact: memory-lock-limits
        "/etc/security/limits.d/90-kedge.conf": _LIMITS,
        **{f"{root}/boot/kedge_agent/{name}": text for name, text in bootstrap.items()},
        f"{root}/boot/machine.json": _machine_form(spec.machine),
        f"{root}/boot.json": _render_order(spec.boot),
        **{f"{root}/boot/{name}.sh": text for name, text in _render_scripts(spec, disks).items()},
        **{f"{_UNITS}/{name}": text for name, text in _render_units(spec).items()},
    }


def render_deadline(spec: BootSpec) -> str:
    """Render the script that arms the deadline. Safe to run again."""
    return render(
        "boot/deadline.sh.j2",
        deadline_file=_deadline_file(spec.machine),
        arm_file=ARM_COMMAND[-1],
        end_file=f"{STATE}/end.sh",
        lifetime=spec.lifetime_seconds,
        end=spec.end_script.rstrip("\n"),
        units=_UNITS,
    )


def render_closing(spec: BootSpec) -> str:
    """Render the script that closes the machine to everybody else; empty if its cloud does that. Safe to run again."""
    return render("boot/close-ssh.sh.j2", network=spec.ssh_from) if spec.ssh_from else ""


def _render_scripts(spec: BootSpec, disks: DiskNames) -> dict[str, str]:
    common = {"root": spec.machine.root, "user": CLOUD_USER}
    prepare = render(
        "boot/prepare.sh.j2",
        deadline_file=_deadline_file(spec.machine),
        lifetime=spec.lifetime_seconds,
        margin=plan_margin(spec.lifetime_seconds),
        **common,
    )
    unready = render("boot/unready.sh.j2", unready_seconds=spec.unready_seconds, end_unit=END_UNIT, **common)
    scripts = {"find-torch": render("boot/find-torch.sh.j2", opt="/opt"), "prepare": prepare, "unready": unready}
    scripts["ask"] = render_ask()
    scripts["scratch"] = render("boot/scratch.sh.j2", names=disks, wait=SCRATCH_WAIT_SECONDS, **common)
    if not spec.agent_sha256:
        scripts["supply"] = render("boot/supply.sh.j2", state=STATE, **common)
    if spec.volumes:
        scripts["mount-volumes"] = render(
            "boot/mount-volumes.sh.j2",
            by_id="/dev/disk/by-id",
            fstab="/etc/fstab",
            wait=DISK_WAIT_SECONDS,
            disk_model=disks.volume_model,
            volumes=spec.volumes,
            **common,
        )
    return scripts


def _render_units(spec: BootSpec) -> dict[str, str]:
    values = {"root": spec.machine.root, "user": CLOUD_USER, "agent_sha256": spec.agent_sha256, "volumes": spec.volumes}
    units = {name: render(f"boot/{name}.j2", **values) for name in ("kedge-boot.service", "kedge-watch.service")}
    units.update(render_run_units(spec.machine.root))
    units["kedge-unready.service"] = render("boot/kedge-unready.service.j2", root=spec.machine.root)
    units["kedge-unready.timer"] = render("boot/kedge-unready.timer.j2", unready_seconds=spec.unready_seconds)
    return units


def _deadline_file(machine: MachineConfig) -> str:
    """Return where the first boot stores the deadline, by machine: an image may contain an earlier machine's."""
    return f"{STATE}/{machine.machine}.deadline"


def _render_order(boot: BootOrder) -> str:
    """Render boot.json; where secrets come from is left out if there are none."""
    fields = {name: value for name, value in asdict(boot).items() if value or not name.startswith("secrets")}
    return json.dumps(fields) + "\n"


def _machine_form(machine: MachineConfig) -> str:
    """Render machine.json with placeholders for what only the machine knows; prepare.sh fills them in."""
    there = {"created": "@created@", "deadline": "@deadline@", "path": ["@torch@", *machine.path]}
    return json.dumps(msgspec.to_builtins(machine) | there) + "\n"
