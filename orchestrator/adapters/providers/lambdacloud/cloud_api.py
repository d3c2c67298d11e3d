"""Launches, lists and terminates the instances of one account; implements `adapters.cloud.api.CloudApi`."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.api import CloudApi, Traits
from orchestrator.adapters.cloud.boot.cloud_config import DiskNames
from orchestrator.adapters.cloud.boot.user_data import BootFormat
from orchestrator.adapters.cloud.idempotency import MarkAndLookUp
from orchestrator.adapters.cloud.model import UNDATED, Chosen, Deletion, Draft, Instance, Made, Outcome, Phase, Wanted
from orchestrator.adapters.cloud.refusals import Reaction, Refusal, Refused, Unclear, find_refusal
from orchestrator.adapters.host.ids import fit, is_id
from orchestrator.adapters.providers.lambdacloud.api import KEY_NAME, MISSING, Api, Listed, Region, Tag
from orchestrator.adapters.providers.lambdacloud.offers import SHORTEST, X86
from orchestrator.adapters.rest.failures import RefusedError, UnclearError
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DEFAULT_TIME_LIMIT
from orchestrator.core.machine import EndedBy, MachineEnd

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.model import Marks
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.providers.lambdacloud.run_resources import LambdaResources
    from orchestrator.core.machine import MachineOrder

TRAITS = Traits(
    name="lambda",
    speaker="Lambda",
    noun="instance",
    account_noun="another Lambda account",
    other_account_fix=f"run the command again with {KEY_NAME} set to a key of the account that it was made in",
    idempotency=MarkAndLookUp(),
    boot=BootFormat(
        # The smaller of the two meanings of 1 MB. fact: lambda-user-data-limit.
        most_bytes=1_000_000,
        # A machine has one disk, the root disk.
        disks=DiskNames(volume_model="", local=""),
        says="Lambda allows",
    ),
    # Lambda doesn't promise when an instance is listed: other tools poll for ten minutes. fact: lambda-listed-late.
    settles_in=timedelta(minutes=2),
    looked_up_for=timedelta(minutes=5),
    unclear_for=timedelta(minutes=15),
    # A terminating instance no longer bills; how long it terminates isn't documented.
    shown_for=timedelta(minutes=10),
    id_first=True,
    folds_case=True,
    billed_for_at_least=lambda _gpus: SHORTEST,
)

REFUSALS = (
    Refusal(
        codes=("instance-operations/launch/insufficient-capacity",),
        meaning="there is none in this region now, even if the listing shows some",
        reaction=Reaction.NEXT_POOL,
        what="{type} isn't available in {region} now",
        remedy="try again later, or allow more regions",
        why_is_said_only=True,
    ),
    # Lambda doesn't say whether the quota is a type's, a region's or the account's.
    Refusal(
        codes=("global/quota-exceeded",),
        meaning="the account may not have so many instances",
        reaction=Reaction.NEVER_AT_ALL,
        what="the account has no room for machine {id}",
        remedy="end an instance that isn't needed, or ask Lambda's support for a higher quota",
        why_is_said_only=True,
    ),
    Refusal(
        codes=(MISSING,),
        meaning="the type, the image or the SSH key isn't known",
        reaction=Reaction.NOT_YET,
        remedy="see `kedge offers --provider lambda` for what there is, then run the command again",
        our_fault=True,
    ),
    Refusal(
        codes=("global/invalid-parameters",),
        meaning="the request can't be carried out as it is",
        reaction=Reaction.STOP,
        remedy="see `kedge offers --provider lambda`, and check the job's image and tags",
        our_fault=True,
    ),
)

# fact: lambda-alert-bills
_PHASES = {
    "booting": Phase.PENDING,
    "active": Phase.RUNNING,
    "unhealthy": Phase.RUNNING,
    "preempted": Phase.OFF,
    # It bills no more: fact: lambda-terminate-ends-billing.
    "terminating": Phase.GONE,
    "terminated": Phase.GONE,
}
_log = logging.getLogger(__name__)
_MACHINE, _RUN, _ATTEMPT = "kedge-machine", "kedge-run", "kedge-attempt"
_ASKED_AT, _LIFETIME, _PRICE = "kedge-asked-at", "kedge-lifetime", "kedge-usd-per-hour"
_SECONDS, _NUMBER, _YEARS = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{1,6}(\.[0-9]{1,30})?"), range(2020, 2100)
_NAME = re.compile(r".+-[0-9]{4}-[a-z0-9]{4}-m[0-9]+")
_FAMILIES = ("lambda-stack-24-04", "lambda-stack-22-04")
"""What boots if the job names no image, the first that there is. fact: lambda-default-images-differ."""


class LambdaCloudApi(CloudApi[str, str]):
    """One account. Its machines power themselves off, which ends no bill: no machine gets a key that could end it.

    fact: lambda-one-key-rules-all; fact: lambda-power-off-bills
    """

    traits = TRAITS

    def __init__(self, api: Api, resources: LambdaResources) -> None:
        self._api = api
        self.resources = resources

    def account_id(self) -> str:
        """Return the id of one of this computer's SSH keys in the account, as records name it; empty if it has none."""
        known = {run.account for run in self.resources.records.runs()}
        return next((each.id for each in self._api.ssh_keys() if each.id in known), "")

    def is_account(self, account: str) -> bool:
        """Tell whether a run that names the account was made with this API key, or the account has the SSH key."""
        records = self.resources.records
        own = {run.id: run.account for run in records.runs() if run.api_key == self._api.key_digest}
        named = {*own.values(), *(each.account for each in records.machines() if each.run_id in own)}
        return account in named or any(each.id == account for each in self._api.ssh_keys())

    def list_instances(self, wanted: Wanted, places: Collection[str]) -> Sequence[Instance]:  # noqa: ARG002
        """List instances by their tags, which nobody can change (fact: lambda-tags-at-launch-only).

        An instance with a name of kedge's, but without tags, is listed with all others: it bills without being managed.
        """
        own = (parse_instance(each) for each in self._api.instances() if _is_kedges(each))
        return [each for each in sorted(own, key=lambda each: each.age_order) if _is_wanted(each, wanted)]

    def read_instances(self, instance_ids: Collection[str], region: str) -> Sequence[Instance]:  # noqa: ARG002
        """Look instances up by their ids."""
        return [parse_instance(found) for each in instance_ids if (found := self._api.instance(each)) is not None]

    def choose(self, order: MachineOrder) -> Chosen[str]:
        """Find the order's image, and return its id.

        Raises:
            BadRequestError: the region has no such image.
        """
        here = [each for each in self._api.images() if each.region.name == order.region and each.architecture == X86]
        newest_last = sorted(here, key=lambda each: each.created_time)
        ids = {each.family: each.id for each in newest_last} | {each.id: each.id for each in here}
        wanted = (order.image_id,) if order.image_id else _FAMILIES
        image = next((ids[each] for each in wanted if each in ids), None)
        if image is None:
            raise BadRequestError(
                f"lambda has no image {' or '.join(wanted)} in {order.region}",
                why=f"it has: {', '.join(sorted({each.family for each in here}))}",
                fix="name one of those, or an image's id, with --image-id",
            )
        return Chosen(gpus=order.offer.accelerators.count if order.offer.accelerators else 0, native=image)

    def send(self, draft: Draft[str, str]) -> Outcome:
        """Launch an instance, once. The answer only has its id: fact: lambda-launch-answers-an-id."""
        order = draft.order
        try:
            made = self._api.launch(f"machine {order.id} can't be created", _render(draft))
        except RefusedError as err:
            return Refused(refusal=find_refusal(REFUSALS, err.code, err.message), says=err.why, error=err, as_is=err)
        except UnclearError as err:
            return Unclear(why=err.why, error=err)
        listed = Listed(id=made, status="booting", region=Region(name=order.region), tags=_render_tags(draft.marks))
        return Made(instance=parse_instance(listed))

    def delete(self, instance_id: str, region: str) -> Deletion:  # noqa: ARG002
        """Terminate an instance that isn't terminating yet.

        fact: lambda-second-terminate; fact: lambda-not-endable-at-first; fact: lambda-terminate
        """
        seen = self._api.instance(instance_id)
        if seen is None:
            return Deletion.UNKNOWN
        if _PHASES.get(seen.status) is Phase.GONE:
            return Deletion.ACCEPTED
        try:
            return Deletion.ACCEPTED if self._api.terminate(instance_id) else Deletion.BUSY
        except (RefusedError, UnclearError) as err:
            if isinstance(err, RefusedError) and err.status not in (400, 404, 409):
                raise
            _log.warning("instance %s isn't terminated yet: %s", instance_id, err.why)
            return Deletion.BUSY

    def why_ended(self, record: MachineRecord | None, found: Sequence[Instance], now: datetime) -> MachineEnd | None:  # noqa: ARG002
        """Say that an instance was preempted; Lambda doesn't tell why another one is gone."""
        taken = [each.id for each in found if each.phase is Phase.OFF]
        says = f"Lambda has reclaimed instance {', '.join(taken)}, and may bill it"
        return MachineEnd(by=EndedBy.PROVIDER, says=says) if taken else None


def parse_instance(listed: Listed) -> Instance:
    """Parse an instance; Lambda reports no times (fact: lambda-no-times).

    Anybody may have written its tags: a value that can't be parsed counts as missing.
    """
    tags = {tag.key: _text(tag.value) for tag in listed.tags or ()}
    if not (is_id(tags.get(_MACHINE, "")) and is_id(tags.get(_RUN, ""))):
        tags = {}
    phase, host = _PHASES.get(listed.status, Phase.UNKNOWN), _text(listed.ip)
    lifetime, price = tags.get(_LIFETIME, ""), tags.get(_PRICE, "")
    return Instance(
        id=listed.id,
        region=listed.region.name if listed.region else "",
        machine_id=tags.get(_MACHINE, ""),
        run_id=tags.get(_RUN, ""),
        # SSH may answer minutes before it is active: fact: lambda-address-while-booting.
        phase=Phase.RUNNING if phase is Phase.PENDING and host else phase,
        created_at=_read_time(tags.get(_ASKED_AT, "")),
        lifetime=timedelta(seconds=int(lifetime)) if _SECONDS.fullmatch(lifetime) else DEFAULT_TIME_LIMIT,
        attempt=tags.get(_ATTEMPT, ""),
        host=host,
        private_host=_text(listed.private_ip),
        usd_per_hour=Decimal(price) if _NUMBER.fullmatch(price) else Decimal(0),
        list_usd_per_hour=_read_price(listed.instance_type),
    )


def _is_kedges(listed: Listed) -> bool:
    return any(tag.key == _MACHINE for tag in listed.tags or ()) or bool(_NAME.fullmatch(_text(listed.name)))


def _read_price(kind: object) -> Decimal:
    cents = str(kind.get("price_cents_per_hour")) if isinstance(kind, dict) else ""
    return Decimal(cents) / 100 if _NUMBER.fullmatch(cents) else Decimal(0)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _read_time(text: str) -> datetime:
    """Parse when an instance was requested; UNDATED if the tag is missing or no time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return UNDATED
    return at if at.tzinfo and at.year in _YEARS else UNDATED


def _is_wanted(instance: Instance, wanted: Wanted) -> bool:
    is_machine = wanted.machine_id.lower() in ("", instance.machine_id.lower())
    return is_machine and wanted.run_id.lower() in ("", instance.run_id.lower())


def _render(draft: Draft[str, str]) -> dict[str, object]:
    """Render a launch."""
    order = draft.order
    return {
        "region_name": order.region,
        "instance_type_name": order.instance_type,
        "ssh_key_names": [draft.ready.native],
        "image": {"id": draft.chosen.native},
        "name": fit(order.id),
        "tags": [{"key": tag.key, "value": tag.value} for tag in _render_tags(draft.marks)],
        "user_data": draft.user_data.decode(),
    }


def _render_tags(marks: Marks) -> tuple[Tag, ...]:
    """Render the tags; only they find an instance again. fact: lambda-tag-pattern."""
    tags = {
        _MACHINE: marks.machine_id,
        _RUN: marks.run_id,
        _ATTEMPT: marks.attempt,
        _ASKED_AT: marks.asked_at.isoformat(),
        _LIFETIME: str(marks.lifetime_seconds),
        _PRICE: format(marks.usd_per_hour, "f"),
    }
    return tuple(Tag(key=key, value=value) for key, value in tags.items())
