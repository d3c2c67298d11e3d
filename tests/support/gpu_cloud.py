"""A fake cloud with GPUs, some of which fail their burn-in, and fake connections to its machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

from orchestrator.core.job import Resources
from orchestrator.core.machine import EndedBy, Machine, MachineEnd, MachineOrder, MachineState, SshAddress
from orchestrator.core.offer import Accelerators, Offer
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from orchestrator.core.values.site import Site
from tests.support.clocks import FakeClock
from tests.support.fakes import FakeProvider

RUN = "digits-1"
SORRY, BROKEN, DEAD, FINE = "sorry", "broken", "dead", "fine"
"""Zones whose machines fail their burn-in, fail to fetch code, are ended while they start, or boot."""

FAILS_IN = {SORRY: "burn-in", BROKEN: "code"}
ERROR = "AgentError: cuda:2: a bf16 product is off by 2"


@dataclass
class Cloud(FakeProvider):
    """Offers eight GPUs in each of its zones, and confirms a machine's end only at the second query.

    Attributes:
        clock: each creation advances it by the time of a burn-in.
        zones: the zones with offers, in order.
        burn_in: the time of a burn-in.
        confirms: whether it ever confirms that a machine is gone.
    """

    clock: FakeClock = field(kw_only=True)
    zones: tuple[str, ...] = (SORRY, FINE)
    burn_in: timedelta = timedelta(minutes=2)
    confirms: bool = True

    def offers(self, resources: Resources) -> Sequence[Offer]:
        assert resources == Resources(site=Site(ssh_from=resources.site.ssh_from))
        return tuple(make_offer(zone) for zone in self.zones)

    def create(self, order: MachineOrder) -> Machine:
        self.orders.append(order)
        address = SshAddress(
            host=order.zone,
            port=22,
            user=order.id,
            host_key="ssh-ed25519 AAAA",
            key_file="/nowhere",
            provisional=order.zone in FAILS_IN,
        )
        now = self.clock.now()
        made = replace(super().make(order), state=MachineState.READY, address=address)
        lifetime = made.deadline_at - made.created_at
        made = replace(made, created_at=now, deadline_at=now + lifetime)
        if order.zone == DEAD:
            self.ends[order.id] = MachineEnd(by=EndedBy.START, says="Client.InternalError")
            return replace(made, state=MachineState.BOOTING)
        self.there = (*self.there, made)
        self.clock.time += self.burn_in
        return made

    def destroy(self, machine_id: str) -> None:
        self.there = tuple(replace(one, state=MachineState.ENDING) for one in self.there if one.id == machine_id)

    def describe(self, machine_id: str) -> Machine | None:
        seen = super().describe(machine_id)
        if seen is not None and seen.state is MachineState.ENDING and self.confirms:
            self.there = ()
        return seen


def make_offer(zone: str) -> Offer:
    return Offer(
        provider="fake",
        region="earth",
        zone=zone,
        instance_type="big",
        accelerators=Accelerators(name="MI300X", count=8),
        gpu_memory_gib=192,
        cpus=4,
        memory_gib=16,
        disk_gib=100,
        usd_per_hour=Decimal(2),
    )


@dataclass
class FakeRemote:
    """Answers like a machine of a zone after its boot has succeeded or failed."""

    zone: str
    machine: str
    now: float

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        assert (stdin, timeout is not None, most) == (b"", True, ANSWER_BYTES)
        return Completed(exit_code=0, stdout=json.dumps(self._answer(argv[-1])).encode(), stderr=b"")

    def _answer(self, last: str) -> dict[str, object]:
        if last == "report":
            names = {"machine": self.machine, "run": RUN, "usd_per_hour": "2"}
            return {**names, "now": self.now, "created": self.now, "deadline": self.now + 3600}
        assert last == "/nowhere/ready"
        phase = {"phase": FAILS_IN[self.zone], "began": 1, "ended": 2, "ok": False, "error": ERROR}
        return {"ok": False, "phases": [phase]}

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        raise AssertionError(argv, chunks, timeout)

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        raise AssertionError(argv)

    def close(self) -> None:
        """Do nothing."""


@dataclass
class FakeConnector:
    """Connects to a fake machine at every address."""

    clock: FakeClock

    def connect(self, address: SshAddress) -> Remote:
        return FakeRemote(address.host, address.user, self.clock.now().timestamp())

    def opened(self, address: SshAddress) -> Remote | None:
        raise AssertionError(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        raise AssertionError(address, options)

    def forget(self, address: SshAddress) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
