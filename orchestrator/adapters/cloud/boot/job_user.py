"""What the job's user may do as root on a machine: three requests, or everything if the job has sudo."""

from __future__ import annotations

from orchestrator.adapters.host.templates import render
from orchestrator.core.machine import CLOUD_ROOT, CLOUD_USER

END_UNIT = "kedge-deadline.service"
"""Ends the machine, at the deadline or when it is started earlier."""

RUN_UNIT = "kedge-run.service"
"""Runs the command where its supervisor is systemd. Root owns the unit: the job can't change the user it runs as."""

TASK_UNIT = "kedge-run@.service"
"""The same for each of several tasks, with its name after the `@`."""

JOB_UNITS = (
    "kedge-boot.service",
    "kedge-watch.service",
    RUN_UNIT,
    "kedge-run@*.service",
    "kedge-run-*.scope",
    "cron.service",
    "atd.service",
)
"""Units that can hold processes of the job's user, besides its sessions."""

ASK = f"{CLOUD_ROOT}/boot/ask.sh"
"""Root's script that carries out requests."""

END_COMMAND = ("sudo", "-n", "/bin/sh", ASK, "end")
"""The agent runs it, as the job's user, to end the machine."""

_REQUESTS = ("end", "start", "start *", "scope *")
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


def render_run_units(root: str) -> dict[str, str]:
    """Render the units that run commands, by their names: that of a run's only task, and that of its several tasks."""
    values = {"root": root, "user": CLOUD_USER, "stop_seconds": _STOP_SECONDS}
    units = {RUN_UNIT: ("the run", False), TASK_UNIT: ("a task of the run", True)}
    return {
        unit: render("systemd/kedge-run.service.j2", description=description, named=named, **values)
        for unit, (description, named) in units.items()
    }
