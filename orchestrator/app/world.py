"""Puts a provider's world together: every adapter behind the port that the engine knows it by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orchestrator.adapters.datasets.mover import BucketMover
from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.remote.keys import ensure_key
from orchestrator.adapters.rsync import RsyncMover
from orchestrator.adapters.settings import Settings
from orchestrator.core.job import Job, SupervisorKind
from orchestrator.core.ledger import Ledger
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.ports import Clock, CodeSource, Connector
from orchestrator.engine.world import World


def make_world(
    provider: str,
    settings: Settings,
    clock: Clock,
    ledger: Ledger,
    connector: Connector,
    code: Callable[..., CodeSource | None],
) -> World:
    """Make the world of one provider; what only a launch needs is imported when it is asked for."""
    _, public_key = ensure_key(settings.state_dir / "keys")
    backing = open_backing(provider, provider_context(settings, clock))
    direct = RsyncMover(connector, environ=settings.environ)
    return World(
        clock=clock,
        ledger=ledger,
        provider=backing.provider,
        connector=connector,
        data=BucketMover(backing.data, connector, direct) if backing.data else direct,
        store=backing.store,
        stage=backing.stage,
        data_stage=backing.data,
        store_caveats=backing.store_caveats,
        code=partial(code, stage=backing.stage),
        authorized_key=public_key,
        agent_archive=_agent_archive,
        render_unit=_render_unit,
        environ=settings.environ,
    )


def provider_context(settings: Settings, clock: Clock) -> Context:
    """Return what a provider may need of this laptop."""
    key_file, _ = ensure_key(settings.state_dir / "keys")
    return Context(
        state_dir=settings.state_dir,
        runtime_dir=settings.runtime_dir,
        clock=clock,
        key_file=key_file,
        environ=settings.environ,
        ssh_config=settings.ssh_config,
    )


def _agent_archive() -> bytes:
    from orchestrator.adapters.agent_archive import agent_archive  # noqa: PLC0415

    return agent_archive()


def _render_unit(job: Job, root: str) -> str:
    """Render the systemd unit of a job that asks for one; a cloud's machine has that of its system from its boot."""
    is_own = job.supervisor.kind is SupervisorKind.SYSTEMD_USER
    if not is_own and (job.supervisor.kind is not SupervisorKind.SYSTEMD or root == CLOUD_ROOT):
        return ""
    from orchestrator.adapters.templates import render  # noqa: PLC0415

    return render(
        "systemd/kedge-run.service.j2",
        description=job.name,
        root=root,
        user="" if is_own else "root",
        stop_seconds=int(job.supervisor.grace.total_seconds()) + 15,
    )
