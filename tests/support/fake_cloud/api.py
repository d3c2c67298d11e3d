"""One process's client of the fake account: it lists, creates and deletes, and fails as tests order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

from orchestrator.adapters.cloud.api import CloudApi, DeadlineGuard, Look, RunResources, SelfEnd
from orchestrator.adapters.cloud.idempotency import ClientToken
from orchestrator.adapters.cloud.model import (
    Chosen,
    CreationStatus,
    Deletion,
    Draft,
    Instance,
    Made,
    Outcome,
    Wanted,
)
from orchestrator.adapters.cloud.records import MachineRecord
from orchestrator.adapters.cloud.refusals import Reaction, Refusal, Refused, Unclear
from orchestrator.adapters.cloud.volumes.model import DataVolume, VolumeApi
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import EndedBy, MachineEnd, MachineOrder
from orchestrator.core.sweep import Leftover
from tests.support.fake_cloud.account import CLOSED, HERE, FakeCloud, FakeInstance
from tests.support.fake_cloud.process import Process
from tests.support.fake_cloud.resources import FakeGuard, FakeResources

_Seen = TypeVar("_Seen")


class FakeCloudApi(CloudApi[str, str]):
    """One process's client of the account; implements `CloudApi`.

    Faults of every call: `error` (not carried out), `closed` (the place refuses this account), `drop` (carried out, and
    the answer is lost). Faults of `send`: `lost` (the request didn't arrive), `unsent` (it wasn't sent, and the client
    knows), `late` and `very late` (it arrives after 40 s or 5 minutes), `errored` and `vanishes` (accepted, and fails
    later), and the name of a `Reaction` (refused). Fault of `deletion`: `unknown` (the cloud lists an instance, and
    doesn't find it by id).
    """

    def __init__(self, cloud: FakeCloud, process: Process) -> None:
        self.cloud = cloud
        self.traits = cloud.traits
        self.volumes: VolumeApi | None = cloud.volumes
        self.process = process
        is_guarded = isinstance(cloud.traits.idempotency, ClientToken)
        self.guard: DeadlineGuard | None = FakeGuard(self) if is_guarded else None
        self.resources: RunResources[str, str] = FakeResources(self)

    def account_id(self) -> str:
        """Return the account's id."""
        return self.cloud.account

    def known_places(self) -> set[str]:
        """Return the configured regions."""
        return set(self.cloud.configured)

    def every_place(self) -> Sequence[str]:
        """Return all regions, including closed ones."""
        return (HERE, *self.cloud.closed)

    def why_closed(self, err: KedgeError) -> str:
        """Return the reason if a region is closed, empty for other errors."""
        return "is closed to this account" if err.why == CLOSED else ""

    def list_instances(self, wanted: Wanted, places: Collection[str]) -> Sequence[Instance]:
        """List instances by their marks."""
        self._refuse_closed(places)
        assert set(places) == {self.cloud.place}
        listed = self.call("list", lambda: [self.see(each) for each in self.cloud.shown()])
        return [
            each
            for each in listed
            if each.run_id
            and wanted.machine_id in ("", each.machine_id.lower())
            and wanted.run_id in ("", each.run_id.lower())
        ]

    def read_instances(self, instance_ids: Collection[str], region: str) -> Sequence[Instance]:
        """Look up instances by id."""
        self._refuse_closed([region])
        assert region == HERE
        shown = self.call("read", lambda: [self.see(each) for each in self.cloud.shown()])
        return [each for each in shown if each.id in instance_ids]

    def choose(self, order: MachineOrder) -> Chosen[str]:
        """Look up the instance type."""
        return self.call("choose", lambda: Chosen(gpus=1, native=order.instance_type))

    def send(self, draft: Draft[str, str]) -> Outcome:
        """Create an instance, or do what the next fault says."""
        self.process.step()
        outcome = self._send(draft, self._fault("send"))
        self.process.step()
        return outcome

    def creation_status(self, instance_id: str, region: str, action: str) -> CreationStatus:  # noqa: ARG002
        """Report a creation that failed; only a cloud without tokens does that."""
        if self.traits.idempotency.repeats_unclear:
            return CreationStatus.DONE
        return self.call("status", lambda: self._status(instance_id, action))

    def delete(self, instance_id: str, region: str) -> Deletion:
        """End an instance that is known and old enough."""
        assert region == HERE
        return self.call("delete", lambda: self._delete(instance_id))

    def before_delete(self, instance_ids: Collection[str]) -> Sequence[str]:
        """Return the addresses that have to be released after the deletion."""
        return [address for owner, address in self.cloud.reserved.items() if owner in instance_ids]

    def after_delete(self, unsettled: Sequence[str]) -> Sequence[str]:
        """Release the addresses of deleted instances; return those that are left."""
        living = {each.id for each in self.cloud.living()}
        self.cloud.reserved = {
            owner: address
            for owner, address in self.cloud.reserved.items()
            if address not in unsettled or owner in living
        }
        return [each for each in unsettled if each in self.cloud.reserved.values()]

    def why_ended(self, record: MachineRecord | None, found: Sequence[Instance], now: datetime) -> MachineEnd | None:  # noqa: ARG002
        """Report a creation that failed."""
        failed = [each for each in self.cloud.instances if each.errored and record and each.id == record.provider_id]
        return MachineEnd(by=EndedBy.START, says=f"{failed[0].id} ended `errored`") if failed else None

    def mark_lifetime(self, instance: Instance, lifetime: timedelta) -> bool:
        """Change the lifetime in an instance's marks; the mark cloud never changes them."""
        if self.guard is None:
            return False
        own = next(each for each in self.cloud.instances if each.id == instance.id)
        self.call("mark", lambda: setattr(own, "edited", {**own.edited, "lifetime": lifetime}))
        return True

    def looks(self, places: Sequence[str]) -> Sequence[Look]:
        """List the keys of runs."""
        assert set(places) == {self.cloud.place, *self.cloud.closed}
        return [Look(see=lambda: self.call("keys", self._keys), may_bill=False)]

    def self_end(self, volumes: Sequence[DataVolume]) -> SelfEnd:  # noqa: ARG002
        """Let a machine end itself by powering off."""
        return SelfEnd(command=("poweroff",))

    def call(self, name: str, act: Callable[[], _Seen]) -> _Seen:
        """Carry out a call, or fail as its next fault says."""
        fault = self._fault(name)
        self.process.step()
        if fault in ("error", "closed"):
            raise KedgeError(f"{name} doesn't work", why=CLOSED if fault == "closed" else "the cloud doesn't answer")
        done = act()
        self.process.step()
        if fault == "drop":
            raise KedgeError(f"{name} doesn't work", why="the answer was lost")
        return done

    def see(self, instance: FakeInstance) -> Instance:
        """Return an instance as the API shows it: with its marks, if it still has them."""
        marks = instance.draft.marks
        write = str.upper if self.cloud.shouts else str
        seen = Instance(
            id=instance.id,
            region=HERE,
            machine_id=write(marks.machine_id) if instance.marked and instance.named else "",
            run_id=write(marks.run_id) if instance.marked else "",
            phase=self.cloud.phase(instance),
            created_at=instance.made_at,
            lifetime=timedelta(seconds=marks.lifetime_seconds),
            attempt=marks.attempt if instance.marked else "",
            seniority=f"{instance.number:09}",
            host="192.0.2.1",
            private_host="10.0.0.1",
            usd_per_hour=marks.usd_per_hour,
            list_usd_per_hour=Decimal(3),
        )
        return replace(seen, **instance.edited)

    def _refuse_closed(self, places: Collection[str]) -> None:
        if set(places) & set(self.cloud.closed):
            raise KedgeError("the region can't be listed", why=CLOSED)

    def _keys(self) -> list[Leftover]:
        return [Leftover(kind="key", name=f"key of {run_id}", run_id=run_id) for run_id in self.cloud.keys]

    def _fault(self, name: str) -> str:
        strikes = next((at for at, (call, _) in enumerate(self.cloud.faults) if call == name), None)
        return self.cloud.faults.pop(strikes)[1] if strikes is not None else ""

    def _send(self, draft: Draft[str, str], fault: str) -> Outcome:
        if fault == "unsent":
            return _unsent()
        self.cloud.sent.append(draft)
        if fault == "lost":
            return _unclear("the connection broke")
        if fault in ("late", "very late"):
            delay = timedelta(seconds=40 if fault == "late" else 300)
            self.cloud.coming.append((self.cloud.clock.now() + delay, draft))
            return _unclear("nobody answered in time")
        return self._refusal(draft, fault) or self._make(draft, fault)

    def _refusal(self, draft: Draft[str, str], fault: str) -> Refused | None:
        if fault in Reaction.__members__:
            return _refused(Reaction[fault])
        known_at = self.cloud.keys.get(draft.order.run_id, datetime.max.replace(tzinfo=UTC))
        return _refused(Reaction.NOT_YET) if self.cloud.clock.now() < known_at else None

    def _make(self, draft: Draft[str, str], fault: str) -> Outcome:
        made = self._of_token(draft)
        if isinstance(made, Unclear):
            return made
        made = made or self.cloud.make(draft)
        if fault in ("errored", "vanishes"):
            made.errored, made.vanishes = True, fault == "vanishes"
            if made.vanishes:
                self.cloud.end(made)
        return _unclear("the answer was lost") if fault == "drop" else Made(instance=self.see(made), action=made.id)

    def _of_token(self, draft: Draft[str, str]) -> FakeInstance | Unclear | None:
        self.cloud.settle()
        same = self.cloud.of_token(draft)
        if same and same[0].draft.user_data != draft.user_data:
            return replace(_unclear("the token came with other parameters"), is_final=True)
        return same[0] if same else None

    def _status(self, instance_id: str, action: str) -> CreationStatus:
        own = next(each for each in self.cloud.instances if each.id == instance_id)
        if own.vanishes and not action:
            return CreationStatus.UNKNOWN
        return CreationStatus.FAILED if own.errored else CreationStatus.DONE

    def _delete(self, instance_id: str) -> Deletion:
        found = next((each for each in self.cloud.shown() if each.id == instance_id), None)
        if found is None or self._fault("deletion") == "unknown":
            return Deletion.UNKNOWN
        if self.cloud.clock.now() - found.made_at < self.cloud.too_new:
            return Deletion.BUSY
        self.cloud.end(found)
        return Deletion.ACCEPTED


def _unclear(why: str) -> Unclear:
    return Unclear(why=why, error=ConnectionError(why))


def _unsent() -> Refused:
    err = UnreachableError("the cloud can't be reached", why="there is no network")
    return Refused(refusal=None, says=err.why, error=err, as_is=err)


def _refused(reaction: Reaction) -> Refused:
    row = Refusal(codes=("No",), meaning=f"refused: {reaction.name}", reaction=reaction, remedy="wait")
    return Refused(refusal=row, says="No: not now", error=ConnectionError("refused"))
