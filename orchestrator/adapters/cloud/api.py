"""The ports that a cloud implements: `Traits`, `CloudApi`, `RunResources`, `DeadlineGuard` and `Look`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from orchestrator.adapters.cloud.model import CreationStatus

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.boot.user_data import BootFormat
    from orchestrator.adapters.cloud.idempotency import Idempotency
    from orchestrator.adapters.cloud.model import Chosen, Deletion, Draft, Instance, Outcome, Ready, Wanted
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.volumes.model import DataVolume, VolumeApi
    from orchestrator.core.errors import KedgeError
    from orchestrator.core.machine import MachineEnd, MachineOrder
    from orchestrator.core.sweep import Leftover

_Choice = TypeVar("_Choice")
_Handle = TypeVar("_Handle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties of a cloud that the life cycle depends on. Each figure is a row of docs/cloud-facts.md.

    Attributes:
        name: kedge's name of the provider.
        speaker: the subject of messages about an answer: "AWS", "the API".
        noun: the cloud's word for an instance: "instance", "droplet".
        account_noun: the cloud's word for another account: "another AWS account".
        other_account_fix: how to use another account's credentials; `{account}` is filled in.
        idempotency: how one order becomes one instance.
        boot: the format of its user-data.
        settles_in: how long a new instance may be unknown to the cloud, counted from reading the creation's answer.
        looked_up_for: for how long an unclear creation is looked up before it is left unclear.
        unclear_for: for how long an unclear creation counts as a machine.
        shown_for: for how long a deleted instance may still be listed; `destroy` waits for its end. Zero: `destroy`
            only sends the request, and `describe` tells when the instance is gone. Zero is only for clouds that go on
            listing ended instances, as GONE.
        boots_in: how long to wait for a creation that is RUNNING; afterwards the wait for the boot takes over.
        id_first: instances are looked up by their recorded ids before they are listed by mark.
        ends_adopted: a machine that can't be completed is ended even if another command or computer created it, because
            its guard may be missing.
        folds_case: the cloud may return marks in another case.
        is_regional: each region is queried, and a sweep continues with the others if one doesn't answer. Else one query
            covers the account, its place is called "", and a sweep fails if that query fails.
        billed_for_at_least: the shortest time billed, by the number of GPUs.
    """

    name: str
    speaker: str
    noun: str
    idempotency: Idempotency
    boot: BootFormat
    account_noun: str = "another account"
    other_account_fix: str = "run the command again with the credentials of account {account}"
    settles_in: timedelta = timedelta(seconds=90)
    looked_up_for: timedelta = timedelta(seconds=90)
    unclear_for: timedelta = timedelta(minutes=15)
    shown_for: timedelta = timedelta(0)
    boots_in: timedelta = timedelta(minutes=10)
    id_first: bool = False
    ends_adopted: bool = False
    folds_case: bool = False
    is_regional: bool = False
    billed_for_at_least: Callable[[int], timedelta] = field(default=lambda _gpus: timedelta(0))

    def may_still_exist(self, record: MachineRecord, now: datetime) -> bool:
        """Tell whether a machine may exist although its cloud doesn't list it."""
        if record.ended:
            return False
        if record.unclear_since is not None:
            return now - record.unclear_since <= self.unclear_for
        return now - record.young_from <= self.settles_in


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfEnd:
    """How a machine ends itself at its deadline.

    Attributes:
        command: the agent runs it.
        script: root runs it before the machine powers off; empty if powering off ends the machine.
    """

    command: tuple[str, ...] = ()
    script: str = ""


class InstanceSource(Protocol):
    """Lists an account's instances.

    Every method raises KedgeError (never an SDK's error) if the cloud can't be queried: nothing that may bill is
    silently left out. If the cloud is regional, several threads call it at once.
    """

    traits: Traits

    def every_place(self) -> Sequence[str]:
        """Return every place of the account; only called if the cloud is regional."""
        return ("",)

    def why_closed(self, err: KedgeError) -> str:  # noqa: ARG002
        """Say why an error means that a place is closed to the account; empty if it doesn't mean that."""
        return ""

    def list_instances(self, wanted: Wanted, places: Collection[str]) -> Sequence[Instance]:
        """List instances by their marks, including those that are GONE and still listed.

        If a machine may have two instances (`Idempotency.settles_duplicates`), the oldest is first.
        """

    def read_instances(self, instance_ids: Collection[str], region: str) -> Sequence[Instance]:
        """Look instances up by their own ids, whatever marks they have; unknown ones are left out."""


class CloudApi(InstanceSource, Protocol[_Choice, _Handle]):
    """One account at one cloud: thin and stateless; each method sends one request or a few, and decides nothing.

    A cloud's class inherits from this one. The methods with a body are the defaults for a cloud that lacks the
    feature.

    Every method raises KedgeError, as those of `InstanceSource` do, except `send`, which returns an outcome.
    """

    volumes: VolumeApi | None = None
    """None: the cloud has no data volumes, and `offers` has refused jobs that want some."""
    guard: DeadlineGuard | None = None
    """None: nothing at the cloud ends a machine from outside."""
    resources: RunResources[_Choice, _Handle]

    def account_id(self) -> str:
        """Return the id of the credentials' account; empty if the cloud doesn't tell."""

    def is_account(self, account: str) -> bool:
        """Tell whether the credentials are of the account that a record names."""
        return self.account_id() == account

    def known_places(self) -> set[str]:
        """Return the places (regions) that the user's configuration names."""
        return set()

    def choose(self, order: MachineOrder) -> Chosen[_Choice]:
        """Look up what the order names, before anything is created.

        Raises:
            BadRequestError: the cloud has no such type, image or network.
            NoCapacityError: not available in this place; another may have it.
        """

    def send(self, draft: Draft[_Choice, _Handle]) -> Outcome:
        """Render the request and send it ONCE: the SDK's own retries are off. No answer makes it raise."""

    def creation_status(self, instance_id: str, region: str, action: str) -> CreationStatus:  # noqa: ARG002
        """Return the state of an accepted creation; always DONE at a cloud whose accepted creations never fail.

        Args:
            instance_id: the instance; empty if the answer wasn't read.
            region: of the instance.
            action: the cloud's id of the creation; empty if the answer wasn't read.
        """
        return CreationStatus.DONE

    def delete(self, instance_id: str, region: str) -> Deletion:
        """Send one request to delete an instance."""

    def before_delete(self, instance_ids: Collection[str]) -> Sequence[str]:  # noqa: ARG002
        """Release what bills on without the instance (reserved addresses); return what must be tried again later."""
        return ()

    def after_delete(self, unsettled: Sequence[str]) -> Sequence[str]:
        """Try again what `before_delete` returned, and return what still can't be released."""
        return unsettled

    def why_ended(self, record: MachineRecord | None, found: Sequence[Instance], now: datetime) -> MachineEnd | None:  # noqa: ARG002
        """Say what ended a machine; None if it lives, or if the cloud doesn't tell."""
        return None

    def mark_lifetime(self, instance: Instance, lifetime: timedelta) -> bool:  # noqa: ARG002
        """Write another lifetime into an instance's marks; False at a cloud whose marks never change."""
        return False

    def looks(self, places: Sequence[str]) -> Sequence[Look]:  # noqa: ARG002
        """Return the looks of a sweep, besides those at machines, data volumes and guards."""
        return ()

    def self_end(self, volumes: Sequence[DataVolume]) -> SelfEnd:  # noqa: ARG002
        """Say how a machine with these volumes ends itself; by default it powers off."""
        return SelfEnd()

    def supplies_for_root(self) -> Mapping[str, str]:
        """Return files that only root may read on a machine (a token that deletes it): file name -> text."""
        return {}


class RunResources(Protocol[_Choice, _Handle]):
    """What a run has besides machines: role, firewall, key, project. Each method writes the run's record itself.

    A cloud's class inherits from it, as from `CloudApi`.
    """

    def ensure(self, order: MachineOrder, chosen: Chosen[_Choice]) -> Ready[_Handle]:
        """Create what is missing and open port 22 as the order says; no call if the record says that all is there."""

    def renew(self, order: MachineOrder) -> None:
        """Forget or re-create what the cloud says it doesn't know: the next `ensure` returns `is_new`."""

    def adopt(self, run_id: str, instance_id: str) -> None:  # noqa: ARG002
        """Put a completed instance where the run's other resources are (DigitalOcean's project)."""
        return

    def reopen(self, run_id: str, region: str, ssh_from: str) -> bool:
        """Admit another range of addresses; False, without a request, if it is admitted already."""

    def remove(self, run_id: str, places: Sequence[str], *, is_full: bool) -> Sequence[str]:  # noqa: ARG002
        """Remove everything; what is gone already is no error.

        Args:
            run_id: the run.
            places: where it may have something.
            is_full: the run's record names everything; else it is looked for.

        Returns:
            A line for each thing removed, or kept ("kept ...").
        """
        return ()


class DeadlineGuard(Protocol):
    """Ends a machine from outside at its deadline, whatever laptop and machine do (an EventBridge schedule)."""

    noun: str
    """The cloud's word for it."""
    soonest: timedelta
    """The least time from now to a deadline that can be armed; negative if the guard acts after the deadline."""

    def arm(self, machine_id: str, instance_id: str, region: str, deadline_at: datetime) -> None:
        """Create the machine's guard, or replace an earlier one."""

    def move(self, machine_id: str, instance_id: str, region: str, deadline_at: datetime) -> None:
        """Change the machine's guard to another deadline, or create it, even if it had that deadline before."""

    def disarm(self, machine_id: str, region: str) -> bool:
        """Delete the guard; False if there was none."""

    def disarm_run(self, run_id: str, region: str, machine_ids: Collection[str] | None) -> Sequence[str]:
        """Delete the guards of a run's machines (None: of all it may have had), and return their names."""

    def list_machines(self, region: str) -> Sequence[tuple[str, str]]:
        """List kedge's guards as (name, machine that it ends). A sweep makes leftovers of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One query of a sweep: one kind of resource in one place.

    Attributes:
        place: empty for the whole account.
        may_bill: such resources cost money.
    """

    see: Callable[[], Sequence[Leftover]]
    place: str = ""
    may_bill: bool = True


AnyCloudApi = CloudApi[Any, Any]
"""A cloud whose native values are opaque to the caller."""
