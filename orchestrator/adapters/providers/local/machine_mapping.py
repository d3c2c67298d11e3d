"""Maps a local machine's folder and processes to a `Machine`.

UNKNOWN is a machine that is half created, or whose init is dead: nothing arms its deadline or restarts sshd and the
agent any more. It must be destroyed. Until then its agent and the next sweep know the deadline, and as long as sshd
lives, its command can be stopped and its results fetched.
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
from orchestrator.core.job import DEFAULT_TIME_LIMIT
from orchestrator.core.machine import Machine, MachineState, SshAddress


def map_folder(folder: MachineFolder, key_file: Path, now: datetime) -> Machine | None:
    """Map a machine by its folder and its processes; None if neither is left.

    The calling process and its ancestors don't count: they may be a shell on the machine itself.
    """
    if not folder.root.exists() and not find_processes(folder.marker, spare=lineage()):
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
        rank=facts.rank,
        private_address=HOST,
    )


def _state(folder: MachineFolder) -> MachineState:
    if folder.ending_file.exists():
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
    """Make facts for a machine that crashed before its facts were written, or that lost its folder."""
    try:
        created = folder.root.stat().st_mtime
    except FileNotFoundError:
        created = now.timestamp()
    return Facts(
        run_id=folder.id.rpartition("-m")[0] or folder.id,
        created=created,
        lifetime=DEFAULT_TIME_LIMIT.total_seconds(),
        usd_per_hour="0",
        gpus=0,
        zstd=False,
        sockets="",
        python="",
        package="",
    )
