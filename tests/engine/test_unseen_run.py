"""A machine that starts its command by itself may have run it and ended before any connection to it succeeded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.manifest import ResultsManifest, UploadedFile
from orchestrator.adapters.store.results import Results
from orchestrator.core.actions import AwaitMachine, DestroyMachine, FetchResults, FollowCommand
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.core.task import Task
from orchestrator.engine.apply import apply
from orchestrator.engine.events import Event, Remark
from orchestrator.engine.run_progress import RunProgress
from tests.support.fakes import M1, MACHINE, NOW, RUN, FakeProvider, make_world

SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),)))


@dataclass
class Laptop:
    """A laptop whose run had one machine, which is gone; it never answered."""

    ledger: SqliteLedger
    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def upload(self, machine: str, state: str, *, content: bool = True) -> None:
        """Upload how the command ended, as a machine's agent does; without content, a file of it is missing."""
        files = () if content else (UploadedFile(path="model", bytes=1, sha256="0" * 64, mtime=0),)
        manifest = ResultsManifest(
            machine=machine, command=Command(state=RunState(state)), files=files or (self._log(),)
        )
        (self.folder / "store" / RUN / "manifest.json").write_bytes(msgspec.json.encode(manifest))

    def launch(self, *, follow: bool = True) -> RunProgress:
        """Do what a launch does after the creation of a machine that starts by itself."""
        rest = (
            FollowCommand(machine_id=M1),
            FetchResults(machine_id=M1, destination=str(self.results)),
            DestroyMachine(machine_id=M1),
        )
        plan = Plan(run_id=RUN, actions=(AwaitMachine(machine_id=M1), *(rest if follow else ())), ends=follow)
        store = Results(FolderBucket(self.folder / "store"))
        return apply(plan, SPEC, replace(make_world(self.ledger, FakeProvider()), store=store), self._remark)

    def outcome(self) -> str:
        """Return the run's stage and outcome in the ledger."""
        record = self.ledger.run(RUN)
        assert record is not None
        return f"{record.stage} {record.outcome}"

    def _log(self) -> UploadedFile:
        content = b"trained\n"
        digest = hashlib.sha256(content).hexdigest()
        blob = self.folder / "store" / RUN / "blobs" / digest
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        return UploadedFile(path="run.log", bytes=len(content), sha256=digest, mtime=0)

    def _remark(self, event: Event) -> None:
        if isinstance(event, Remark):
            self.said.append(event.text)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    ledger = SqliteLedger(tmp_path / "ledger", SystemClock())
    ledger.open_run(SPEC, NOW)
    ledger.put_machine(MACHINE)
    (tmp_path / "store" / RUN).mkdir(parents=True)
    yield Laptop(ledger, tmp_path)
    ledger.close()


def test_a_run_that_was_over_before_it_could_be_reached_is_fetched_from_the_store(laptop: Laptop) -> None:
    """Its machine has ended itself, as it should: that is no failure, and the run is closed with its outcome."""
    laptop.upload(M1, "succeeded")
    progress = laptop.launch()
    assert (progress.command.state, progress.finished) == (RunState.SUCCEEDED, True)
    assert (laptop.results / "run.log").read_text() == "trained\n"
    assert laptop.outcome() == "ended succeeded"
    assert laptop.said == []


def test_a_detached_launch_reports_such_a_run_as_over(laptop: Laptop) -> None:
    """It doesn't follow the command; the run's results wait in the store."""
    laptop.upload(M1, "failed")
    assert laptop.launch(follow=False).command.state is RunState.FAILED
    assert laptop.outcome() == "live failed"


def test_results_of_such_a_run_that_cannot_be_fetched_are_an_error(laptop: Laptop) -> None:
    """The run stays open, so that the fetch can be repeated."""
    laptop.upload(M1, "succeeded", content=False)
    with pytest.raises(KedgeError):
        laptop.launch()
    assert laptop.outcome() == "live succeeded"


@pytest.mark.parametrize(("machine", "state"), [("", ""), (M1, "running"), (f"{RUN}-m0", "succeeded")])
def test_a_machine_that_was_lost_while_it_booted_is_reported(laptop: Laptop, machine: str, state: str) -> None:
    """Nothing is uploaded, or not the end, or the end of an earlier attempt on another machine."""
    if machine:
        laptop.upload(machine, state)
    with pytest.raises(UnreachableError, match="was gone before it had booted"):
        laptop.launch()
    assert laptop.outcome() == "live "
