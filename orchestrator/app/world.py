"""Makes a provider's world: one adapter for each of the engine's ports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.host.settings import Settings
from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.ssh.keys import derive_secret, ensure_key, ensure_private_key
from orchestrator.adapters.sync.data.mover import BucketMover
from orchestrator.adapters.sync.rsync import RsyncMover
from orchestrator.core.job import Job
from orchestrator.core.ledger import Ledger
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.ports import Clock, Connector
from orchestrator.core.task import SupervisorKind
from orchestrator.core.transfers import CodeSource
from orchestrator.engine.world import World


def make_world(
    provider: str,
    settings: Settings,
    clock: Clock,
    ledger: Ledger,
    connector: Connector,
    code_source: Callable[..., CodeSource | None],
) -> World:
    """Make the world of one provider; what only a launch needs is imported on first use."""
    key_file, public_key = ensure_key(settings.state_dir / "keys")
    backing = open_backing(provider, provider_context(settings, clock))
    direct = RsyncMover(connector, environ=settings.environ)
    return World(
        clock=clock,
        poll_until=poll_until,
        ledger=ledger,
        provider=backing.provider,
        connector=connector,
        mover=BucketMover(backing.data, connector, direct) if backing.data else direct,
        store=backing.store,
        stage=backing.stage,
        data_stage=backing.data,
        secret_store=backing.secrets,
        store_caveats=backing.store_caveats,
        require_store=backing.require_store,
        code_source=partial(code_source, stage=backing.stage),
        authorized_key=public_key,
        agent_archive=_agent_archive,
        group_token=lambda run_id: derive_secret(key_file, f"group {run_id}"),
        render_unit=_render_unit,
        environ=settings.environ,
    )


def provider_context(settings: Settings, clock: Clock) -> Context:
    """Return what providers need to know about this laptop."""
    return Context(
        state_dir=settings.state_dir,
        runtime_dir=settings.runtime_dir,
        clock=clock,
        key_file=ensure_private_key(settings.state_dir / "keys"),
        environ=settings.environ,
        ssh_config=settings.ssh_config,
    )


def _agent_archive() -> bytes:
    from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive  # noqa: PLC0415

    return agent_archive()


def _render_unit(job: Job, root: str) -> str:
    """Render a job's systemd unit if it asks for one; a cloud machine has a system unit since its boot."""
    is_own = job.supervisor.kind is SupervisorKind.SYSTEMD_USER
    if not is_own and (job.supervisor.kind is not SupervisorKind.SYSTEMD or root == CLOUD_ROOT):
        return ""
    from orchestrator.adapters.host.templates import render  # noqa: PLC0415

    return render(
        "systemd/kedge-run.service.j2",
        description=job.name,
        root=root,
        user="" if is_own else "root",
        named=any(task.name for task in job.tasks),
        stop_seconds=int(job.grace.total_seconds()) + 15,
    )
