"""The first boot of a rented machine, as difficult as a real one: what an image does besides the user-data.

A test only loses time to it if kedge waits for it. fact: first-boot-apt-holds-the-lock; fact:
first-boot-needrestart; fact: gpu-nodes-come-late; fact: fabric-manager-802; fact: host-python-without-venv; fact:
cold-volume.
"""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = "/usr/lib/systemd/system"

NODES_UP = "/run/gpu-nodes.up"
"""Exists once the GPUs' device nodes do."""

FABRIC_UP = "/run/gpu-fabric.up"
"""Exists once torch can use the GPUs."""

MAKE_PACKAGE = """
mkdir -p toy/DEBIAN
cat >toy/DEBIAN/control <<EOF
Package: toy
Version: 1
Architecture: all
Maintainer: a <a@b.c>
Description: toy
EOF
dpkg-deb --build toy >/dev/null
"""
"""Makes toy.deb, which installs without a network; needrestart runs after its installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBoot:
    """How difficult the first boot is.

    Attributes:
        apt_seconds: how long the image's own upgrade holds apt's and dpkg's locks, unless it is prevented.
        needrestart: apt restarts every service with processes that isn't excluded, as Ubuntu 24.04 does.
        nodes_seconds: how long the GPUs' device nodes (/dev/kfd and /dev/dri, or /dev/nvidia*) are missing.
        torch_seconds: how long torch can't use GPUs that the kernel and nvidia-smi already show.
        no_venv: the system's Python has no venv, ensurepip or pip.
        import_seconds: how long the first import of torch takes, from a volume that is still being loaded.
        local_disk_gib: the size of the blank disk that comes with a machine; 0 for none.
    """

    apt_seconds: float = 180
    needrestart: bool = True
    nodes_seconds: float = 0.5
    torch_seconds: float = 1
    no_venv: bool = False
    import_seconds: float = 0
    local_disk_gib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image adds to a plain Debian: files and units that start at boot. `hidden`: patterns of what it lacks."""

    files: dict[str, str]
    services: tuple[str, ...]
    hidden: tuple[str, ...]


def render_image(first: FirstBoot, *, nodes: tuple[str, ...] = ()) -> Image:
    """Return the contents of a machine's image; `nodes` are its GPUs' device nodes."""
    files: dict[str, str] = {}
    services: list[str] = []
    if first.apt_seconds:
        files |= _apt_files(first.apt_seconds)
        services += ["apt-daily.timer", "apt-daily-upgrade.timer"]
    if first.needrestart:
        files |= {"/etc/apt/apt.conf.d/99needrestart": _APT_HOOK, "/usr/lib/needrestart/apt-pinvoke": _NEEDRESTART}
    if nodes:
        files[f"{_UNITS}/gpu-driver.service"] = _unit("load the GPUs' driver", _make_nodes(first.nodes_seconds, nodes))
        files[f"{_UNITS}/gpu-fabric.service"] = _unit("GPU fabric", f"sleep {first.torch_seconds:g}; touch {FABRIC_UP}")
        services += ["gpu-driver.service", "gpu-fabric.service"]
    return Image(files=files, services=tuple(services), hidden=_NO_VENV if first.no_venv else ())


def _apt_files(seconds: float) -> dict[str, str]:
    files = {"/usr/lib/apt/hold-lock": _HOLD_LOCK}
    # KillMode: if the unit is stopped, unattended-upgrade keeps running, and keeps the lock.
    for name, lock, kill in (
        ("apt-daily", "/var/lib/apt/lists/lock", "control-group"),
        ("apt-daily-upgrade", "/var/lib/dpkg/lock-frontend", "process"),
    ):
        hold = f"/usr/lib/apt/hold-lock {lock} {seconds:g} & wait"
        files[f"{_UNITS}/{name}.service"] = _unit("the image's own upgrade", hold, Type="oneshot", KillMode=kill)
        files[f"{_UNITS}/{name}.timer"] = f"[Timer]\nOnActiveSec=0\nUnit={name}.service\n"
    return files


def _make_nodes(seconds: float, nodes: tuple[str, ...]) -> str:
    made = " ".join(f"mkdir -p {node.rpartition('/')[0]}; ln -sf /dev/null {node};" for node in nodes)
    return f"sleep {seconds:g}; {made} touch {NODES_UP}"


def _unit(description: str, command: str, **settings: str) -> str:
    settings = {"ExecStart": f"/bin/sh -c '{command}'", **settings}
    service = "\n".join(f"{name}={value}" for name, value in settings.items())
    return f"[Unit]\nDescription={description}\n\n[Service]\n{service}\n"


_NO_VENV = (
    *("usr/lib/python3*/ensurepip", "usr/lib/python3*/venv", "usr/lib/python3/dist-packages/pip"),
    *("usr/lib/python3/dist-packages/virtualenv", "usr/bin/pip*", "usr/local/bin/pip*"),
)

# dpkg uses fcntl locks; flock locks don't block it.
_HOLD_LOCK = """\
#!/usr/bin/python3
import fcntl, os, sys, time
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
with open(sys.argv[1], "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    time.sleep(float(sys.argv[2]))
"""

_APT_HOOK = 'DPkg::Post-Invoke { "/usr/lib/needrestart/apt-pinvoke"; };\n'

# It treats every service with a process as outdated, by reading /proc as needrestart does. The exceptions are those
# of needrestart's own configuration that apply to a server.
_NEEDRESTART = """\
#!/usr/bin/perl
use strict;
our %nrconf = (override_rc => {
    map { $_ => 0 } qr(^dbus), qr(^getty@.+\\.service), qr(^user@\\d+\\.service), qr(^systemd-journald),
        qr(^systemd-logind), qr(^apt-daily), qr(^unattended-upgrades\\.service$), qr(^emergency\\.service$),
});
for my $name (sort glob '/etc/needrestart/conf.d/*.conf') {
    open(my $file, '<', $name) or die "$name: $!";
    local $/;
    my $text = <$file>;
    eval "$text; 1" or die "Error parsing $name: $@";
}
my %units;
for my $name (glob '/proc/[0-9]*/cgroup') {
    open(my $file, '<', $name) or next;
    while (<$file>) { $units{$1} = 1 if m{/([^/\\s]+\\.service)(/|$)} }
}
UNIT: for my $unit (sort keys %units) {
    for my $pattern (keys %{$nrconf{override_rc}}) {
        next UNIT if !$nrconf{override_rc}{$pattern} && $unit =~ $pattern;
    }
    print "needrestart: systemctl restart $unit\\n";
    system('systemctl', 'restart', $unit);
}
"""
