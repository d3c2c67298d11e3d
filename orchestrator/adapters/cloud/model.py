"""The neutral values between the life cycle and a cloud: `Instance`, `Draft`, `Outcome`, `Deletion` and others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from orchestrator.adapters.cloud.refusals import Refused, Unclear

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.core.machine import MachineOrder


class Phase(StrEnum):
    """The state of an instance, as its cloud reports it. Every phase but GONE may bill."""

    PENDING = "pending"
    RUNNING = "running"
    OFF = "off"
    """Powered off: it computes nothing and costs money until it is deleted. It still counts as its machine."""
    ENDING = "ending"
    """Nothing can run on it any more; never adopted."""
    GONE = "gone"
    """The cloud confirms the end, and still lists the instance."""
    UNKNOWN = "unknown"


UNDATED = datetime.min.replace(tzinfo=UTC)
"""`created_at` of an instance that has lost its mark, at a cloud that reports no creation times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReason:
    """Why an instance ends or has ended, if its cloud's description says so.

    Attributes:
        code: the cloud's code.
        says: the cloud's message.
        at: when it ended; None if the cloud doesn't tell.
    """

    code: str
    says: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance, as a cloud lists it.

    Attributes:
        id: the cloud's own id.
        region: the cloud's, as `Machine.region` shows it; empty if the cloud has one place only.
        machine_id: from its mark; empty if the mark is missing or malformed.
        run_id: likewise.
        created_at: when billing began; from the cloud, else from the mark, else UNDATED.
        lifetime: from its mark, else the default.
        attempt: which request made it, from its mark; empty if the mark is gone.
        seniority: sorts the instances of one machine oldest first, the same way on every computer.
        host: the address to reach it at; empty while it has none.
        private_host: the address inside its network; empty for none.
        usd_per_hour: from its mark, disks included.
        list_usd_per_hour: the current price of its type; for an instance that isn't kedge's.
        end: why it ends; None if the description doesn't say.
    """

    id: str
    region: str
    machine_id: str
    run_id: str
    phase: Phase
    created_at: datetime
    lifetime: timedelta
    attempt: str = ""
    seniority: str = ""
    host: str = ""
    private_host: str = ""
    usd_per_hour: Decimal = Decimal(0)
    list_usd_per_hour: Decimal = Decimal(0)
    end: EndReason | None = None

    @property
    def can_serve(self) -> bool:
        """Whether it is neither gone nor ending."""
        return self.phase not in (Phase.GONE, Phase.ENDING)

    @property
    def deadline_at(self) -> datetime:
        """When it must be gone, from its mark."""
        return self.created_at + self.lifetime

    @property
    def age_order(self) -> tuple[str, datetime, str]:
        """Sorts the instances of one machine oldest first."""
        return self.seniority, self.created_at, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What every listing must show about an instance. A cloud stores it as tags, or in the instance's name.

    Attributes:
        attempt: distinguishes two requests for the same machine: each has its own host key.
        extra: the user's own tags.
    """

    machine_id: str
    run_id: str
    attempt: str
    asked_at: datetime
    lifetime_seconds: int
    usd_per_hour: Decimal
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def deadline_at(self) -> datetime:
        """When the machine must be gone, counted from the request."""
        return self.asked_at + timedelta(seconds=self.lifetime_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which instances a listing returns: those of one machine, of one run, or all of kedge's."""

    machine_id: str = ""
    run_id: str = ""


_Choice = TypeVar("_Choice")
_Handle = TypeVar("_Handle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[_Choice]):
    """What a cloud has looked up for an order before anything is created: type, image, own network.

    Attributes:
        gpus: the type's number of GPUs.
        native: the cloud's own value, opaque to everybody else.
    """

    gpus: int
    native: _Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Generic[_Handle]):
    """What a run has besides machines, ready for a creation.

    Attributes:
        native: the cloud's own value (group id, profile, key fingerprint).
        is_new: some of it was created just now: the cloud may not know it everywhere yet.
        token_parts: the values that a creation's idempotency token must depend on.
        ssh_from: the only network that the machine's own firewall admits; empty if the cloud has a firewall.
    """

    native: _Handle
    is_new: bool = False
    token_parts: tuple[str, ...] = ()
    ssh_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Generic[_Choice, _Handle]):
    """Everything that one creation request is rendered from. The same draft gives the same request, byte for byte.

    Attributes:
        user_data: as it is sent, compressed if the cloud's `BootFormat` says so.
        token: the idempotency token; empty if the cloud takes none.
    """

    order: MachineOrder
    chosen: Chosen[_Choice]
    ready: Ready[_Handle]
    marks: Marks
    user_data: bytes
    volumes: tuple[DataVolume, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The cloud has accepted the creation.

    Attributes:
        action: the cloud's id of the creation, if that may still fail; else empty.
    """

    instance: Instance
    action: str = ""


Outcome = Made | Refused | Unclear
"""The outcome of a creation request."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """An instance that a machine's end must delete.

    Attributes:
        is_own: this computer's record of the machine is of this instance.
    """

    id: str
    region: str
    is_own: bool


class Deletion(Enum):
    """A cloud's answer to a deletion request."""

    ACCEPTED = "accepted"
    BUSY = "busy"
    """An earlier deletion is under way, or the instance is too new: the request is sent again."""
    UNKNOWN = "unknown"
    """The cloud knows no such instance: it is gone, or too young to be known. `Traits.settles_in` says which."""


class CreationStatus(Enum):
    """The state of a creation that the cloud accepted."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The cloud knows neither the instance nor its creation: counts as RUNNING while young, then as FAILED."""


def present(instances: Iterable[Instance]) -> list[Instance]:
    """Leave out instances that are gone, and ending ones that another instance has replaced."""
    living = [each for each in instances if each.phase is not Phase.GONE]
    taken = {each.machine_id for each in living if each.can_serve}
    return [each for each in living if each.can_serve or each.machine_id not in taken]


def identify(instance: Instance, record: MachineRecord) -> Instance:
    """Take the marks of a recorded instance from its record: anybody in the account may change its tags.

    A cloud may report the last start as the creation. If the record is older, its time counts.
    """
    return replace(
        instance,
        machine_id=record.id,
        run_id=record.run_id,
        attempt=record.attempt,
        created_at=record.asked_at if instance.created_at == UNDATED else min(instance.created_at, record.young_from),
        lifetime=timedelta(seconds=record.lifetime_seconds),
        usd_per_hour=record.usd_per_hour,
    )


def is_made_by(instance: Instance, record: MachineRecord) -> bool:
    """Tell whether a record's request made an instance of its machine; other requests' instances have other host keys.

    A recorded id decides alone, because marks can be edited, or copied to another instance. Without an id, the mark of
    the attempt decides. Without that mark too, a living instance counts as made by the request, and a gone one doesn't.
    """
    if record.provider_id:
        return instance.id == record.provider_id
    if instance.attempt:
        return instance.attempt == record.attempt
    return instance.phase is not Phase.GONE
