"""An account at the fake cloud: its resources, which of them the API shows, and what bills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from orchestrator.adapters.cloud.api import Traits
from orchestrator.adapters.cloud.boot.cloud_config import DiskNames
from orchestrator.adapters.cloud.boot.user_data import BootFormat
from orchestrator.adapters.cloud.idempotency import ClientToken, MarkAndLookUp
from orchestrator.adapters.cloud.model import Draft, Phase
from orchestrator.core.ports import Clock
from tests.support.clocks import FakeClock
from tests.support.fake_cloud.volumes import FakeVolumes

HERE = "here"
"""The one region."""
CLOSED = "the place is closed"
"""The error of a place that is closed to the account."""

_FORMAT = BootFormat(most_bytes=1 << 20, disks=DiskNames(volume_model="none", local="none"), says="it allows")

TOKEN_CLOUD = Traits(
    name="token",
    speaker="the token cloud",
    noun="instance",
    idempotency=ClientToken(),
    boot=_FORMAT,
    looked_up_for=timedelta(seconds=30),
    ends_adopted=True,
    is_regional=True,
)
"""Like AWS: regions, a token, an external guard, one deletion request, and ended instances listed for a while."""

MARK_CLOUD = Traits(
    name="mark",
    speaker="the mark cloud",
    noun="droplet",
    idempotency=MarkAndLookUp(),
    boot=_FORMAT,
    shown_for=timedelta(minutes=3),
    id_first=True,
)
"""Like DigitalOcean and Lambda: creations are sent once and looked up; deletions repeated until it isn't listed."""


@dataclass
class FakeInstance:
    """An instance in the account.

    Attributes:
        number: in the order of creation.
        visible_at: from this time on it is listed and found by its id.
        ended_at: when its deletion was accepted, or the cloud ended it itself.
        errored: its creation was accepted and then failed.
        vanishes: after that failure the API doesn't show it.
        marked: it still has its marks.
        named: its marks name its machine.
        edited: marks that somebody has changed, by the fields of `Instance`.
    """

    number: int
    draft: Draft[str, str]
    made_at: datetime
    visible_at: datetime
    ended_at: datetime | None = None
    errored: bool = False
    vanishes: bool = False
    marked: bool = True
    named: bool = True
    edited: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The cloud's id for it."""
        return f"i-{self.number:04}"


@dataclass
class FakeCloud:
    """The account, shared by all computers.

    Attributes:
        lag: how long the API doesn't know a new instance.
        ending: how long an instance is shown as ending after its deletion.
        too_new: how long a new instance can't be deleted.
        faults: (call, fault) in the order in which they happen; see `FakeCloudApi`.
        keys: the keys of runs: run -> when the cloud knows the key everywhere.
        open_to: who may reach port 22 of a run's machines.
        configured: the regions that the user's configuration names.
        closed: more regions, which refuse this account.
        shouts: marks come back in upper case.
        keeps_gone: ended instances stay listed for ever; by default only if the cloud has no `shown_for`.
        guards: alarms that end machines from outside: machine -> instance and deadline.
        reserved: addresses that bill separately: instance -> address.
        volumes: the data volumes; None if this cloud has none.
    """

    traits: Traits
    clock: Clock = field(default_factory=FakeClock)
    lag: timedelta = timedelta(0)
    ending: timedelta = timedelta(seconds=5)
    too_new: timedelta = timedelta(0)
    key_lag: timedelta = timedelta(0)
    account: str = "1234"
    faults: list[tuple[str, str]] = field(default_factory=list)
    instances: list[FakeInstance] = field(default_factory=list)
    coming: list[tuple[datetime, Draft[str, str]]] = field(default_factory=list)
    keys: dict[str, datetime] = field(default_factory=dict)
    open_to: dict[str, str] = field(default_factory=dict)
    configured: tuple[str, ...] = (HERE,)
    closed: tuple[str, ...] = ()
    shouts: bool = False
    keeps_gone: bool = False
    guards: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    volumes: FakeVolumes | None = None
    sent: list[Draft[str, str]] = field(default_factory=list)
    most_at_once: int = 0

    def make(self, draft: Draft[str, str]) -> FakeInstance:
        """Create an instance."""
        now = self.clock.now()
        made = FakeInstance(len(self.instances) + 1, draft, now, now + self.lag)
        self.instances.append(made)
        if self.volumes is not None:
            born_with = draft.volumes if self.volumes.traits.attaches_at_birth else ()
            self.volumes.start(made.id, draft.order.run_id, born_with)
        self.most_at_once = max(self.most_at_once, len(self.living()))
        return made

    def settle(self) -> None:
        """Carry out late requests that are due by now."""
        now = self.clock.now()
        due, self.coming = [each for each in self.coming if each[0] <= now], [x for x in self.coming if x[0] > now]
        for _, draft in due:
            if not self.of_token(draft):
                self.make(draft)

    def of_token(self, draft: Draft[str, str]) -> list[FakeInstance]:
        """List the instances that requests with the same token have created."""
        return [each for each in self.instances if draft.token and each.draft.token == draft.token]

    def billing(self) -> list[FakeInstance]:
        """List the instances that cost money now."""
        self.settle()
        return [each for each in self.instances if self.phase(each) is not Phase.GONE]

    def end(self, instance: FakeInstance) -> None:
        """Begin to end an instance."""
        if instance.ended_at is None:
            instance.ended_at = self.clock.now()
            if self.volumes is not None:
                self.volumes.end(instance.id, self.ending)

    def living(self) -> list[FakeInstance]:
        """List the instances whose end hasn't been requested."""
        return [each for each in self.instances if each.ended_at is None]

    @property
    def place(self) -> str:
        """The place that stands for the whole cloud in API calls."""
        return HERE if self.traits.is_regional else ""

    def phase(self, instance: FakeInstance) -> Phase:
        """Return an instance's phase."""
        if instance.ended_at is None:
            return Phase.PENDING if instance.errored else Phase.RUNNING
        return Phase.ENDING if self.clock.now() - instance.ended_at < self.ending else Phase.GONE

    def shown(self) -> list[FakeInstance]:
        """List what the API shows: instances that are old enough, and, at some clouds, ended ones."""
        now = self.clock.now()
        self.settle()
        known = [each for each in self.instances if each.visible_at <= now]
        keeps_gone = self.keeps_gone or not self.traits.shown_for
        return [each for each in known if not each.vanishes and (keeps_gone or self.phase(each) is not Phase.GONE)]
