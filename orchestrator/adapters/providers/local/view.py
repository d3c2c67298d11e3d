"""What a local machine looks like from outside.

UNKNOWN is a machine half made, or a lost one: its init is dead, which arms the deadline and starts sshd and the agent
again when they die. Only its destruction settles it; until then its agent and the next sweep know the deadline, and
its command can be stopped and its results fetched for as long as sshd lives.
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
    return MachineState.READY if folder.init() else MachineState.UNKNOWN


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
