"""The data mover uploads data to the bucket, and then tells the machine to mirror it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.adapters.sync.data.mover import BucketMover
from orchestrator.adapters.sync.data.push import data_name
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import DataMount
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.core.ports import Completed
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import Arrival
from orchestrator.core.transfers import Progress
from tests.adapters.datasets.lab import Lab

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", key_file="key", host_key="ssh-ed25519 AAAA")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
MACHINE = Machine(
    id="m1",
    run_id="r",
    provider="aws",
    provider_id="i-1",
    state=MachineState.READY,
    root="/opt/kedge",
    created_at=NOW,
    deadline_at=NOW + timedelta(hours=1),
    usd_per_hour=Decimal(1),
    address=ADDRESS,
)


class Way:
    """A connector and its only remote, which gives the same answer to every command."""

    def __init__(self, answer: Completed) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []

    def connect(self, address: SshAddress) -> Way:
        assert address == ADDRESS
        return self

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        assert timeout is not None
        assert most == ANSWER_BYTES
        self.asked.append([*argv, *([stdin.decode()] if stdin else [])])
        return self.answer

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        raise NotImplementedError

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def opened(self, address: SshAddress) -> None:
        raise AssertionError(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        raise NotImplementedError

    def forget(self, address: SshAddress) -> None:
        pass


class Direct:
    """A direct mover that records what is fetched."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def send(self, mount: DataMount, machine: Machine, progress: Progress, *, delete: bool = False) -> None:
        raise NotImplementedError

    def fetch(
        self,
        machine: Machine,
        folder: str,
        destination: str,
        progress: Progress,
        *,
        files: Sequence[ResultFile] = (),
        only: bool = False,
        within: timedelta = timedelta(minutes=10),
    ) -> Arrival:
        listed = f"{'only ' if only else ''}{len(files)} listed"
        self.fetched.append(f"{machine.id}:{folder} -> {destination}, {listed}, within {within}")
        progress(1, 1)
        return Arrival()


def nothing(_done: int, _total: int) -> None:
    pass


def test_the_machine_is_told_the_name_the_target_and_the_index(lab: Lab) -> None:
    """This happens once the data set is complete in the bucket. An unchanged index is named without reading it."""
    lab.write("a.png", b"a")
    way = Way(Completed(exit_code=0, stdout=b"", stderr=b""))
    mount = DataMount(source=str(lab.source), target="data/train")
    for _ in range(2):
        BucketMover(lab.data(), way, Direct()).send(mount, MACHINE, nothing)
    name = data_name(str(lab.source), "data/train")
    index = hashlib.sha256(lab.aws.read(f"data/{name}/index.json.gz") or b"").hexdigest()
    assert way.asked == [["/opt/kedge/bin/kedge-agent", "pull-data", "--index", index, name, "data/train"]] * 2


def test_the_error_of_a_failed_mirror_has_the_reason(lab: Lab) -> None:
    """It is the agent's own message."""
    way = Way(Completed(exit_code=1, stdout=b"", stderr=b"kedge-agent: it can't\n  why: AccessDenied\n"))
    mount = DataMount(source=str(lab.source), target="data/train")
    with pytest.raises(KedgeError, match="could not take the data") as caught:
        BucketMover(lab.data(), way, Direct()).send(mount, MACHINE, nothing)
    assert "AccessDenied" in caught.value.why


def test_results_are_fetched_directly_from_the_machine(lab: Lab) -> None:
    """Another port fetches their copy from the bucket."""
    direct = Direct()
    mover = BucketMover(lab.data(), Way(Completed(exit_code=0, stdout=b"", stderr=b"")), direct)
    mover.fetch(
        MACHINE,
        "results",
        "/here",
        nothing,
        files=[ResultFile(path="a", bytes=0, sha256="")],
        only=True,
        within=timedelta(hours=1),
    )
    assert direct.fetched == ["m1:results -> /here, only 1 listed, within 1:00:00"]
