"""Sweeps an account: lists everything with kedge's marks, in every place.

Each kind of resource has its own listing. At a regional cloud, a listing that fails doesn't hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.listing import group_unlisted, map_all, read_unlisted, recognise
from orchestrator.adapters.cloud.model import UNDATED, Instance, Phase, Wanted
from orchestrator.adapters.cloud.volumes.end import leftover_of
from orchestrator.core.errors import KedgeError
from orchestrator.core.sweep import Leftover, Sweep, UnseenPart

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.api import AnyCloudApi, InstanceSource, Look
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.records import MachineRecord

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """The result of one or more looks.

    Attributes:
        unseen: what couldn't be listed.
    """

    instances: tuple[Instance, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()


def sweep_account(ctx: CloudContext) -> Sweep:
    """List everything with kedge's marks, and remember the places: this command looks there for what it ends.

    Raises:
        BadRequestError: there are no credentials.
        KedgeError: the cloud doesn't list its regions or, if one query covers the account, anything else.
    """
    known = ctx.known_places()
    records = list(ctx.records.machines())
    found = _look_everywhere(ctx.api, known)
    unlisted = group_unlisted(records, found.instances)
    looks = [_Look(partial(_unlisted_instances, ctx, there, region), region) for region, there in unlisted.items()]
    found = _join([found, _look_at_once(ctx.api, known, looks)])
    instances = recognise(found.instances, records)
    places = [(each.run_id, each.region) for each in instances]
    places += [(each.run_id, each.region) for each in found.leftovers]
    for run_id, place in places:
        ctx.swept.setdefault(run_id, set()).update({place} - {""})
    return Sweep(
        machines=tuple(map_all(ctx, instances)),
        leftovers=(*_nameless(ctx, instances), *found.leftovers),
        unseen=found.unseen,
    )


def find_machines(api: InstanceSource, known: Collection[str]) -> LookResult:
    """List machines only, by their marks.

    Args:
        api: the account's instances.
        known: places in records or configuration: if one of them is closed to the account, it may still bill; other
            closed places can't.

    Raises:
        KedgeError: as `sweep_account`.
    """
    return _look_at_once(api, known, [_at_instances(api, place) for place in _all_places(api, known)])


def _look_everywhere(api: AnyCloudApi, known: Collection[str]) -> LookResult:
    places = _all_places(api, known)
    looks = [_as_look(each) for each in api.looks(places)]
    for place in places:
        looks.append(_at_instances(api, place))
        if api.volumes is not None:
            looks.append(_Look(partial(_volume_leftovers, api, place), place))
        if api.guard is not None:
            looks.append(_Look(partial(_guard_leftovers, api, place), place, may_bill=False))
    return _look_at_once(api, known, looks)


def _all_places(api: InstanceSource, known: Collection[str]) -> Sequence[str]:
    return sorted({*api.every_place(), *known}) if api.traits.is_regional else [""]


@dataclass(frozen=True, slots=True)
class _Look:
    """One query of the sweep; see `api.Look`."""

    see: Callable[[], LookResult]
    place: str = ""
    may_bill: bool = True


def _as_look(look: Look) -> _Look:
    return _Look(lambda: LookResult(leftovers=tuple(look.see())), look.place, look.may_bill)


def _at_instances(api: InstanceSource, place: str) -> _Look:
    return _Look(lambda: LookResult(instances=tuple(api.list_instances(Wanted(), {place}))), place)


def _unlisted_instances(ctx: CloudContext, records: Mapping[str, MachineRecord], region: str) -> LookResult:
    return LookResult(instances=tuple(read_unlisted(ctx, records, region)))


def _look_at_once(api: InstanceSource, known: Collection[str], looks: Iterable[_Look]) -> LookResult:
    look = partial(_look, api, known)
    if not api.traits.is_regional:
        return _join([look(each) for each in looks])
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return _join(list(pool.map(look, looks)))


def _look(api: InstanceSource, known: Collection[str], look: _Look) -> LookResult:
    try:
        return look.see()
    except KedgeError as err:
        if not api.traits.is_regional:
            raise
        if look.place and look.place not in known and (closed := api.why_closed(err)):
            what = f"{look.place} {closed}, and this computer has no record of anything there"
            return LookResult(unseen=(UnseenPart(what=what, may_bill=False),))
        return LookResult(unseen=(UnseenPart(what=f"{err.what}: {err.why}", may_bill=look.may_bill),))


def _join(found: Sequence[LookResult]) -> LookResult:
    return LookResult(
        instances=tuple(each for part in found for each in part.instances),
        leftovers=tuple(each for part in found for each in part.leftovers),
        # A closed place fails every look in the same way: report it once.
        unseen=tuple(dict.fromkeys(line for part in found for line in part.unseen)),
    )


def _volume_leftovers(api: AnyCloudApi, place: str) -> LookResult:
    volumes = api.volumes.list_all(place) if api.volumes is not None else ()
    return LookResult(leftovers=tuple(leftover_of(each) for each in volumes))


def _guard_leftovers(api: AnyCloudApi, place: str) -> LookResult:
    if api.guard is None:
        return LookResult()
    noun = api.guard.noun
    return LookResult(
        leftovers=tuple(
            Leftover(kind=noun, name=name, run_id=machine_id.rpartition("-m")[0], region=place)
            for name, machine_id in api.guard.list_machines(place)
        )
    )


def _nameless(ctx: CloudContext, instances: Iterable[Instance]) -> Iterable[Leftover]:
    """List instances with kedge's marks that aren't gone and name no machine: they bill without being managed."""
    for each in instances:
        if not each.machine_id and each.phase is not Phase.GONE:
            yield Leftover(
                kind=ctx.traits.noun,
                name=each.id,
                # Even if it names a run: which of the run's machines it is, or was, is unknown.
                run_id="",
                region=each.region,
                created_at=each.created_at if each.created_at != UNDATED else None,
                usd_per_hour=max(each.usd_per_hour, each.list_usd_per_hour),
            )
