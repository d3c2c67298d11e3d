"""Puts a provider's world together: every adapter behind the port that the engine knows it by."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.adapters.objects import FolderStore
from orchestrator.adapters.providers import Context, open_provider
from orchestrator.adapters.remote.keys import ensure_key
from orchestrator.adapters.rsync import RsyncMover
from orchestrator.adapters.settings import Settings
from orchestrator.core.job import Job, SupervisorKind
from orchestrator.core.ledger import Ledger
from orchestrator.core.ports import Clock, CodeSource, Connector
from orchestrator.engine.world import World


def make_world(
    provider: str,
    settings: Settings,
    clock: Clock,
    ledger: Ledger,
    connector: Connector,
    code: Callable[[Job], CodeSource | None],
) -> World:
    """Make the world of one provider; what only a launch needs is imported when it is asked for."""
    key_file, public_key = ensure_key(settings.state_dir / "keys")
    context = Context(
        state_dir=settings.state_dir,
        runtime_dir=settings.runtime_dir,
        clock=clock,
        key_file=key_file,
    )
    return World(
        clock=clock,
        ledger=ledger,
        provider=open_provider(provider, context),
        connector=connector,
        data=RsyncMover(connector),
        store=FolderStore(settings.state_dir / "store"),
        code=code,
        authorized_key=public_key,
        agent_archive=_agent_archive,
        render_unit=_render_unit,
        environ=settings.environ,
    )


def _agent_archive() -> bytes:
    from orchestrator.adapters.agent_archive import agent_archive  # noqa: PLC0415

    return agent_archive()


def _render_unit(job: Job, root: str) -> str:
    """Render the systemd unit of a job that asks for one."""
    if job.supervisor.kind not in (SupervisorKind.SYSTEMD, SupervisorKind.SYSTEMD_USER):
        return ""
    from orchestrator.adapters.templates import render  # noqa: PLC0415

    return render("systemd/kedge-run.service.j2", job=job, root=root)
