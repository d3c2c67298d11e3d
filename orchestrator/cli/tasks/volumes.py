"""The command for data volumes: volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.app.root import App
    from orchestrator.app.volumes import DataVolume, VolumeList

_HOURS_PER_MONTH = 730


@command("volumes")
def volumes(
    _context: Context, *, provider: str | None, delete: str | None, dry_run: bool, yes: bool, json: bool
) -> None:
    """List the data volumes of all runs, or delete one.

    A volume outlives its runs, unless the job says otherwise, and bills until it is deleted. It searches all providers
    for which it finds credentials, in all regions.

    Examples:
      kedge volumes
      kedge volumes --delete imagenet
      kedge volumes --delete vol-0abc --yes
    """
    from orchestrator.app.root import App
    from orchestrator.app.volumes import list_volumes, require_over
    from orchestrator.cli.drawing import render
    from orchestrator.core.errors import BadRequestError

    if dry_run and not delete:
        raise BadRequestError(
            "--dry-run has nothing to leave out", fix="`kedge volumes` only looks; name one: --delete"
        )
    app = App()
    names = [name.strip() for name in (provider or "").split(",") if name.strip()]
    found = list_volumes(app, names)
    chosen = (found.choose(delete),) if delete else ()
    for volume in chosen:
        require_over(app.ledger, volume)
    _show(chosen or found.volumes, app, as_json=json)
    deleted = () if dry_run else chosen
    for volume in deleted:
        _delete(app, volume, yes=yes)
    if json:
        deleted_ids = [volume.id for volume in deleted]
        render.print_json({"volumes": found.volumes, "deleted": deleted_ids, "unseen": found.unseen})
    else:
        _say(found, deleted)
    _require_seen(found)


def _show(shown: Sequence[DataVolume], app: App, *, as_json: bool) -> None:
    from orchestrator.cli.terminal.table import Table
    from orchestrator.core.values.units import format_duration, format_usd

    columns = ("volume", "id", "provider", "region", "age", "price/month", "last run", "at its end")
    table = Table(*columns, names=("volume", "id", "provider", "region", "last run"))
    for volume in shown:
        table.add_row(
            volume.name,
            volume.id,
            volume.provider,
            volume.region or "-",
            format_duration(app.clock.now() - volume.created_at) if volume.created_at else "-",
            format_usd(volume.usd_per_hour * _HOURS_PER_MONTH),
            volume.run_id or "-",
            "kept" if volume.kept else "ended",
        )
    if shown:
        table.print(stderr=as_json)


def _delete(app: App, volume: DataVolume, *, yes: bool) -> None:
    from orchestrator.app.volumes import delete_volume
    from orchestrator.cli.terminal.ask import confirm

    confirm(f"Delete {volume.described}, with everything that is on it?", yes=yes)
    delete_volume(app, volume)


def _say(found: VolumeList, deleted: Sequence[DataVolume]) -> None:
    from orchestrator.cli.drawing import render

    for volume in deleted:
        render.said(f"Deleted data volume {volume.name} ({volume.id}).")
    if not found.volumes:
        render.said(f"There are no data volumes{' at the providers that were queried' if found.unseen else ''}.")


def _require_seen(found: VolumeList) -> None:
    """Report what could not be queried.

    Raises:
        StillBillingError: there may be volumes.
    """
    from orchestrator.cli.drawing import render
    from orchestrator.core.errors import StillBillingError

    for unseen in found.unseen:
        extent = "could be queried only in part" if unseen.partly else "was not queried"
        render.problem(f"! {unseen.provider} {extent}: {unseen.why}")
    if silent := [unseen.provider for unseen in found.unseen if unseen.matters]:
        raise StillBillingError(
            "there may be other data volumes",
            why=f"not everything could be queried: {', '.join(dict.fromkeys(silent))}",
            fix="see what is wrong there with `kedge doctor`, then run it again",
        )
