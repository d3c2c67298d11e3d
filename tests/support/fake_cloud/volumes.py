"""A cloud's data volumes in memory; a command can be killed at any request to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.refusals import Unclear
from orchestrator.adapters.cloud.volumes.model import DataVolume, ListedVolume, UnknownVolumeError, VolumeTraits
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd, Resources, VolumeSpec
from orchestrator.core.machine import MachineOrder
from tests.support.clocks import FakeClock

_Answer = TypeVar("_Answer")

PLACE = "here-a"
AFTER_START = VolumeTraits(
    speaker="the cloud", place_word="zone", attaches_at_birth=False, appears_in=timedelta(seconds=30)
)
AT_BIRTH = VolumeTraits(speaker="the cloud", place_word="region", attaches_at_birth=True)


class Killed(BaseException):
    """The command was killed here; what it has requested before may still be carried out."""


@dataclass
class FakeVolumes:
    """One account. As at a real cloud, an attached volume can't be deleted or attached to another instance.

    Attributes:
        appears_after: how long a new volume isn't found by its id, although it is listed.
        copies_in: how long a snapshot takes.
        loses_answers: creations are carried out, and their answers are lost.
        refuses: creations are not carried out, and their answers are lost.
        dies_at: the number of the request at which the command is killed, from 0; None for none.
        dies_after: it is killed after the request was carried out, otherwise before.
        calls: the requests so far, by name.
        used_by: the runs whose machines have used a volume, by its id.
        snapshots: the volume and the run of each.
        later: what others do, and at which time.
        step: called before and after each request; it may end the command.
    """

    traits: VolumeTraits = AFTER_START
    clock: FakeClock = field(default_factory=FakeClock)
    appears_after: timedelta = timedelta(0)
    copies_in: timedelta = timedelta(0)
    loses_answers: bool = False
    refuses: bool = False
    dies_at: int | None = None
    dies_after: bool = False
    calls: list[str] = field(default_factory=list)
    volumes: dict[str, ListedVolume] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    used_by: dict[str, set[str]] = field(default_factory=dict)
    snapshots: dict[str, tuple[str, str]] = field(default_factory=dict)
    later: list[tuple[datetime, Callable[[], None]]] = field(default_factory=list)
    step: Callable[[], None] = lambda: None
    _known_at: dict[str, datetime] = field(default_factory=dict)
    _made: int = 0

    def add(self, name: str, *, place: str = PLACE, origin: Origin = Origin.MADE, **fields: object) -> ListedVolume:
        """Add a volume to the account."""
        self._made += 1
        volume = ListedVolume(
            id=f"vol-{self._made}", name=name, region="here", place=place, origin=origin, serial=name, is_free=True
        )
        volume = replace(volume, **fields)  # type: ignore[arg-type]
        self.volumes[volume.id] = volume
        return volume

    def start(self, instance_id: str, run_id: str, volumes: Sequence[DataVolume] = ()) -> None:
        """Start an instance with these volumes attached."""
        self.instances[instance_id] = run_id
        for volume in volumes:
            self._hold(volume.id, instance_id)

    def end(self, instance_id: str, lets_go_in: timedelta = timedelta(0)) -> None:
        """End an instance; it detaches its volumes when it has shut down."""
        self.ending.add(instance_id)
        self.later.append((self.clock.now() + lets_go_in, lambda: self._let_go(instance_id)))

    def place_of(self, order: MachineOrder) -> str:
        return order.zone

    def regions_of(self, resources: Resources) -> Sequence[str]:
        return ("",) if self.traits.attaches_at_birth else resources.regions or ("here",)

    def is_closed(self, _err: KedgeError) -> bool:
        return False

    def device_of(self, number: int) -> str:
        return f"/dev/{number}"

    def name_tag(self, name: str) -> str:
        return f"name={name}"

    def note_use(self, run_id: str, region: str) -> None:
        """Do nothing."""

    def list_named(self, names: Sequence[str], region: str) -> Sequence[ListedVolume]:
        return self._ask("list_named", lambda: [each for each in self._in(region) if each.name in names])

    def list_of_run(self, run_id: str, region: str) -> Sequence[ListedVolume]:
        return self._ask("list_of_run", lambda: [each for each in self._in(region) if each.run_id == run_id])

    def list_all(self, region: str) -> Sequence[ListedVolume]:
        return self._ask("list_all", lambda: [each for each in self._in(region) if each.run_id])

    def read(self, volume: ListedVolume) -> ListedVolume:
        def look() -> ListedVolume:
            if self.traits.attaches_at_birth and not self._is_known(volume.id):
                return replace(volume, holder="", is_free=True)
            return self._known(volume.id)

        return self._ask("read", look)

    def create(self, spec: VolumeSpec, order: MachineOrder, _now: datetime) -> ListedVolume | Unclear:
        def make() -> ListedVolume | Unclear:
            if self.refuses:
                return Unclear(why="no answer", error=TimeoutError())
            made = self.add(spec.name, place=order.zone, run_id=order.run_id, at_end=spec.at_end)
            self._known_at[made.id] = self.clock.now() + self.appears_after
            return Unclear(why="no answer", error=TimeoutError()) if self.loses_answers else made

        return self._ask("create", make)

    def takes_volumes(self, instance_id: str, _region: str) -> bool:
        return self._ask("takes_volumes", lambda: instance_id in self.instances)

    def attach(self, volume: DataVolume, instance_id: str) -> None:
        def give() -> None:
            assert self._known(volume.id).holder in ("", instance_id), "a disk that two machines write to is lost"
            self._hold(volume.id, instance_id)

        self._ask("attach", give)

    def is_ending_machine_of(self, instance_id: str, _region: str, run_id: str) -> bool:
        def tell() -> bool:
            return instance_id in self.ending and self.instances[instance_id] == run_id

        return self._ask("is_ending_machine_of", tell)

    def mark_used(self, volume: ListedVolume, run_id: str, at_end: AtEnd) -> None:
        self._ask("mark_used", lambda: self._change(volume.id, run_id=run_id, at_end=at_end))

    def delete(self, volume: ListedVolume) -> bool:
        def remove() -> bool:
            if not self._is_known(volume.id):
                return False
            assert not self.volumes[volume.id].holder, "the cloud refuses this"
            del self.volumes[volume.id]
            return True

        return self._ask("delete", remove)

    def find_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        wanted = (volume.id, run_id)
        return self._ask("find_snapshot", lambda: next((k for k, v in self.snapshots.items() if v == wanted), ""))

    def begin_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        def begin() -> str:
            snapshot_id = f"snap-{len(self.snapshots)}"
            self.snapshots[snapshot_id] = (volume.id, run_id)
            self._known_at[snapshot_id] = self.clock.now() + self.copies_in
            return snapshot_id

        return self._ask("begin_snapshot", begin)

    def is_copied(self, snapshot_id: str, _region: str) -> bool:
        return self._ask("is_copied", lambda: self._known_at[snapshot_id] <= self.clock.now())

    def _ask(self, name: str, act: Callable[[], _Answer]) -> _Answer:
        number = len(self.calls)
        self.calls.append(name)
        self.step()
        self._catch_up()
        if number == self.dies_at and not self.dies_after:
            raise Killed(name)
        try:
            answer = act()
        finally:
            if number == self.dies_at:
                raise Killed(name)
        self.step()
        return answer

    def _catch_up(self) -> None:
        """Carry out what is due by now."""
        due = [what for when, what in self.later if when <= self.clock.now()]
        self.later = [each for each in self.later if each[0] > self.clock.now()]
        for what in due:
            what()

    def _in(self, region: str) -> list[ListedVolume]:
        return [volume for volume in self.volumes.values() if region in ("", volume.region)]

    def _is_known(self, volume_id: str) -> bool:
        now = self.clock.now()
        return volume_id in self.volumes and self._known_at.get(volume_id, now) <= now

    def _known(self, volume_id: str) -> ListedVolume:
        if not self._is_known(volume_id):
            raise UnknownVolumeError(f"there is no volume {volume_id}")
        return self.volumes[volume_id]

    def _change(self, volume_id: str, **fields: object) -> None:
        self.volumes[volume_id] = replace(self.volumes[volume_id], **fields)  # type: ignore[arg-type]

    def _hold(self, volume_id: str, instance_id: str) -> None:
        self._change(volume_id, holder=instance_id, is_free=False)
        self.used_by.setdefault(volume_id, set()).add(self.instances[instance_id])

    def _let_go(self, instance_id: str) -> None:
        for volume in list(self.volumes.values()):
            if volume.holder == instance_id:
                self._change(volume.id, holder="", is_free=True)
