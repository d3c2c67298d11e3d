"""The command that ends what runs have left: reap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.app.reaping import Overview
    from orchestrator.app.root import App
    from orchestrator.core.policy.findings import Finding

_ROUNDS = 3
"""A round that corrects the ledger may reveal more: a machine has ended by itself, so its run is over."""


@command("reap")
def reap(
    _context: Context,
    *,
    provider: str | None,
    all: bool,  # noqa: A002 - the flag's name
    dry_run: bool,
    yes: bool,
    install: bool,
    uninstall: bool,
    json: bool,
) -> None:
    """End what runs have left behind, at every provider.

    It ends machines that are past their deadline or whose run is closed, and machines whose command is over if they
    can't end themselves. It removes what else a run leaves when it is over. Working runs are left alone.

    It searches all providers for which it finds credentials, in all regions, by tags and by the ledger. It exits with 5
    if something may still bill that belongs to no live run.

    Examples:
      kedge reap --dry-run
      kedge reap
      kedge reap --provider do --all --yes
      kedge reap --install
    """
    from orchestrator.app.root import App
    from orchestrator.core.errors import BadRequestError

    if install or uninstall:
        _change_timer(App(), install=install)
        return
    names = [name.strip() for name in (provider or "").split(",") if name.strip()]
    if provider is not None and not names:
        # The schedule's variable isn't set: its rounds would look at nothing, and succeed.
        raise BadRequestError("--provider names no provider", fix="name some: --provider do,lambda; or leave it out")
    reap_until_clean(App(), names, everyone=all, dry_run=dry_run, yes=yes, as_json=json)


def _change_timer(app: App, *, install: bool) -> None:
    from orchestrator.app.reaping import install_reaper, remove_reaper
    from orchestrator.cli.drawing import render

    render.said(install_reaper(app) if install else remove_reaper(app))


def reap_until_clean(
    app: App, providers: list[str], *, everyone: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Survey, show, ask, end, and survey again; only what could be queried is reported as clean.

    Raises:
        BadRequestError: it needs a confirmation that the user didn't give.
        StillBillingError: something may still bill.
    """
    from orchestrator.app.reaping import leave_stamps, look_everywhere, reap_all
    from orchestrator.cli.drawing import render
    from orchestrator.cli.terminal.ask import confirm

    done: list[Finding] = []
    failures: tuple[str, ...] = ()
    found = look_everywhere(app, providers, everyone=everyone)
    _show(found, as_json=as_json)
    for _round in range(0 if dry_run else _ROUNDS):
        if failures or not found.acts:
            break
        confirm("Go ahead?", yes=yes)
        failures = reap_all(app, found.acts, render.problem)
        done += [finding for reaping in found.acts for finding in reaping.findings]
        found = look_everywhere(app, providers, everyone=everyone)
        if found.findings:
            _show(found, as_json=as_json)
    # Last, because a failure to write the stamp must not keep a machine from its end.
    leave_stamps(app, found, render.problem)
    _conclude(found, done, failures, as_json=as_json)


def _show(found: Overview, *, as_json: bool) -> None:
    """Print what was found, and what couldn't be queried."""
    from orchestrator.cli.drawing import render
    from orchestrator.cli.terminal.table import Table

    columns = ("", "what", "run of", "provider", "region", "age", "price/h", "why")
    table = Table(*columns, names=("what", "provider", "region"))
    for finding in found.findings:
        table.add_row(*_row(finding))
    if found.findings:
        table.print(stderr=as_json)
    for unseen in found.unseen:
        extent = "could be queried only in part" if unseen.partly else "was not queried"
        render.problem(f"! {unseen.provider} {extent}: {unseen.why}")


def _row(finding: Finding) -> tuple[str, ...]:
    from orchestrator.core.policy.findings import Step
    from orchestrator.core.values.units import format_duration, format_usd

    signs = {Step.END: "-", Step.RELEASE: "-", Step.SETTLE: "~", Step.LEAVE: "!"}
    return (
        signs[finding.step],
        finding.what,
        "this computer" if finding.own else "another",
        finding.provider,
        finding.region or "-",
        format_duration(finding.age) if finding.age is not None else "-",
        format_usd(finding.usd_per_hour) if finding.bills else "-",
        finding.why,
    )


def _conclude(found: Overview, done: list[Finding], failures: tuple[str, ...], *, as_json: bool) -> None:
    from orchestrator.cli.drawing import render
    from orchestrator.core.errors import StillBillingError

    for failure in failures:
        render.problem(f"! {failure}")
    if as_json:
        render.print_json(_as_data(found, done, failures))
    elif not (found.billing or failures):
        _say_clean(found)
    if found.billing or failures:
        raise StillBillingError(
            "something may still be billing",
            why=", ".join(found.billing) or "; ".join(failures),
            fix="`kedge reap` ends what can be ended; fix what it marks with !, then run it again",
        )


def _say_clean(found: Overview) -> None:
    from orchestrator.cli.drawing import render
    from orchestrator.core.values.units import format_usd

    for provider, left in found.kept:
        render.said(f"  kept at {provider}: {left.kind} {left.name}, {format_usd(left.usd_per_hour)}/h")
    if found.findings:
        render.said("None of this bills.")
    else:
        where = " at the providers that were queried" if found.unseen else ""
        render.said(f"Nothing bills except live runs{where}.")


def _as_data(found: Overview, done: list[Finding], failures: tuple[str, ...]) -> dict[str, Any]:
    return {
        "reaped": done,
        "left": found.findings,
        "kept": [{"provider": provider, "thing": left} for provider, left in found.kept],
        "unseen": found.unseen,
        "failed": failures,
        "billing": found.billing,
    }
