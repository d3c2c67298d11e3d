"""The command that sets up a cloud account once: bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.account.changes import Change
    from orchestrator.adapters.providers.aws.account.plan import AccountChange
    from orchestrator.adapters.providers.aws.account_removal import AccountRemoval
    from orchestrator.app.account import AccountLevel


@command("bootstrap")
def bootstrap(  # noqa: PLR0913 - one parameter for each flag
    _context: Context,
    *,
    provider: str | None,
    region: str | None,
    bucket: str | None,
    read_bucket: list[str],
    run_role: bool,
    budget_usd: str | None,
    email: str | None,
    remove: bool,
    delete_data: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Set up a cloud account for kedge, once.

    It makes a private bucket, a boundary for what runs may do, and a role that ends machines. Run it again to update
    them; if they are up to date, it does nothing.

    Examples:
      kedge bootstrap --provider aws
      kedge bootstrap --provider aws --budget-usd 50 --email you@example.org
      kedge bootstrap --provider aws --read-bucket my-data --read-bucket more-data
      kedge bootstrap --provider aws --run-role
      kedge bootstrap --provider aws --remove --delete-data
    """
    from orchestrator.adapters.host.settings import read_settings
    from orchestrator.app.account import AccountLevel, read_requirements
    from orchestrator.core.errors import BadRequestError

    if delete_data and not remove:
        raise BadRequestError("--delete-data works only with --remove", fix="give both: --remove --delete-data")
    requirements = read_requirements(
        bucket=bucket, read_buckets=read_bucket, run_role=run_role, budget_usd=budget_usd, email=email
    )
    settings = read_settings()
    level = AccountLevel(provider or settings.provider, region, settings)
    if remove:
        _remove(level, delete_data=delete_data, dry_run=dry_run, yes=yes, as_json=json)
        return
    with level.planned(requirements) as change:
        _apply(level, change, dry_run=dry_run, yes=yes, as_json=json)


def _apply(level: AccountLevel, change: AccountChange, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Show the changes, ask, apply them, and print the result."""
    from orchestrator.cli.terminal.ask import confirm

    _show(change, change.changes, as_json=as_json)
    done: dict[str, Any] = {}
    if change.changes and not dry_run:
        confirm("Go ahead?", yes=yes)
        _say("CloudFormation is at work; this takes about a minute.", as_json=as_json)
        account = level.apply(change)
        done = {
            "bucket": account.bucket,
            "read_buckets": list(account.read_buckets),
            "boundary_arn": account.boundary_arn,
            "scheduler_role_arn": account.scheduler_role_arn,
            "shared_role": account.shared_role,
        }
        _say(f"Done. Bucket: {account.bucket}", as_json=as_json)
    _conclude(change, change.changes, done=bool(done), as_json=as_json, **done)


def _remove(level: AccountLevel, *, delete_data: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Show what is removed and what stays, ask, and remove it."""
    from orchestrator.cli.terminal.ask import confirm

    removal = level.plan_removal()
    changes = removal.changes(delete_data=delete_data) if removal is not None else ()
    notes = removal.notes if removal is not None else ()
    _show(removal, changes, as_json=as_json)
    for note in notes:
        _say(f"! {note}", as_json=as_json)
    wanted = removal is not None and any(change.sign == "-" for change in changes)
    if removal is not None and wanted and not dry_run:
        confirm("Remove it?", yes=yes)
        level.remove(removal, delete_data=delete_data)
        _say("Gone.", as_json=as_json)
    _conclude(removal, changes, done=wanted and not dry_run, as_json=as_json, notes=notes)


def _show(planned: AccountChange | AccountRemoval | None, changes: Sequence[Change], *, as_json: bool) -> None:
    from orchestrator.cli.drawing.plans import print_signed
    from orchestrator.cli.terminal.console import make_console

    console = make_console(stderr=as_json)
    if planned is not None:
        console.print(f"AWS account {planned.account_id}, {planned.region}", markup=False)
    for change in changes:
        print_signed(console, change.sign, change.says)
    if not changes:
        console.print("nothing to do", markup=False)


def _say(text: str, *, as_json: bool) -> None:
    from orchestrator.cli.terminal.console import make_console

    make_console(stderr=as_json).print(text, markup=False)


def _conclude(
    planned: AccountChange | AccountRemoval | None,
    changes: Sequence[Change],
    *,
    done: bool,
    as_json: bool,
    **more: object,
) -> None:
    from orchestrator.cli.drawing.render import print_json

    if as_json:
        where = {} if planned is None else {"account": planned.account_id, "region": planned.region}
        print_json({"provider": "aws", **where, "actions": list(changes), "done": done, **more})
