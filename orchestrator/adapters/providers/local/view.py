"""What a local machine looks like from outside.

UNKNOWN is a machine half made, or one whose init and sshd are both dead: only its destruction settles it. A
machine whose init alone is dead stays READY: it can be reached and its results can be fetched; its agent and
the next sweep still know the deadline.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from orchestrator.adapters.providers.local.folder import Facts, MachineFolder
from orchestrator.adapters.providers.local.layout import user_name
from orchestrator.adapters.providers.local.offers import NAME
from orchestrator.adapters.providers.local.processes import find_processes, lineage
from orchestrator.adapters.providers.local.sshd import HOST
from orchestrator.core.job import DEFAULT_DEADLINE
from orchestrator.core.machine import Machine, MachineState, SshAddress


def see_machine(folder: MachineFolder, key_file: Path, now: datetime) -> Machine | None:
    """Describe a machine by its folder and its processes; None when neither is left.

    The process that asks, and its ancestors, don't count: they may be a shell on the machine itself.
    """
    if not folder.root.exists() and not find_processes(folder.mark, spare=lineage()):
        return None
    facts = folder.facts() or _guess_facts(folder, now)
    created = datetime.fromtimestamp(facts.created, UTC)
    return Machine(
        id=folder.id,
        run_id=facts.run_id,
        provider=NAME,
        provider_id=folder.id,
        state=_state(folder),
        root=str(folder.root),
        created_at=created,
        deadline_at=created + timedelta(seconds=facts.lifetime),
        usd_per_hour=Decimal(facts.usd_per_hour),
        address=_address(folder, key_file),
        gpus=facts.gpus,
        zstd=facts.zstd,
    )


def _state(folder: MachineFolder) -> MachineState:
    if folder.ending.exists():
        return MachineState.ENDING
    if folder.read("ready") is None:
        return MachineState.BOOTING if folder.init() else MachineState.UNKNOWN
    alive = folder.init() is not None or _sshd_is_alive(folder)
    return MachineState.READY if alive else MachineState.UNKNOWN


def _address(folder: MachineFolder, key_file: Path) -> SshAddress | None:
    ready = folder.read("ready")
    if ready is None:
        return None
    return SshAddress(
        host=HOST,
        port=int(ready["port"]),
        user=user_name(),
        host_key=str(ready["host_key"]),
        key_file=str(key_file),
    )


def _sshd_is_alive(folder: MachineFolder) -> bool:
    try:
        return folder.mark.is_on(int(folder.sshd_pid.read_text()))
    except (OSError, ValueError):
        return False


def _guess_facts(folder: MachineFolder, now: datetime) -> Facts:
    """Say what is known of a machine that crashed before its facts were written, or that lost its folder."""
    try:
        created = folder.root.stat().st_mtime
    except FileNotFoundError:
        created = now.timestamp()
    return Facts(
        run_id=folder.id.rpartition("-m")[0] or folder.id,
        created=created,
        lifetime=DEFAULT_DEADLINE.total_seconds(),
        usd_per_hour="0",
        gpus=0,
        zstd=False,
        sockets="",
        python="",
        package="",
    )
