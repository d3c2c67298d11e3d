"""An account at a cloud: what is in it, what of it is shown, and what bills."""

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
from tests.support.fake_volumes import FakeVolumes

HERE = "here"
"""The one region."""
CLOSED = "the place is closed"
"""Why a place can't be asked that is closed to the account."""

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
"""Like AWS: regions, a token, a guard outside, an end that is asked for once, instances listed for a while after it."""

MARK_CLOUD = Traits(
    name="mark",
    speaker="the mark cloud",
    noun="droplet",
    idempotency=MarkAndLookUp(),
    boot=_FORMAT,
    shown_for=timedelta(minutes=3),
    id_first=True,
)
"""Like DigitalOcean and Lambda: sent once and looked up, and deleted until it isn't shown any more."""


@dataclass
class FakeInstance:
    """What the account has.

    Attributes:
        number: in the order of making.
        visible_at: from then on it is listed, and known by its id.
        ended_at: when its deletion was accepted, or the cloud ended it itself.
        errored: its creation was accepted, and fails.
        vanishes: nothing is shown of it then.
        marked: it still has its marks.
        named: they say which machine it is.
        edited: what somebody has changed its marks to, by the fields of `Instance`.
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
        """The cloud's name for it."""
        return f"i-{self.number:04}"


@dataclass
class FakeCloud:
    """The account, shared by all computers.

    Attributes:
        lag: how long after its making an instance isn't known to anybody.
        ending: how long an instance is shown as ending after its deletion.
        too_new: for so long an accepted deletion of an instance has no effect.
        faults: the call that each strikes, in the order of striking; see `FakeCloudApi`.
        keys: what runs have besides machines: run -> when the cloud knows it everywhere.
        open_to: who may reach port 22 of a run's machines.
        configured: the regions that the user's configuration names.
        closed: regions besides the one that don't answer this account.
        shouts: marks come back in capitals.
        keeps_gone: what is gone is listed on and on; by default only where a deletion isn't waited for.
        guards: what ends machines from outside: machine -> instance and deadline.
        reserved: addresses that bill by themselves: instance -> address.
        volumes: None where it has none.
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
        """Make an instance."""
        now = self.clock.now()
        made = FakeInstance(len(self.instances) + 1, draft, now, now + self.lag)
        self.instances.append(made)
        if self.volumes is not None:
            born_with = draft.volumes if self.volumes.traits.attaches_at_birth else ()
            self.volumes.start(made.id, draft.order.run_id, born_with)
        self.most_at_once = max(self.most_at_once, len(self.living()))
        return made

    def settle(self) -> None:
        """Let happen what time has brought: late requests arrive."""
        now = self.clock.now()
        due, self.coming = [each for each in self.coming if each[0] <= now], [x for x in self.coming if x[0] > now]
        for _, draft in due:
            if not self.of_token(draft):
                self.make(draft)

    def of_token(self, draft: Draft[str, str]) -> list[FakeInstance]:
        """List what a request with the same token has made."""
        return [each for each in self.instances if draft.token and each.draft.token == draft.token]

    def billing(self) -> list[FakeInstance]:
        """List what costs money now."""
        self.settle()
        return [each for each in self.instances if self.phase(each) is not Phase.GONE]

    def end(self, instance: FakeInstance) -> None:
        """Begin to end an instance."""
        if instance.ended_at is None:
            instance.ended_at = self.clock.now()
            if self.volumes is not None:
                self.volumes.end(instance.id, self.ending)

    def living(self) -> list[FakeInstance]:
        """List what nobody has ended."""
        return [each for each in self.instances if each.ended_at is None]

    @property
    def place(self) -> str:
        """What the whole of it is called by those who ask."""
        return HERE if self.traits.is_regional else ""

    def phase(self, instance: FakeInstance) -> Phase:
        """Say where an instance is in its life."""
        if instance.ended_at is None:
            return Phase.PENDING if instance.errored else Phase.RUNNING
        return Phase.ENDING if self.clock.now() - instance.ended_at < self.ending else Phase.GONE

    def shown(self) -> list[FakeInstance]:
        """List what the cloud shows: what is old enough, and, where it keeps them for a while, what is gone."""
        now = self.clock.now()
        self.settle()
        known = [each for each in self.instances if each.visible_at <= now]
        keeps_gone = self.keeps_gone or not self.traits.shown_for
        return [each for each in known if not each.vanishes and (keeps_gone or self.phase(each) is not Phase.GONE)]
