"""Units with which a machine runs all stages of cloud-init from one process (`stages.py`)."""

from __future__ import annotations

from pathlib import Path

from tests.cloudbox.nspawn import stages

_PROGRAMS = "usr/lib/kedge-box"
_UNITS = "etc/systemd/system"

_STAGES = {
    "cloud-init-local": "init --local",
    "cloud-init": "init",
    "cloud-config": "modules --mode=config",
    "cloud-final": "modules --mode=final",
}

# Like the unit of cloud-init 24.3.
_MAIN = f"""\
[Unit]
Description=cloud-init's process
DefaultDependencies=no
After=systemd-remount-fs.service
Before=cloud-init-local.service shutdown.target
Conflicts=shutdown.target
RequiresMountsFor=/var/lib/cloud

[Service]
Type=notify
ExecStart=/usr/bin/python3 /{_PROGRAMS}/stages.py
TimeoutStartSec=infinity
TasksMax=infinity
StandardOutput=journal+console
"""
_STAGE = """\
[Unit]
Wants=cloud-init-main.service
After=cloud-init-main.service

[Service]
ExecStart=
ExecStart=/bin/sh /{programs}/stage {arguments}
"""
# The status is empty if the stage was killed.
_ASK = f"""\
answer={stages.ASK}.$$
mkfifo -m 600 "$answer"
echo "$$ $*" >{stages.ASK}
read -r status <"$answer"
rm "$answer"
exit "${{status:-1}}"
"""


def write_stages(upper: Path, lower: Path) -> None:
    """Write the units and programs into a machine's root folder, unless its cloud-init has such a process itself."""
    if (lower / "usr/lib/systemd/system/cloud-init-main.service").exists():
        return
    files = {
        f"{_PROGRAMS}/stages.py": Path(stages.__file__).read_text(),
        f"{_PROGRAMS}/stage": _ASK,
        f"{_UNITS}/cloud-init-main.service": _MAIN,
    }
    for service, arguments in _STAGES.items():
        files[f"{_UNITS}/{service}.service.d/one-process.conf"] = _STAGE.format(programs=_PROGRAMS, arguments=arguments)
    for name, text in files.items():
        file = upper / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
