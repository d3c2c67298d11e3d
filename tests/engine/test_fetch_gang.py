"""The results of several machines come home, though one of them is silent, or spoils its copy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import STILL_AT_WORK
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.core.protocol.choice import Choice
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import Arrival
from orchestrator.core.task import Task
from orchestrator.core.transfers import DataMover
from orchestrator.engine.steps.fetch import Fetched
from orchestrator.engine.steps.fetch_gang import fetch_from_all
from orchestrator.engine.steps.wanted import Wanted
from orchestrator.engine.world import World
from tests.adapters.objects.backends import FolderBackend, files_below, upload_run
from tests.support.clocks import FakeClock
from tests.support.fakes import MACHINE, NOW, FakeProvider, make_world

RUN = "digits-1a2b"
ADDRESS = SshAddress(host="", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
HEAD, OTHER = (
    replace(MACHINE, id=f"{RUN}-m{rank + 1}", run_id=RUN, rank=rank, address=replace(ADDRESS, host=str(rank)))
    for rank in (0, 1)
)


@dataclass
class Site:
    """Two machines with results, and the connections to them.

    Attributes:
        results: what each machine has, by its rank.
        states: of their commands; the second report of one that ends says that it has.
        silent: ranks that don't answer.
        spoilt: ranks of which no copy can be made.
        changing: what is copied has changed meanwhile.
    """

    results: dict[int, dict[str, bytes]]
    states: dict[int, list[str]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    spoilt: set[int] = field(default_factory=set)
    changing: bool = False

    def connect(self, address: SshAddress) -> Remote:
        if int(address.host) in self.silent:
            raise UnreachableError(f"machine {address.host} doesn't answer")
        return cast("Remote", Agent(self, (HEAD, OTHER)[int(address.host)]))

    def fetch(
        self,
        machine: Machine,
        _folder: str,
        destination: str,
        _progress: object,
        *,
        files: Sequence[ResultFile],
        only: bool,
        within: timedelta,
    ) -> Arrival:
        assert only
        assert within > timedelta(0)
        if machine.rank in self.spoilt:
            raise KedgeError("rsync failed")
        for file in files:
            place = Path(destination) / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.results[machine.rank][file.path])
        return Arrival(different=tuple(file.path for file in files) if self.changing else ())


@dataclass
class Agent:
    site: Site
    machine: Machine

    def run(self, argv: Sequence[str], **_more: Any) -> Completed:
        answer = {"report": self._report, "manifest": self._manifest}[argv[1]]()
        return Completed(exit_code=0, stdout=json.dumps(answer).encode(), stderr=b"")

    def _report(self) -> dict[str, Any]:
        states = self.site.states.get(self.machine.rank, ["succeeded"])
        state = states.pop(0) if len(states) > 1 else states[0]
        times = {"now": 1.0, "created": 0.0, "deadline": 9.0}
        names = {"machine": self.machine.id, "run": RUN, "usd_per_hour": "1"}
        return {**names, **times, "command": {"state": state, "since": 1.0}}

    def _manifest(self) -> list[dict[str, Any]]:
        return [
            {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for path, content in self.site.results[self.machine.rank].items()
        ]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path / "ledger", SystemClock())
    opened.open_run(LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),))), NOW)
    for machine in (HEAD, OTHER):
        opened.put_machine(machine)
    yield opened
    opened.close()


def fetch(ledger: SqliteLedger, site: Site, home: Path, backend: FolderBackend | None, **more: Any) -> Fetched:
    world: World = replace(
        make_world(ledger, FakeProvider(there=(HEAD, OTHER))),
        clock=FakeClock(NOW),
        connector=cast("Connector", site),
        mover=cast("DataMover", site),
        store=backend.store if backend else None,
    )
    chosen = {name: more.pop(name) for name in ("folders", "choice", "tell") if name in more}
    wanted = Wanted(destination=str(home), progress=lambda _done, _total: None, **chosen)
    return fetch_from_all(world, HEAD, wanted, **more)


def usual() -> Site:
    return Site({0: {"checkpoints/s/a": b"a", "run.log": b"0"}, 1: {"checkpoints/s/b": b"b", "run.log": b"1"}})


WHOLE = {"checkpoints/s/a": b"a", "checkpoints/s/b": b"b", "run.log": b"0", "nodes/1/run.log": b"1"}


def test_all_come_and_machines_are_waited_for_whose_commands_follow_the_heads(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    """Copies of machines whose commands are over are final."""
    site = usual()
    site.states[1] = ["running", "running", "stopped"]
    done = fetch(ledger, site, tmp_path / "home", None)
    assert files_below(tmp_path / "home") == WHOLE
    assert done.ended == (HEAD.id, OTHER.id)
    assert done.final is not None
    assert (
        done.note
        == "4 files, 4 B, verified, of 2 machines; 1 of them, at the same path as another machine's, are in nodes/"
    )


@pytest.mark.parametrize("fault", ["silent", "spoilt", "a list that leads out"])
def test_what_a_machine_does_not_give_comes_from_the_store(ledger: SqliteLedger, tmp_path: Path, fault: str) -> None:
    """The other's results still come from itself."""
    site, backend = usual(), FolderBackend(tmp_path / "store")
    upload_run(backend, site.results[1], place="nodes/1/")
    if fault == "a list that leads out":
        site.results[1]["../out"] = b"evil"
    else:
        getattr(site, fault).add(1)
    done = fetch(ledger, site, tmp_path / "run" / "home", backend)
    assert files_below(tmp_path / "run") == {f"home/{path}": content for path, content in WHOLE.items()}
    assert f"{OTHER.id}'s from the object store (" in done.note
    assert HEAD.id in done.ended


def test_results_that_may_come_later_are_not_given_up(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Unless the plan has said so: then the others' are fetched."""
    site = usual()
    site.silent.add(1)
    with pytest.raises(UnreachableError, match="1 doesn't answer"):
        fetch(ledger, site, tmp_path / "home", None)
    done = fetch(ledger, site, tmp_path / "home", None, without=(OTHER.id,))
    assert files_below(tmp_path / "home") == {"checkpoints/s/a": b"a", "run.log": b"0"}
    assert f"nothing of {OTHER.id}" in done.note
    site.silent.add(0)
    with pytest.raises(UnreachableError, match="no results"):
        fetch(ledger, site, tmp_path / "home", None, without=(HEAD.id, OTHER.id))


@pytest.mark.parametrize("folders", [(), ("run.log", "output", "checkpoints")])
def test_what_a_running_command_keeps_changing_is_said(
    ledger: SqliteLedger, tmp_path: Path, folders: tuple[str, ...]
) -> None:
    """Also if only the results of its mode are fetched; once it is over, it is an error."""
    site = replace(usual(), changing=True)
    site.states = {0: ["running"], 1: ["running"]}
    chosen = {"folders": dict(zip(folders, folders, strict=True))}
    assert "which the command keeps changing" in fetch(ledger, site, tmp_path / "home", None, **chosen).note
    site.changing = False
    assert fetch(ledger, site, tmp_path / "home", None, **chosen).note.endswith(STILL_AT_WORK)
    site.changing, site.states = True, {}
    with pytest.raises(KedgeError, match="differs from the machine's"):
        fetch(ledger, site, tmp_path / "home", None, **chosen)
    earlier = {"folders": {"1-first": "1-first"}}
    assert STILL_AT_WORK not in fetch(ledger, site, tmp_path / "home", None, **earlier).note


def test_only_what_is_named_comes_from_each_machine(ledger: SqliteLedger, tmp_path: Path) -> None:
    """What is left on all of them is added up, and such a copy ends no machine."""
    said: list[str] = []
    fetched = fetch(ledger, usual(), tmp_path / "home", None, choice=Choice(only=("*/a", "logs")), tell=said.append)
    assert files_below(tmp_path / "home") == {"checkpoints/s/a": b"a", "run.log": b"0", "nodes/1/run.log": b"1"}
    assert said == ["to fetch: 3 files, 3 B; not fetched, by --only */a,logs: 1 file, 1 B"]
    assert "not fetched, by --only */a,logs: 1 file, 1 B" in fetched.note
    assert (fetched.final, fetched.ended) == (None, ())
    with pytest.raises(BadRequestError, match="no result is called nothing"):
        fetch(ledger, usual(), tmp_path / "home", None, choice=Choice(only=("nothing",)))


def test_outputs_that_stay_on_the_machines_do_not_count_as_fetched(ledger: SqliteLedger, tmp_path: Path) -> None:
    """The outcome is known, but each machine is waited for until it has uploaded them."""
    site = Site({0: {"output/r/a.png": b"a", "output/r/b.pt": b"b"}, 1: {"output/r/c.png": b"c"}})
    fetched = fetch(ledger, site, tmp_path / "home", None, choice=Choice(outputs=("output/r/*.png",)))
    assert files_below(tmp_path / "home") == {"output/r/a.png": b"a", "output/r/c.png": b"c"}
    assert fetched.final is not None
    assert fetched.ended == ()


OLD, NEW = ("checkpoints/step-00000099", "checkpoints/step-00000264")
SHARDS = {rank: {f"{OLD}/{rank}": b"old", f"{NEW}/{rank}": b"new", f"nodes-{rank}.log": b""} for rank in (0, 1)}
INDEXES = {f"{OLD}/index.json": b"{}", f"{NEW}/index.json": b"{}"}


def test_older_checkpoints_of_the_trainer_are_left_to_the_store(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Their shards on all machines, which are waited for until they have uploaded them."""
    site, backend = Site({0: SHARDS[0] | INDEXES, 1: SHARDS[1]}), FolderBackend(tmp_path / "store")
    upload_run(backend, site.results[0])
    upload_run(backend, site.results[1], place="nodes/1/")
    fetched = fetch(ledger, site, tmp_path / "a", backend, choice=Choice(leaves_steps=True))
    whole = {**site.results[0], **site.results[1]}
    assert files_below(tmp_path / "a") == {path: content for path, content in whole.items() if OLD not in path}
    assert "not fetched: 1 older checkpoint, 8 B, which stay in the object store" in fetched.note
    assert fetched.final is not None
    assert fetched.ended == ()


@pytest.mark.parametrize("ended", ["succeeded", "failed"])
def test_what_comes_from_the_store_leaves_them_as_well(ledger: SqliteLedger, tmp_path: Path, ended: str) -> None:
    """If the run had succeeded when its machines uploaded last."""
    site, backend = Site({0: {}, 1: {}}, silent={0, 1}), FolderBackend(tmp_path / "store")
    upload_run(backend, SHARDS[0] | INDEXES, command={"state": ended, "since": 1.0})
    upload_run(backend, SHARDS[1], place="nodes/1/")
    fetched = fetch(ledger, site, tmp_path / "home", backend, choice=Choice(leaves_steps=True))
    assert ("1 older checkpoint, 8 B" in fetched.note) == (ended == "succeeded")
    assert (f"{OLD}/0" in files_below(tmp_path / "home")) == (ended == "failed")
    assert f"{NEW}/1" in files_below(tmp_path / "home")


@pytest.mark.parametrize(
    "why", ["no store", "nothing uploaded", "one of two has uploaded", "spoilt list", "failed", "running"]
)
def test_checkpoints_that_would_be_lost_all_come(ledger: SqliteLedger, tmp_path: Path, why: str) -> None:
    """And those of a run that hasn't succeeded."""
    site = Site({0: SHARDS[0] | INDEXES, 1: SHARDS[1]})
    site.states = {rank: [why if why in ("failed", "running") else "succeeded"] for rank in (0, 1)}
    backend = None if why == "no store" else FolderBackend(tmp_path / "store")
    if backend and why != "nothing uploaded":
        upload_run(backend, site.results[0])
    if backend and why in ("failed", "running"):
        upload_run(backend, site.results[1], place="nodes/1/")
    if backend and why == "spoilt list":
        backend.put("nodes/1/manifest.json", b"{")
    fetched = fetch(ledger, site, tmp_path / "home", backend, choice=Choice(leaves_steps=True))
    assert files_below(tmp_path / "home") == {**site.results[0], **site.results[1]}
    assert "older" not in fetched.note
