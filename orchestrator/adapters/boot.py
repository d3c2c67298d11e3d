"""What a rented machine does at its first boot, as cloud-config: the same for every provider that has cloud-init.

Order: the deadline's timer (bootcmd, at every boot, in plain sh), the image's own upgrades (masked), the users and the
host key (sshd answers from here on), prepare.sh (machine.json, torch), then kedge-boot.service: the agent, the
volumes, and what the agent does by itself. A machine that has no role to fetch the agent with waits in between until
it is brought: supply.sh. One whose agent doesn't run in time ends itself: unready.sh. Each step says in
`<root>/boot.jsonl` how it went, and `<root>/ready` is written last.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.adapters.job_user import END_UNIT, RUN_UNIT, render_ask, render_rights, render_run_unit
from orchestrator.adapters.templates import render
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import CLOUD_ADMIN, CLOUD_USER
from orchestrator.core.wire import BootOrder, MachineConfig

STATE = "/var/lib/kedge"
"""A folder of root's: the deadline, and secrets that only root reads."""

UNREADY_SECONDS = 600
"""How long a machine stays whose agent doesn't come: time enough for somebody to look."""

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
SCRATCH_WAIT_SECONDS = 60
"""How long a boot waits for an image that mounts the machine's local disks itself."""

_AGENT = Path(__file__).resolve().parent.parent / "agent"
_UNITS = "/etc/systemd/system"
_MARGIN_SHARE = 20
_MARGIN_MOST_SECONDS = 60


class Origin(StrEnum):
    """Where a data volume comes from, which says what the machine may do to it."""

    MADE = "ours"
    """kedge has made it: it may be formatted where it is blank."""
    RESTORED = "restored"
    """kedge has made it from a snapshot: never formatted; its file system grows to the volume's size."""
    FOUND = "found"
    """It is somebody's own: mounted as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootVolume:
    """A data volume to mount.

    Attributes:
        serial: as the disk itself tells it.
        target: a path below the machine's data folder.
        device: a path to try on machines whose disks tell no serial, such as /dev/xvdf; empty for none.
    """

    serial: str
    target: str
    origin: Origin
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNames:
    """What a cloud's disks are called on its machines.

    Attributes:
        volume_model: of a data volume, as udev writes it into the names in /dev/disk/by-id.
        local: glob patterns, with spaces between them, of the disks that come with a machine and are lost with it. No
            data volume's name may match.
        mounted_by: a unit of the cloud's images that mounts the local disks itself; empty for none.
        mounted_at: where it does.
    """

    volume_model: str
    local: str
    mounted_by: str = ""
    mounted_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootSpec:
    """All that user-data is made of. It holds no secret but the host key, which is thrown away.

    Attributes:
        machine: its `created` and `deadline` are filled in on the machine, at its first boot.
        lifetime_seconds: from the first boot until the machine ends itself, whatever happens. The deadline in
            machine.json comes before that by a margin (see `plan_margin`).
        authorized_key: a line of authorized_keys.
        host_private_key: ECDSA, in OpenSSH's format.
        host_public_key: its line of a .pub file.
        agent_sha256: of the archive that lies at `agent/<sha256>.tar.gz` under the run's prefix of the store; empty
            where the agent is brought over SSH.
        unready_seconds: from each boot on; a machine on which the agent doesn't run by then ends itself.
        sudo: the job's user may become root.
        end_script: tried before the machine is powered off, by root; empty where powering off ends it.
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
    volumes: tuple[BootVolume, ...] = ()


def plan_margin(lifetime_seconds: int) -> int:
    """Return the seconds by which the agent's deadline precedes the timer that ends the machine.

    The timer keeps the promise of what a machine can cost at most; until then the agent has had the command
    checkpoint, has shipped the results, and has itself asked for the end.
    """
    return min(_MARGIN_MOST_SECONDS, lifetime_seconds // _MARGIN_SHARE)


def read_bootstrap() -> dict[str, str]:
    """Read the agent's modules that can fetch the rest of it: file name -> text."""
    names = _read_names((_AGENT / "bootstrap.py").read_text())
    return {f"{name}.py": (_AGENT / f"{name}.py").read_text() for name in names}


def render_cloud_config(spec: BootSpec, bootstrap: Mapping[str, str], *, disks: DiskNames) -> str:
    """Render the cloud-config: plain text, the same for the same machine.

    Args:
        spec: the machine.
        bootstrap: the agent's modules that fetch the rest of it, as `read_bootstrap` returns them; none where it is
            brought.
        disks: what they are called there.

    Raises:
        TemplateError: a value can't be written where it is needed.
    """
    files = render_files(spec, bootstrap, disks)
    return render(
        "boot/user-data.yaml.j2",
        spec=spec,
        admin=CLOUD_ADMIN,
        user=CLOUD_USER,
        rights=render_rights(sudo=spec.sudo),
        deadline=render_deadline(spec).rstrip("\n"),
        upgrades=UPGRADES,
        files={path: text.rstrip("\n") for path, text in files.items()},
    )


def render_files(spec: BootSpec, bootstrap: Mapping[str, str], disks: DiskNames) -> dict[str, str]:
    """Render the files that cloud-init writes: path -> text."""
    root = spec.machine.root
    return {
        "/etc/apt/apt.conf.d/90kedge": _APT,
        "/etc/needrestart/conf.d/kedge.conf": _NEEDRESTART,
        **{f"{root}/boot/kedge_agent/{name}": text for name, text in bootstrap.items()},
        f"{root}/boot/machine.json": _machine_form(spec.machine),
        f"{root}/boot.json": json.dumps(asdict(spec.boot)) + "\n",
        **{f"{root}/boot/{name}.sh": text for name, text in _render_scripts(spec, disks).items()},
        **{f"{_UNITS}/{name}": text for name, text in _render_units(spec).items()},
    }


def render_deadline(spec: BootSpec) -> str:
    """Render the script that arms the deadline; it may run again and again."""
    return render(
        "boot/deadline.sh.j2",
        deadline_file=_deadline_file(spec.machine),
        end_file=f"{STATE}/end.sh",
        lifetime=spec.lifetime_seconds,
        end=spec.end_script.rstrip("\n"),
        units=_UNITS,
    )


def _render_scripts(spec: BootSpec, disks: DiskNames) -> dict[str, str]:
    whose = {"root": spec.machine.root, "user": CLOUD_USER}
    prepare = render(
        "boot/prepare.sh.j2",
        deadline_file=_deadline_file(spec.machine),
        lifetime=spec.lifetime_seconds,
        margin=plan_margin(spec.lifetime_seconds),
        **whose,
    )
    unready = render("boot/unready.sh.j2", unready_seconds=spec.unready_seconds, end_unit=END_UNIT, **whose)
    scripts = {"find-torch": render("boot/find-torch.sh.j2", opt="/opt"), "prepare": prepare, "unready": unready}
    scripts["ask"] = render_ask()
    scripts["scratch"] = render("boot/scratch.sh.j2", names=disks, wait=SCRATCH_WAIT_SECONDS, **whose)
    if not spec.agent_sha256:
        scripts["supply"] = render("boot/supply.sh.j2", state=STATE, **whose)
    if spec.volumes:
        scripts["mount-volumes"] = render(
            "boot/mount-volumes.sh.j2",
            by_id="/dev/disk/by-id",
            fstab="/etc/fstab",
            wait=DISK_WAIT_SECONDS,
            disk_model=disks.volume_model,
            volumes=spec.volumes,
            **whose,
        )
    return scripts


def _render_units(spec: BootSpec) -> dict[str, str]:
    values = {"root": spec.machine.root, "user": CLOUD_USER, "agent_sha256": spec.agent_sha256, "volumes": spec.volumes}
    units = {name: render(f"boot/{name}.j2", **values) for name in ("kedge-boot.service", "kedge-watch.service")}
    units[RUN_UNIT] = render_run_unit(spec.machine.root)
    units["kedge-unready.service"] = render("boot/kedge-unready.service.j2", root=spec.machine.root)
    units["kedge-unready.timer"] = render("boot/kedge-unready.timer.j2", unready_seconds=spec.unready_seconds)
    return units


def _deadline_file(machine: MachineConfig) -> str:
    """Return where the first boot remembers the deadline: by name, since an image may be made of a machine."""
    return f"{STATE}/{machine.machine}.deadline"


def _machine_form(machine: MachineConfig) -> str:
    """Write machine.json with places for what only the machine can tell; see prepare.sh."""
    form = asdict(machine) | {"created": "@created@", "deadline": "@deadline@", "path": ["@torch@", *machine.path]}
    return json.dumps(form) + "\n"


def _read_names(source: str) -> tuple[str, ...]:
    """Read the agent's own list without importing the agent, which stands alone."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "MODULES":
            return tuple(ast.literal_eval(statement.value))
    raise KedgeError(
        "kedge's own agent can't be read", why="its bootstrap.py names no MODULES", fix="install kedge again"
    )
