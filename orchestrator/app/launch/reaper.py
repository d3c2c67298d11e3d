"""Decides what ends a forgotten machine's bill, if its provider doesn't.

A plan shows it before the user confirms. It may change after the launch, so `status` checks it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from orchestrator.adapters.host.timer import REAP
from orchestrator.adapters.providers import PROVIDERS, identify_account
from orchestrator.adapters.reaper import Gap, find_gap
from orchestrator.app.launch.ssh_access import rents
from orchestrator.app.root import App
from orchestrator.app.world import provider_context
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.plan import Plan
from orchestrator.engine.observing.recorded import RunStatus


def with_reaper(app: App, spec: LaunchSpec, plan: Plan) -> Plan:
    """Add to a plan what will end the bill of its machine if nobody looks after it.

    Raises:
        BadRequestError: nothing would.
        KedgeError: the provider doesn't tell which account it is.
    """
    if not _is_reaped(spec.provider) or not any(rents(action) for action in plan.actions):
        return plan
    return replace(plan, notes=(*plan.notes, _reaper(app, spec)))


def with_gaps(app: App, statuses: Sequence[RunStatus]) -> tuple[RunStatus, ...]:
    """Add findings to the status of runs with machines: why the timer would not end their bill."""
    describe = cache(partial(_describe_gap, app))
    return tuple(
        replace(each, findings=(*each.findings, *describe(each.record.spec.provider)))
        if each.machines and _needs_reaper(each.record.spec)
        else each
        for each in statuses
    )


def rests_on_timer(app: App, spec: LaunchSpec) -> bool:
    """Tell whether only this computer's timer would end the bill of a run's machine, if the user forgot it.

    Raises:
        BadRequestError: the user's settings can't be read.
    """
    return _needs_reaper(spec) and not _is_reaped_elsewhere(app)


def _describe_gap(app: App, provider: str) -> tuple[str, ...]:
    try:
        gap = None if _is_reaped_elsewhere(app) else _find_gap(app, provider)
    except KedgeError as err:
        return (f"it isn't known whether the timer {REAP.name} would end this machine's bill: {err.what}: {err.why}",)
    return () if gap is None else (f"nothing would end this machine's bill if you forgot it: {gap.why}; {gap.fix}",)


def _needs_reaper(spec: LaunchSpec) -> bool:
    return _is_reaped(spec.provider) and not spec.without_reaper


def _is_reaped(provider: str) -> bool:
    # A provider that kedge doesn't know was refused when its world was made.
    entry = PROVIDERS.get(provider)
    return entry is not None and entry.needs_reaper


def _is_reaped_elsewhere(app: App) -> bool:
    # It imports the job file's models, which `kedge reap` does without.
    from orchestrator.adapters.jobfile.read import is_reaped_elsewhere  # noqa: PLC0415

    return is_reaped_elsewhere(app.settings.config_file)


def _find_gap(app: App, provider: str) -> Gap | None:
    settings, sign_in = app.settings, PROVIDERS[provider].sign_in
    identify = partial(identify_account, provider, provider_context(settings, app.clock))
    variables = sign_in.variables if sign_in else ()
    return find_gap(settings.environ, settings.state_dir, provider, variables, identify, app.clock.now())


def _reaper(app: App, spec: LaunchSpec) -> str:
    """Describe it in one line."""
    settings = app.settings
    if spec.without_reaper:
        return "only you can end this machine's bill: `kedge teardown`, or `kedge reap` (--without-reaper)"
    if _is_reaped_elsewhere(app):
        return f"a reaper elsewhere ends this machine's bill, as {settings.config_file} says (`reaper: elsewhere`)"
    if (gap := _find_gap(app, spec.provider)) is not None:
        raise BadRequestError(
            f"nothing would end the bill of a forgotten machine at {spec.provider}",
            why=f"it powers itself off at its deadline, and bills on until `kedge reap` ends it; {gap.why}",
            fix=f"{gap.fix}. If a reaper runs on another computer, write `reaper: elsewhere` into "
            f"{settings.config_file}; if you end each machine yourself, say --without-reaper",
        )
    return f"the timer {REAP.name} of this computer ends this machine's bill, if both still run at that time"
