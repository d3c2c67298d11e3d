"""Data volumes as a cloud lists them (`ListedVolume`), as a machine has them (`DataVolume`), and their port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from orchestrator.adapters.cloud.boot.cloud_config import BootVolume, Origin
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.refusals import Unclear
    from orchestrator.core.job import Resources, VolumeSpec
    from orchestrator.core.machine import MachineOrder


class UnknownVolumeError(KedgeError):
    """The cloud knows no such volume: it is gone, or was created a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVolume:
    """One data volume as a cloud lists it.

    Attributes:
        id: the cloud's own id.
        name: kedge's name, from its mark.
        region: for requests about it.
        place: the zone or region whose machines can attach it.
        place_id: another name of the same place; empty for none.
        origin: where it comes from; decides what a machine may do to it.
        serial: the serial number that its disk reports on a machine.
        run_id: the run that used it last, from its mark; empty for none.
        at_end: what happens to it at that run's end, from its mark; KEEP without one.
        holder: the instance that it is attached to; empty for none.
        is_free: it can be attached now: it has no holder and is completely created.
        is_lost: the cloud has lost its data, and will never attach it again; it can only be deleted.
        tags: all of them, as the cloud has them; the values are empty if the cloud's tags have none.
        size_gib: its actual size, which it bills by.
        iops: actual; None if the cloud sells no speed separately.
        mibps: actual throughput, likewise.
        usd_per_hour: its list price; only `list_all` fills it in.
    """

    id: str
    name: str
    region: str
    place: str
    origin: Origin
    serial: str
    is_free: bool
    is_lost: bool = False
    place_id: str = ""
    run_id: str = ""
    at_end: AtEnd = AtEnd.KEEP
    holder: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    size_gib: int = 0
    iops: int | None = None
    mibps: int | None = None
    created_at: datetime | None = None
    usd_per_hour: Decimal = Decimal(0)

    @property
    def is_kept(self) -> bool:
        """Whether it outlives its run: the run says so, or kedge didn't make it."""
        return self.at_end is AtEnd.KEEP or self.origin is Origin.FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVolume:
    """A volume of one machine, with what the run wants of it.

    Attributes:
        listed: the volume at the cloud.
        spec: what the run wants.
        number: its index among the machine's data volumes, from 0.
        device: a path to try on machines whose disks report no serial; empty for none.
        is_new: it was created for this order.
    """

    listed: ListedVolume
    spec: VolumeSpec
    number: int
    device: str = ""
    is_new: bool = False

    @property
    def id(self) -> str:
        """The cloud's own id."""
        return self.listed.id

    @property
    def boot(self) -> BootVolume:
        """What the machine must know of it."""
        return BootVolume(
            serial=self.listed.serial, target=self.spec.target, origin=self.listed.origin, device=self.device
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeTraits:
    """The properties of a cloud's volumes that the life cycle depends on.

    Attributes:
        speaker: the subject of messages about an answer.
        place_word: what a volume is bound to, in messages and as a flag: zone or region.
        attaches_at_birth: the request for a machine names its volumes; else they are attached once it runs.
        appears_in: for how long the cloud may not know a volume that it has just created.
    """

    speaker: str
    place_word: str
    attaches_at_birth: bool
    appears_in: timedelta = timedelta(0)


class VolumeApi(Protocol):
    """A cloud's data volumes: thin and stateless; each method is one request or one listing, and decides nothing.

    Every method raises KedgeError, never an SDK's error. Methods about one volume raise UnknownVolumeError if the
    cloud doesn't know it, unless they say otherwise.
    """

    @property
    def traits(self) -> VolumeTraits:
        """The properties of the cloud's volumes."""

    def place_of(self, order: MachineOrder) -> str:
        """Return the zone or region in which an order's volumes must be; empty if the order names none."""

    def regions_of(self, resources: Resources) -> Sequence[str]:
        """Return the regions to search for the job's volumes; an empty string stands for all regions."""

    def is_closed(self, err: KedgeError) -> bool:
        """Tell whether an error means that nothing can be rented in the region."""

    def device_of(self, number: int) -> str:
        """Return the device path of a machine's volume (from 0) to try if disks report no serial; empty for none."""

    def name_tag(self, name: str) -> str:
        """Return the tag of volumes with this name, as messages show it."""

    def note_use(self, run_id: str, region: str) -> None:
        """Record, before a volume is created, that a run uses volumes in a region, if the teardown must know."""

    def list_named(self, names: Sequence[str], region: str) -> Sequence[ListedVolume]:
        """List the usable volumes with these names, each under the name in `names`.

        A cloud that lists all regions at once ignores the region.
        """

    def list_of_run(self, run_id: str, region: str) -> Sequence[ListedVolume]:
        """List the volumes that a run used last, in every state."""

    def list_all(self, region: str) -> Sequence[ListedVolume]:
        """List every volume that one of kedge's runs has used."""

    def read(self, volume: ListedVolume) -> ListedVolume:
        """Look a volume up again. If an unknown volume can't be attached to anything, it is returned as free."""

    def create(self, spec: VolumeSpec, order: MachineOrder, now: datetime) -> ListedVolume | Unclear:
        """Create a volume together with its marks; a refusal is raised.

        Raises:
            NoCapacityError: not available in this place; another may have it.
        """

    def takes_volumes(self, instance_id: str, region: str) -> bool:
        """Tell whether an instance runs already; only called if volumes are attached after the boot."""

    def attach(self, volume: DataVolume, instance_id: str) -> None:
        """Attach a volume to a running instance."""

    def is_ending_machine_of(self, instance_id: str, region: str, run_id: str) -> bool:
        """Tell whether an instance is an ending machine of this run."""

    def mark_used(self, volume: ListedVolume, run_id: str, at_end: AtEnd) -> None:
        """Write into its marks which run's teardown ends it, and how."""

    def delete(self, volume: ListedVolume) -> bool:
        """Delete a volume; False if the cloud doesn't know it."""

    def find_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        """Return the id of the snapshot that was started at a run's end; empty for none."""

    def begin_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        """Start a snapshot, and return its id."""

    def is_copied(self, snapshot_id: str, region: str) -> bool:
        """Tell whether a snapshot is complete."""
