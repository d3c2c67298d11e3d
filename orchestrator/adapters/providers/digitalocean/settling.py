"""What an order has become: found by its tag, once, and known to this laptop."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.digitalocean.deleting import delete_until_gone
from orchestrator.adapters.providers.digitalocean.droplets import Droplet, droplets_of_machine, read_recorded
from orchestrator.adapters.providers.digitalocean.projects import join_project
from orchestrator.adapters.providers.digitalocean.view import SETTLES_IN, UNCLEAR_FOR, may_exist
from orchestrator.adapters.providers.digitalocean.volumes import known_volumes, use_volumes
from orchestrator.core.errors import StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord
    from orchestrator.adapters.providers.digitalocean.tools import Tools

_log = logging.getLogger(__name__)


def settle_twins(tools: Tools, machine_id: str, made: Droplet | None = None) -> Droplet | None:
    """Find a machine's droplet; of several, which two computers have made at once, all but the oldest are deleted.

    Args:
        tools: the way to the API.
        machine_id: the machine.
        made: a droplet that was made just now. Once it is listed, so is every older one: as long is waited, unless
            an older one is there before.

    Raises:
        ApiError: the API doesn't tell, or doesn't delete one.
    """
    found: list[Droplet] = []

    def is_listed() -> bool:
        found[:] = droplets_of_machine(tools.api, machine_id)
        return made is None or any(each.id <= made.id for each in found)

    wait_until(tools.clock, SETTLES_IN, is_listed)
    there: dict[int, Droplet] = {each.id: each for each in (*found, *((made,) if made else ()))}
    if not there:
        return None
    oldest, *twins = sorted(there)
    for twin in twins:
        _log.warning("machine %s was made twice: droplet %s is deleted", machine_id, twin)
        _delete_twin(tools, there[twin], is_listed=any(each.id == twin for each in found))
    return there[oldest]


def find_earlier(tools: Tools, machine_id: str, earlier: MachineRecord | None) -> Droplet | None:
    """Find what an earlier command, or another computer, has made: the API may list it only a while after.

    Raises:
        ApiError: the API doesn't tell.
    """
    found: list[Droplet] = []

    def is_settled() -> bool:
        there = settle_twins(tools, machine_id) or read_recorded(tools.api, earlier)
        found[:] = [there] if there else []
        return bool(found) or earlier is None or earlier.ended or tools.clock.now() - earlier.young_from > SETTLES_IN

    wait_until(tools.clock, SETTLES_IN, is_settled)
    return found[0] if found else None


def complete_droplet(tools: Tools, droplet: Droplet) -> None:
    """Do what its creation would have done next: note its id, and that its run has its volumes now.

    Raises:
        ApiError: the API doesn't allow it.
    """
    record = note_droplet(tools, droplet)
    if record is None:
        return
    use_volumes(tools.api, record.run_id, known_volumes(tools.api, record.volumes))
    join_project(tools.api, tools.records.run(record.run_id).project, droplet.id)


def note_droplet(tools: Tools, droplet: Droplet) -> MachineRecord | None:
    """Note which droplet an order of this computer has become; None for somebody else's."""
    record = tools.records.machine(droplet.machine_id)
    if record is None or record.attempt != droplet.order.attempt:
        return None
    if record.droplet_id != droplet.id or record.unclear_since is not None:
        record = replace(record, droplet_id=droplet.id, unclear_since=None, noted_at=tools.clock.now())
        tools.records.keep_machine(record)
    return record


def refuse_unclear(tools: Tools, run_id: str) -> None:
    """Refuse to make a machine while another of the run, or this very one, may have been made.

    Raises:
        StillBillingError: one may have been.
        ApiError: the API doesn't tell.
    """
    for record in tools.records.machines():
        if record.run_id != run_id or record.unclear_since is None or not may_exist(record, tools.clock.now()):
            continue
        if not droplets_of_machine(tools.api, record.id):
            raise unclear_error(record, "no request for it was answered")


def unclear_error(record: MachineRecord, cause: str) -> StillBillingError:
    """Make the error for an order of which nobody can tell whether it was filled."""
    minutes = UNCLEAR_FOR / timedelta(minutes=1)
    return StillBillingError(
        f"machine {record.id} may have been created",
        why=f"the API didn't answer clearly ({cause}), and lists no such droplet so far",
        fix=f"run `kedge teardown {record.run_id}`, which looks again; it counts as billing for {minutes:.0f} minutes",
    )


def _delete_twin(tools: Tools, twin: Droplet, *, is_listed: bool) -> None:
    """Delete one that may be too young for the API to know it by its id, or that its own maker has just deleted."""
    begun = tools.clock.now()

    def is_settled() -> bool:
        if not is_listed:
            return tools.clock.now() - begun > SETTLES_IN
        return all(each.id != twin.id for each in droplets_of_machine(tools.api, twin.machine_id))

    if not delete_until_gone(tools.api, tools.clock, twin.id, is_settled):
        _log.warning("droplet %s is still shown after its deletion", twin.id)
