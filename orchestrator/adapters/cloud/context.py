"""`CloudContext`: what the life cycle works with (cloud, records, clock, claims), and how it finds instances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator.adapters.cloud.boot.user_data import render_user_data
from orchestrator.adapters.cloud.model import Instance, Phase, Target, Wanted, identify, is_made_by, present
from orchestrator.adapters.host.claims import claim
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.api import AnyCloudApi, Traits
    from orchestrator.adapters.cloud.boot.cloud_config import BootSpec
    from orchestrator.adapters.cloud.boot.user_data import BootFormat
    from orchestrator.adapters.cloud.idempotency import Idempotency
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.store.settings import S3Settings
    from orchestrator.core.ports import Clock


class RunResourcesRecord(Protocol):
    """A run's record, as every cloud has it; the defaults are for a cloud without regions and volumes."""

    @property
    def account(self) -> str:
        """The account of its resources; empty before any was created."""

    @property
    def places(self) -> Collection[str]:
        """Where it has resources; empty if its cloud isn't regional."""
        return ()

    @property
    def volume_places(self) -> Collection[str]:
        """Where it uses data volumes, if the record `is_full`."""
        return ()

    @property
    def is_full(self) -> bool:
        """Whether it names all resources of the run, so that nothing else is looked for."""
        return False


class Records(Protocol):
    """This computer's records of one provider's machines and runs; see `RecordFolder`."""

    def machine(self, machine_id: str) -> MachineRecord | None:
        """Read a machine's record; None if there is none."""

    def machines(self) -> Iterator[MachineRecord]:
        """Read every machine's record."""

    def keep_machine(self, record: MachineRecord) -> None:
        """Write a machine's record; once this returns, the record survives a crash of the computer."""

    def forget_machine(self, machine_id: str) -> None:
        """Remove a machine's record, if there is one."""

    def run(self, run_id: str) -> RunResourcesRecord:
        """Read a run's record; an empty one if there is none."""

    def runs(self) -> Iterator[RunResourcesRecord]:
        """Read every run's record."""

    def forget_run(self, run_id: str) -> None:
        """Remove a run's record, if there is one."""


class AgentStage(Protocol):
    """Where a new machine fetches its agent."""

    def put_agent(self, run_id: str, archive: bytes) -> str:
        """Upload the agent's archive, unless it is there already, and return its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudContext:
    """One account at one cloud, with everything that touches the world.

    Attributes:
        claims: the folder of locks.
        key_file: the laptop's private SSH key.
        stage: opens the store; None if the agent is sent over SSH.
        bucket: its keys are sent to machines over SSH; None if there is no bucket, or machines have a role.
        swept: run -> places where a sweep by this command has found resources of it.
    """

    api: AnyCloudApi
    records: Records
    clock: Clock
    key_file: Path
    claims: Path
    stage: Callable[[], AgentStage] | None = None
    bucket: S3Settings | None = None
    render: Callable[[BootSpec, BootFormat], bytes] = render_user_data
    swept: dict[str, set[str]] = field(default_factory=dict)

    @property
    def traits(self) -> Traits:
        """The cloud's properties."""
        return self.api.traits

    @property
    def idempotency(self) -> Idempotency:
        """The cloud's idempotency strategy."""
        return self.api.traits.idempotency

    def claimed(self, machine_id: str) -> AbstractContextManager[None]:
        """Lock a machine's creation on this computer, if two commands could make two instances.

        Raises:
            ConflictError: another process has the lock.
        """
        return claim(self.claims, machine_id, self.clock) if self.idempotency.is_exclusive else nullcontext()

    def places(self, record: MachineRecord | None = None) -> set[str]:
        """Return where to look: the record's region, else the places in records and configuration, else all.

        Raises:
            KedgeError: the cloud doesn't list its regions.
        """
        if not self.traits.is_regional:
            return {""}
        return {record.region} if record is not None else self.known_places() or set(self.api.every_place())

    def known_places(self) -> set[str]:
        """Return the places in records and configuration."""
        recorded = {each.region for each in self.records.machines()}
        runs = (each.places for each in self.records.runs())
        return self.api.known_places().union(recorded, *runs, *self.swept.values()) - {""}

    def places_of(self, run_id: str) -> set[str]:
        """Return where a run may have resources: the places in its records, else as `places`."""
        if not self.traits.is_regional:
            return {""}
        recorded = {each.region for each in self.records.machines() if each.run_id == run_id}
        return recorded.union(self.records.run(run_id).places, self.swept.get(run_id, ())) or self.places()

    def list_marked(self, machine_id: str, record: MachineRecord | None) -> list[Instance]:
        """List the instances with a machine's mark; the recorded instance gets its marks from the record.

        An instance that another machine's record names is left out: its mark was edited.
        """
        listed = self.api.list_instances(Wanted(machine_id=machine_id), self.places(record))
        others = {each.provider_id for each in self.records.machines() if each.id != machine_id}
        # The mark may come back in another case.
        named = (replace(each, machine_id=machine_id) for each in listed if each.id not in others)
        return [identify(each, record) if record and each.id == record.provider_id else each for each in named]

    def read_recorded(self, record: MachineRecord | None) -> list[Instance]:
        """Look up the instance with the recorded id, whatever its marks are now; no call without an id."""
        if record is None or not record.provider_id:
            return []
        return [identify(each, record) for each in self.api.read_instances([record.provider_id], record.region)]

    def find(self, machine_id: str, record: MachineRecord | None) -> list[Instance]:
        """Find a machine's instances by their marks and by the recorded id.

        `Traits.id_first` says which search comes first; the other one follows only if the first doesn't find the
        recorded instance. An ended instance with the same mark hides no living one. The recorded instance is first.

        Raises:
            KedgeError: the cloud doesn't tell.
        """
        if not self.traits.id_first:
            found = self._with_recorded(self.list_marked(machine_id, record), record)
            return sorted(found, key=lambda each: record is None or each.id != record.provider_id)
        recorded = self.read_recorded(record)
        if present(recorded):
            return recorded
        known = {each.id for each in recorded}
        return [*recorded, *(each for each in self.list_marked(machine_id, record) if each.id not in known)]

    def is_settled(self, record: MachineRecord, found: Iterable[Instance]) -> bool:
        """Tell whether a record's request made one of these instances, gone or not."""
        fold = str.lower if self.traits.folds_case else str
        return any(fold(each.machine_id) == fold(record.id) and is_made_by(each, record) for each in found)

    def targets(self, machine_id: str, record: MachineRecord | None) -> list[Target]:
        """Return all instances that a machine's end must delete.

        Raises:
            BadRequestError: nothing is found, and the record is of another account.
            KedgeError: the cloud doesn't tell.
        """
        marked = self.list_marked(machine_id, record)
        found = marked if self.traits.id_first else self._with_recorded(marked, record)
        living = {
            Target(each.id, each.region, is_own=record is not None and is_made_by(each, record))
            for each in found
            if each.phase is not Phase.GONE
        }
        if record is not None and not living and not self.is_settled(record, found):
            # In another account than the machine's, an empty answer proves nothing.
            self.refuse_other_account_of(record)
        shown = {"", *(each.id for each in found)}
        if record is not None and record.provider_id not in shown and self._may_be_unseen(record):
            living.add(Target(record.provider_id, record.region, is_own=True))
        return sorted(living)

    def refuse_other_account(self, run_id: str) -> None:
        """Refuse to act on a run whose records are of another account: in this one it would seem to be gone.

        Raises:
            BadRequestError: the records are of another account.
            KedgeError: the cloud doesn't tell the account of the credentials.
        """
        self._compare(f"run {run_id}", self.records.run(run_id).account)
        for record in self.records.machines():
            if record.run_id == run_id:
                self.refuse_other_account_of(record)

    def refuse_other_account_of(self, record: MachineRecord | None) -> None:
        """Refuse to act on a machine whose record is of another account; without a record, nothing is refused."""
        if record is not None:
            self._compare(f"machine {record.id}", record.account)

    def _with_recorded(self, listed: list[Instance], record: MachineRecord | None) -> list[Instance]:
        """Add the recorded instance to a listing; no call if it is listed."""
        is_listed = record is not None and any(each.id == record.provider_id for each in listed)
        return listed if is_listed else [*listed, *self.read_recorded(record)]

    def _may_be_unseen(self, record: MachineRecord) -> bool:
        """Tell whether the recorded instance may exist unlisted: its id wasn't looked up, or it is too new."""
        return self.traits.id_first or self.traits.may_still_exist(record, self.clock.now())

    def _compare(self, what: str, account: str) -> None:
        if account and not self.api.is_account(account):
            raise BadRequestError(
                f"{what} is in {self.traits.account_noun}",
                why=f"it is in account {account}, and these credentials are of "
                + (self.api.account_id() or "an unnamed one"),
                fix=self.traits.other_account_fix.format(account=account),
            )
