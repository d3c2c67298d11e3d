"""Two machines of a run with one deadline, whose timers, provider and ledger a command moves, and can be killed at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.core.task import Task
from orchestrator.engine.world import World
from tests.support.fake_cloud.process import Process
from tests.support.fakes import RUN, FakeProvider, make_world

HOUR = timedelta(hours=1)
OLD = datetime(2036, 11, 24, 12, tzinfo=UTC)
NEW = OLD + 2 * HOUR
SPEC = LaunchSpec(
    run_id=RUN,
    provider="fake",
    job=Job(name="digits", tasks=(Task(run="train"),), time_limit=HOUR),
    recover=True,
    until=OLD,
)
NAMES = (f"{RUN}-m1", f"{RUN}-m2")


@dataclass
class Timer:
    """A machine's own timer, which it moves when root asks; its clock is an hour ahead."""

    machine_id: str
    at: datetime = OLD
    answers: bool = True
    refuses: bool = False
    loses_answers: bool = False
    tells: bytes | None = None
    users: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], process: Process) -> Completed:
        if not self.answers:
            raise UnreachableError(f"{self.machine_id} doesn't answer")
        if list(argv) == ["date", "+%s"]:
            now = f"{int((datetime.now(UTC) + HOUR).timestamp())}\n".encode()
            return Completed(exit_code=0, stdout=now if self.tells is None else self.tells, stderr=b"")
        assert argv[-3:-1] == ["extend", "--deadline"]
        if self.refuses:
            return Completed(exit_code=1, stdout=b"", stderr=b"error: the timer can't be written")
        process.step()
        self.at = datetime.fromtimestamp(int(argv[-1]), UTC) - HOUR
        process.step()
        if self.loses_answers:
            self.answers = self.loses_answers = False
            raise UnreachableError(f"the answer of {self.machine_id} is lost")
        return Completed(exit_code=0, stdout=b"", stderr=b"")


@dataclass
class Place:
    """What outlives a command: the machines, their provider, and the ledger's file."""

    ledger: SqliteLedger
    provider: FakeProvider
    timers: dict[str, Timer]

    def world(self, process: Process | None = None) -> World:
        process = process or Process()
        world = make_world(cast("SqliteLedger", Killable(self.ledger, process)), self.provider)
        provider = cast("FakeProvider", Killable(self.provider, process))
        return replace(world, provider=provider, connector=cast("Connector", Lines(self.timers, process)))

    def deadlines(self) -> dict[str, set[datetime]]:
        """Where each keeper of a deadline has it, to the minute."""
        record = self.ledger.run(RUN)
        assert record is not None
        return {
            "timers": {near(each.at) for each in self.timers.values()},
            "provider": {near(each.deadline_at) for each in self.provider.there},
            "ledger": {near(each.deadline_at) for each in self.ledger.machines(RUN)},
            "run": {near(record.spec.until or OLD)},
        }

    def everywhere(self, at: datetime) -> bool:
        return self.deadlines() == {name: {at} for name in ("timers", "provider", "ledger", "run")}


class Killable:
    """Something whose changes a process does, so that it can be killed before and after each."""

    CHANGES = ("intend", "close_intent", "put_machine", "open_run", "move_deadline")

    def __init__(self, real: Any, process: Process) -> None:
        self._real = real
        self._process = process

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name not in self.CHANGES:
            return found
        return lambda *args, **kwargs: self._process.act(lambda: found(*args, **kwargs))


@dataclass
class Lines:
    """Connections to the machines."""

    timers: dict[str, Timer]
    process: Process

    def connect(self, address: SshAddress) -> Remote:
        timer = self.timers[address.host]
        if not timer.answers:
            raise UnreachableError(f"{timer.machine_id} doesn't answer")
        return cast("Remote", Line(timer, address.user, self.process))

    def forget(self, _address: SshAddress) -> None:
        return


@dataclass
class Line:
    """One connection."""

    timer: Timer
    user: str
    process: Process

    def run(self, argv: Sequence[str], **_options: object) -> Completed:
        self.timer.users.append(f"{self.user} {' '.join(argv[:2])}" if "extend" in argv else self.user)
        return self.timer.run(argv, self.process)


def near(at: datetime) -> datetime:
    """Round to the minute: a machine counts whole seconds, and ends some earlier, never later."""
    return (at + timedelta(seconds=30)).replace(second=0, microsecond=0)
