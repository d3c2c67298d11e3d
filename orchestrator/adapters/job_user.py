"""What the job's user may do on a machine beyond its own: three requests of root, or all where its job has sudo."""

from __future__ import annotations

from orchestrator.adapters.templates import render
from orchestrator.core.machine import CLOUD_ROOT, CLOUD_USER

END_UNIT = "kedge-deadline.service"
"""Ends the machine, at the deadline or when somebody starts it before."""

RUN_UNIT = "kedge-run.service"
"""Runs the command where its supervisor is systemd; its text is root's: the job can't change as whom it runs."""

JOB_UNITS = ("kedge-boot.service", "kedge-watch.service", RUN_UNIT, "kedge-run-*.scope", "cron.service", "atd.service")
"""Where processes of the job's user can be, besides its sessions."""

ASK = f"{CLOUD_ROOT}/boot/ask.sh"
"""Root's script that carries requests out."""

END_COMMAND = ("sudo", "-n", "/bin/sh", ASK, "end")
"""What the agent, which is the job's user's, ends the machine with."""

_REQUESTS = ("end", "start", "scope *")
# A run that is asked to stop ends within its job's grace, which its runner keeps; nobody else has to.
_STOP_SECONDS = 3600


def render_ask() -> str:
    """Render root's script; it checks what the `*` of a request stands for."""
    return render("boot/ask.sh.j2", end_unit=END_UNIT, run_unit=RUN_UNIT, user=CLOUD_USER)


def render_rights(*, sudo: bool) -> str:
    """Write what the user may do as root, in the words of sudoers."""
    if sudo:
        return "ALL=(ALL) NOPASSWD:ALL"
    return "ALL=(root) NOPASSWD: " + ", ".join(f"/bin/sh {ASK} {request}" for request in _REQUESTS)


def render_run_unit(root: str) -> str:
    """Render the unit that runs the command."""
    return render(
        "systemd/kedge-run.service.j2", description="the run", root=root, user=CLOUD_USER, stop_seconds=_STOP_SECONDS
    )
