"""Lists an account's machines: those that its cloud lists, and those known only by this computer's records."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.machine_mapping import map_instance, map_unlisted
from orchestrator.adapters.cloud.model import CreationStatus, Instance, Phase, Wanted, identify, is_made_by, present
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineState

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.core.machine import Machine

_log = logging.getLogger(__name__)


def find_all(ctx: CloudContext, wanted: Wanted, places: Collection[str]) -> list[Instance]:
    """List a run's instances, or all: by their marks, and this computer's by their ids if the marks are gone.

    Raises:
        KedgeError: a place doesn't answer. What may be billing there is never silently left out: if a place with a
            record is closed to the account, every listing fails until it answers again.
    """
    records = [each for each in ctx.records.machines() if wanted.run_id in ("", each.run_id)]
    listed = recognise(ctx.api.list_instances(wanted, places), records)
    unmarked = group_unlisted(records, listed)
    return [*listed, *(each for region, there in unmarked.items() for each in read_unlisted(ctx, there, region))]


def recognise(listed: Iterable[Instance], records: Iterable[MachineRecord]) -> list[Instance]:
    """Restore the marks of instances whose ids are in this computer's records, whatever their tags say now."""
    by_id = {each.provider_id: each for each in records if each.provider_id}
    return [identify(each, by_id[each.id]) if each.id in by_id else each for each in listed]


def group_unlisted(records: Iterable[MachineRecord], listed: Iterable[Instance]) -> dict[str, dict[str, MachineRecord]]:
    """Return the records whose instances are missing from a listing: region -> instance id -> record."""
    shown = {each.id for each in listed}
    missing: dict[str, dict[str, MachineRecord]] = defaultdict(dict)
    for record in records:
        if record.provider_id and record.provider_id not in shown:
            missing[record.region][record.provider_id] = record
    return dict(sorted(missing.items()))


def read_unlisted(ctx: CloudContext, records: Mapping[str, MachineRecord], region: str) -> list[Instance]:
    """Look up the instances of one region's records by their ids, whatever their marks are now.

    Raises:
        KedgeError: the region doesn't answer.
    """
    return [identify(each, records[each.id]) for each in ctx.api.read_instances(sorted(records), region)]


def map_all(ctx: CloudContext, found: Sequence[Instance]) -> list[Machine]:
    """Map instances to machines, without those that lack a mark, and add the requested machines that aren't listed."""
    machines = [map_listed(ctx, each) for each in _one_each(ctx, present(found)) if each.machine_id]
    fold = str.lower if ctx.traits.folds_case else str
    shown = {fold(machine.id) for machine in machines}
    unlisted = (
        map_missing(ctx, each)
        for each in ctx.records.machines()
        if fold(each.id) not in shown and not ctx.is_settled(each, found)
    )
    return [*machines, *filter(None, unlisted)]


def map_listed(ctx: CloudContext, instance: Instance) -> Machine:
    """Map an instance; if its creation has failed, it is ENDING: it never boots, and bills until it is deleted."""
    record = ctx.records.machine(instance.machine_id)
    seen = map_instance(ctx.traits, instance, record, ctx.key_file)
    may_fail = record is not None and instance.phase is Phase.PENDING and is_made_by(instance, record)
    return _end_failed(ctx, seen, record) if may_fail and record is not None else seen


def map_missing(ctx: CloudContext, record: MachineRecord) -> Machine | None:
    """Describe a machine that its cloud doesn't list; None once the cloud would have listed it."""
    seen = map_unlisted(ctx.traits, record, ctx.clock.now())
    return _end_failed(ctx, seen, record) if seen is not None and record.provider_id else seen


def _one_each(ctx: CloudContext, instances: Iterable[Instance]) -> list[Instance]:
    """Keep the oldest instance of each machine, if the cloud can have duplicates; a later look deletes the others."""
    if not ctx.idempotency.settles_duplicates:
        return list(instances)
    first: dict[str, Instance] = {}
    for each in instances:
        first.setdefault(each.machine_id, each)
    return list(first.values())


def _end_failed(ctx: CloudContext, seen: Machine, record: MachineRecord) -> Machine:
    if seen.state is not MachineState.BOOTING:
        return seen
    try:
        status = ctx.api.creation_status(seen.provider_id, record.region, record.action)
    except KedgeError as err:
        # This only reads: neither missing permissions nor a timeout may end a machine.
        _log.warning("%s: %s", err.what, err.why)
        return seen
    return replace(seen, state=MachineState.ENDING) if status is CreationStatus.FAILED else seen
