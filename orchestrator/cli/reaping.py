"""The task that ends what is left of runs: reap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.tasks import task

if TYPE_CHECKING:
    from orchestrator.app.reaping import Overview
    from orchestrator.app.root import App
    from orchestrator.core.reaping import Finding

_ROUNDS = 3
"""Settling the ledger may show more: that the run of a machine that ended by itself is over."""


@task(
    help={
        "provider": "look at these only, separated by commas, and insist on their answer",
        "all": "end machines of other computers' runs, too, once they are past their deadline",
        "dry-run": "print what would be ended and do nothing",
        "yes": "don't ask",
        "json": "print one JSON document for scripts; the table goes to standard error",
    },
    auto_shortflags=False,
)
def reap(
    _context: Context,
    provider: str | None = None,
    all: bool = False,  # noqa: A002 - the flag's name
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """End what runs have left behind, at every provider.

    That is machines past their deadline or without a run, and what runs that are over still have. Looks at every
    provider whose credentials are there, in all regions, by tags and by the ledger. A run that is at work is left
    alone. Exits 5 while anything may bill that no live run accounts for.

    Examples:
      kedge reap --dry-run
      kedge reap
      kedge reap --provider do --all --yes
    """
    from orchestrator.app.root import App

    names = [name.strip() for name in (provider or "").split(",") if name.strip()]
    reap_until_clean(App(), names, everyone=all, dry_run=dry_run, yes=yes, as_json=json)


def reap_until_clean(
    app: App, providers: list[str], *, everyone: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Look, show, ask, end, and look again; clean is said only of what was looked at.

    Raises:
        BadRequestError: it needs a yes that nobody gave.
        StillBillingError: something may still bill.
    """
    from orchestrator.app.reaping import look_everywhere, reap_all
    from orchestrator.cli import render
    from orchestrator.cli.ask import confirm

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
    _conclude(found, done, failures, as_json=as_json)


def _show(found: Overview, *, as_json: bool) -> None:
    """Print what was found, and what couldn't be looked at."""
    from orchestrator.cli import render
    from orchestrator.cli.table import Table

    columns = ("", "what", "run of", "provider", "region", "age", "price/h", "why")
    table = Table(*columns, names=("what", "provider", "region"))
    for finding in found.findings:
        table.add_row(*_row(finding))
    if found.findings:
        table.print(stderr=as_json)
    for unseen in found.unseen:
        extent = "could not be seen as a whole" if unseen.partly else "was not looked at"
        render.problem(f"! {unseen.provider} {extent}: {unseen.why}")


def _row(finding: Finding) -> tuple[str, ...]:
    from orchestrator.core.reaping import Step
    from orchestrator.core.units import format_duration, format_usd

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
    from orchestrator.cli import render
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
            fix="`kedge reap` ends what can be ended; mend what it marks with !, then run it again",
        )


def _say_clean(found: Overview) -> None:
    from orchestrator.cli import render
    from orchestrator.core.units import format_usd

    for provider, left in found.kept:
        render.said(f"  kept at {provider}: {left.kind} {left.name}, {format_usd(left.usd_per_hour)}/h")
    if found.findings:
        render.said("Nothing of this bills.")
    else:
        where = " at the providers that were looked at" if found.unseen else ""
        render.said(f"Nothing bills but live runs{where}.")


def _as_data(found: Overview, done: list[Finding], failures: tuple[str, ...]) -> dict[str, Any]:
    return {
        "reaped": done,
        "left": found.findings,
        "kept": [{"provider": provider, "thing": left} for provider, left in found.kept],
        "unseen": found.unseen,
        "failed": failures,
        "billing": found.billing,
    }
