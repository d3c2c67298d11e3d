"""Ends a machine for good: only a deletion that the API confirms counts, and a powered-off droplet goes on billing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.addresses import release_addresses, reserved_addresses
from orchestrator.adapters.providers.digitalocean.deleting import GONE_IN, delete_until_gone
from orchestrator.adapters.providers.digitalocean.droplets import Droplet, droplets_of_machine, read_recorded
from orchestrator.adapters.providers.digitalocean.failures import ApiError
from orchestrator.adapters.providers.digitalocean.view import SETTLES_IN
from orchestrator.core.errors import StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord
    from orchestrator.adapters.providers.digitalocean.tools import Tools


def end_machine(tools: Tools, machine_id: str) -> None:
    """Delete every droplet that carries a machine's id, and give back the addresses that they have.

    Raises:
        StillBillingError: the droplets are deleted, and an address can't be given back, or not be looked for.
        ApiError: the API doesn't tell, or doesn't delete.
    """
    record = tools.records.machine(machine_id)
    ids = {droplet.id for droplet in droplets_of_machine(tools.api, machine_id)}
    if not ids:
        # That there is none is true only in its own account.
        tools.refuse_other_account_of(record)
    if record is not None:
        ids |= {record.droplet_id} - {0}
    if not ids:
        return
    left, unseen = _release_first(tools.api, ids)
    shown = [each for each in sorted(ids) if not end_droplet(tools, each, record)]
    if record is not None:
        tools.records.keep_machine(replace(record, ended=True))
    if shown:
        raise still_shown(machine_id, shown)
    still = release_addresses(tools.api, left)
    if still or unseen:
        raise StillBillingError(
            f"machine {machine_id} is deleted, and its reserved address isn't given back",
            why=unseen or f"{', '.join(still)} can't be released yet",
            fix="release what you reserved for it in the control panel: kedge can't tell any more whose it was",
        )


def end_droplet(tools: Tools, droplet_id: int, record: MachineRecord | None) -> bool:
    """Delete one droplet until the API shows it no longer; False where it still does after some minutes.

    Args:
        tools: the way to the API.
        droplet_id: the droplet.
        record: of its machine, which tells how young it is.

    Raises:
        ApiError: the API doesn't delete it.
    """
    return delete_until_gone(tools.api, tools.clock, droplet_id, lambda: not _is_young(tools, droplet_id, record))


def still_shown(machine_id: str, droplet_ids: Iterable[int]) -> StillBillingError:
    """Make the error for droplets that are shown minutes after their deletion was accepted."""
    minutes = GONE_IN / timedelta(minutes=1)
    return StillBillingError(
        f"machine {machine_id} may still be billing",
        why=f"the API still shows droplet {', '.join(map(str, droplet_ids))}, {minutes:.0f} minutes after its deletion",
        fix="run `kedge teardown` again in some minutes; look at the control panel",
    )


def find_droplet(tools: Tools, machine_id: str, record: MachineRecord | None) -> Droplet | None:
    """Find a machine's droplet; None where the API knows none by its id, and lists none with its tag.

    Raises:
        ApiError: the API doesn't tell.
    """
    known = read_recorded(tools.api, record)
    if known is not None:
        return known
    found = droplets_of_machine(tools.api, machine_id)
    return found[0] if found else None


def _release_first(api: Api, droplet_ids: Collection[int]) -> tuple[list[str], str]:
    """Give addresses back while the API still says whose they are.

    Returns:
        Those that can't be yet, and why nobody could look: a droplet, which costs more, is deleted all the same.
    """
    try:
        return release_addresses(api, reserved_addresses(api, droplet_ids)), ""
    except ApiError as err:
        return [], f"{err.what}: {err.why}"


def _is_young(tools: Tools, droplet_id: int, record: MachineRecord | None) -> bool:
    if record is None or record.droplet_id != droplet_id:
        return False
    return tools.clock.now() - record.young_from <= SETTLES_IN
