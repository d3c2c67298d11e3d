"""What the job's user may do as root on a machine: three requests, or everything if the job has sudo."""

from __future__ import annotations

from orchestrator.adapters.host.templates import render
from orchestrator.core.machine import CLOUD_ROOT, CLOUD_USER

END_UNIT = "kedge-deadline.service"
"""Ends the machine, at the deadline or when it is started earlier."""

RUN_UNIT = "kedge-run.service"
"""Runs the command where its supervisor is systemd. Root owns the unit: the job can't change the user it runs as."""

JOB_UNITS = ("kedge-boot.service", "kedge-watch.service", RUN_UNIT, "kedge-run-*.scope", "cron.service", "atd.service")
"""Units that can hold processes of the job's user, besides its sessions."""

ASK = f"{CLOUD_ROOT}/boot/ask.sh"
"""Root's script that carries out requests."""

END_COMMAND = ("sudo", "-n", "/bin/sh", ASK, "end")
"""The agent runs it, as the job's user, to end the machine."""

_REQUESTS = ("end", "start", "scope *")
# The runner enforces the job's grace period; systemd's own limit must only be longer.
_STOP_SECONDS = 3600


def render_ask() -> str:
    """Render root's script; it checks what the `*` of a request stands for."""
    return render("boot/ask.sh.j2", end_unit=END_UNIT, run_unit=RUN_UNIT, user=CLOUD_USER)


def render_rights(*, sudo: bool) -> str:
    """Render what the user may do as root, in sudoers' syntax."""
    if sudo:
        return "ALL=(ALL) NOPASSWD:ALL"
    return "ALL=(root) NOPASSWD: " + ", ".join(f"/bin/sh {ASK} {request}" for request in _REQUESTS)


def render_run_unit(root: str) -> str:
    """Render the unit that runs the command."""
    return render(
        "systemd/kedge-run.service.j2", description="the run", root=root, user=CLOUD_USER, stop_seconds=_STOP_SECONDS
    )
