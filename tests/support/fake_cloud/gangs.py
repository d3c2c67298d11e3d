"""A cloud in memory that sells several machines at once, agents on them, and a laptop with an account there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from orchestrator.adapters.host.settings import read_settings
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.store.results import Results
from orchestrator.app.acting import teardown_plan
from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.app.launch.recovering import apply_replacing_unfit
from orchestrator.app.root import App
from orchestrator.core.errors import KedgeError, NoCapacityError
from orchestrator.core.job import Job, LaunchSpec, Resources
from orchestrator.core.machine import Machine, MachineOrder, MachineState, SshAddress
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from orchestrator.core.protocol.tree import Arrival
from orchestrator.core.task import Task
from orchestrator.core.transfers import DataMover
from orchestrator.engine.events import Event
from orchestrator.engine.run_progress import RunProgress
from orchestrator.engine.world import World
from tests.chaos.crashing_launch import WRITES
from tests.support.clocks import FakeClock
from tests.support.fakes import FakeProvider, make_world
from tests.support.orders import make_offer

RUN = "digits-1"
HERE, THERE = "here", "there"
JOB = Job(name="digits", tasks=(Task(run="train"),), num_nodes=3, time_limit=timedelta(hours=1))
SPEC = LaunchSpec(run_id=RUN, provider="fake", job=JOB, ssh_from="203.0.113.7/32")


def ids(*numbers: int) -> list[str]:
    return [f"{RUN}-m{number}" for number in numbers]


@dataclass
class Cloud(FakeProvider):
    """Sells in two zones; a machine boots unless it is named in `dead`, and is gone when its end is looked up.

    Attributes:
        clock: advances by a minute with each creation.
        zones: the zones with offers, in order.
        dead: machines that never boot.
        requests: what was asked for, in order: `create ID`, `destroy ID`, `gone ID`, `start ID`, `stop ID`.
        states: of the commands.
        reasons: of these states.
        wanted: for how many machines offers were asked for, each time.
        told: the addresses that each machine was told when it was last started.
    """

    clock: FakeClock = field(kw_only=True)
    zones: tuple[str, ...] = (HERE, THERE)
    dead: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    wanted: list[int] = field(default_factory=list)
    told: dict[str, list[str]] = field(default_factory=dict)

    def offers(self, resources: Resources) -> Sequence[Offer]:
        self.wanted.append(resources.num_nodes)
        return tuple(make_offer("fake", "big", "earth", zone=zone, usd_per_hour=Decimal(2)) for zone in self.zones)

    def create(self, order: MachineOrder) -> Machine:
        self.requests.append(f"create {order.id}")
        return super().create(order)

    def make(self, order: MachineOrder) -> Machine:
        now = self.clock.now()
        self.clock.time += timedelta(minutes=1)
        address = SshAddress(host=order.zone, port=22, user=order.id, host_key="ssh-ed25519 AAAA", key_file="/nowhere")
        return replace(
            super().make(order),
            state=MachineState.BOOTING if order.id in self.dead else MachineState.READY,
            address=None if order.id in self.dead else address,
            private_address=f"192.0.2.{len(self.orders)}",
            created_at=now,
            deadline_at=now + timedelta(seconds=order.lifetime_seconds),
        )

    def destroy(self, machine_id: str) -> None:
        self.requests.append(f"destroy {machine_id}")
        self.there = tuple(
            replace(each, state=MachineState.ENDING) if each.id == machine_id else each for each in self.there
        )

    def describe(self, machine_id: str) -> Machine | None:
        seen = super().describe(machine_id)
        if seen is not None and seen.state is MachineState.ENDING:
            self.requests.append(f"gone {machine_id}")
            self.lose(machine_id)
        return seen

    def lose(self, machine_id: str) -> None:
        """Let a machine disappear."""
        self.there = tuple(each for each in self.there if each.id != machine_id)

    def names(self) -> list[str]:
        return [machine.id for machine in self.there]


@dataclass
class Connector:
    """Connects to machines whose agents know their command's state only."""

    cloud: Cloud

    def connect(self, address: SshAddress) -> Remote:
        return Agent(self.cloud, address.user)

    def forget(self, address: SshAddress) -> None:
        """Do nothing."""

    def opened(self, address: SshAddress) -> Remote | None:
        raise AssertionError(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        raise AssertionError(address, options)

    def close(self) -> None:
        """Do nothing."""


@dataclass
class Agent:
    """The agent of one machine, whose command has no results."""

    cloud: Cloud
    machine: str

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: timedelta | None = None,  # noqa: ARG002
        most: int = ANSWER_BYTES,  # noqa: ARG002
    ) -> Completed:
        verb = argv[1]
        if verb in ("start", "stop"):
            self.cloud.requests.append(f"{verb} {self.machine}")
            if verb == "start":
                self.cloud.told[self.machine] = json.loads(stdin)["addresses"]
            self.cloud.states[self.machine] = {"start": "running", "stop": "stopped"}[verb]
        reason = self.cloud.reasons.get(self.machine, "")
        command = {"state": self.cloud.states.get(self.machine, "idle"), "since": 1.0, "reason": reason}
        now = self.cloud.clock.now().timestamp()
        names = {"machine": self.machine, "run": RUN, "usd_per_hour": "2"}
        report = {**names, "now": now, "created": now, "deadline": now + 3600, "command": command, "heartbeat": now}
        answer = {"report": report, "manifest": []}.get(verb, command)
        return Completed(exit_code=0, stdout=json.dumps(answer).encode(), stderr=b"")

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        raise AssertionError(argv, chunks, timeout)

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        raise AssertionError(argv)

    def close(self) -> None:
        """Do nothing."""


class Mover:
    """Copies results: there are none."""

    def fetch(self, *_args: object, **_kwargs: object) -> Arrival:
        return Arrival()


class Killed(BaseException):
    """The command was killed here."""


class CrashingLedger:
    """The real ledger, of a command that is killed before or after one of its writes."""

    def __init__(self, ledger: SqliteLedger, moment: str, number: int) -> None:
        self._ledger, self._moment, self._left = ledger, moment, number

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._ledger, name)
        return self._counted(call) if name in WRITES else call

    def _counted(self, call: Any) -> Any:
        def write(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._moment == "before":
                # A killed process writes nothing any more, not even what went wrong.
                self._left = 1
                raise Killed
            result = call(*args, **kwargs)
            if self._left == 0:
                self._moment, self._left = "before", 1
                raise Killed
            return result

        return write


class Desk(App):
    """A laptop with an account at the cloud."""

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        super().__init__(read_settings({"KEDGE_STATE_DIR": str(folder)}))
        self.clock = cloud.clock
        self.cloud = cloud
        self.said: list[str] = []
        self.store: Results | None = None

    def world(self, provider: str) -> World:
        assert provider == "fake"
        made = make_world(self.ledger, self.cloud)
        mover = cast("DataMover", Mover())
        return replace(made, clock=self.cloud.clock, connector=Connector(self.cloud), mover=mover, store=self.store)

    def launch(self, spec: LaunchSpec = SPEC) -> RunProgress:
        """Do what `kedge launch --detach` does."""
        plan = observe_and_plan(self, spec, follow=False)

        def apply_plan(plan: Plan) -> RunProgress:
            return self.apply(spec, plan, ignore)

        return apply_replacing_unfit(self, spec, plan, apply_plan, follow=False, say=self.said.append)

    def live(self) -> list[str]:
        """List the machines that cost money, by the ledger."""
        return [machine.id for machine in self.ledger.machines(RUN, live_only=True)]

    def tear_down(self) -> None:
        record = self.named_run(RUN)
        self.reconcile(record)
        plan = teardown_plan(self, record, fetch=False)
        if plan.actions:
            self.apply(record.spec, plan, ignore)
        else:
            self.end(RUN)


def ignore(_event: Event) -> None:
    """Show nothing."""


def refuse(cloud: Cloud, number: int, zone: str, error: type[KedgeError] = NoCapacityError) -> None:
    """Let the cloud refuse the n-th machine in a zone."""
    asked: list[str] = []

    def judge(order: MachineOrder) -> KedgeError | None:
        if order.zone != zone:
            return None
        asked.append(order.id)
        return error("sold out") if len(asked) == number else None

    cloud.refuse = judge
