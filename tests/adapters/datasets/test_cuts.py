"""A push or a pull that is interrupted, damaged or overtaken: only the rest is transferred again."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from orchestrator.agent.base.errors import AgentError
from orchestrator.core.errors import ConflictError, KedgeError, UnreachableError
from tests.adapters.datasets.lab import NAME, Lab, noise, picture
from tests.agent.aws import Fault


@pytest.mark.parametrize("through", [0, 1, 2, 6, 12])
def test_an_interrupted_upload_continues(lab: Lab, through: int) -> None:
    """The bucket has the old data set until the new one is complete. Uploaded shards are not sent again."""
    lab.write("old.png", b"old")
    lab.push()
    for number in range(100):
        lab.write(f"{number:03}.png", noise(5_000, number))
    lab.write("large.bin", noise(150_000, 7))
    index = lab.aws.read(f"data/{NAME}/index.json.gz")
    left, lock = [through], threading.Lock()

    def cut(**_context: Any) -> None:
        with lock:
            if not left[0]:
                raise ConnectionClosedError(endpoint_url=lab.aws.gate.url)
            left[0] -= 1

    lab.client.meta.events.register("before-call.s3.*", cut)
    with pytest.raises(UnreachableError):
        lab.push()
    lab.client.meta.events.unregister("before-call.s3.*", cut)
    assert lab.aws.read(f"data/{NAME}/index.json.gz") == index
    there = sum(len(lab.aws.read(key) or b"") for key in lab.shards()) - 3
    assert lab.push() == 650_000 - there
    assert lab.steps.rows[-1] == (650_000, 650_000)
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


def test_a_lost_answer_does_no_harm(lab: Lab) -> None:
    """The index was replaced, but the answer was lost. The next push notices it, and sends nothing."""
    lab.write("a.png", noise(5_000))
    lab.aws.gate.faults.append(Fault("PUT", "index.json.gz", lost=True))
    with pytest.raises(UnreachableError):
        lab.push()
    assert lab.push() == 0
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


def test_an_interrupted_pull_continues(lab: Lab) -> None:
    """Files are complete or absent, and nothing is downloaded twice."""
    lab.write("large.bin", noise(400_000))
    for number in range(30):
        lab.write(f"{number:02}.png", noise(5_000, number))
    lab.push()
    for key in lab.shards()[4:]:
        lab.aws.gate.faults += [Fault("GET", key, status=403, code="AccessDenied")]
    with pytest.raises(OSError, match="AccessDenied"):
        lab.pull()
    lab.aws.gate.faults.clear()
    whole = picture(lab.source)
    assert all(whole[path] == found for path, found in picture(lab.target).items())
    assert 0 < lab.pull() < 550_000
    assert picture(lab.target) == whole
    assert not (lab.target / ".kedge" / "partial").exists()


def test_a_damaged_shard_is_reported_and_not_used(lab: Lab) -> None:
    """The machine verifies every piece."""
    lab.write("a.png", noise(5_000))
    lab.push()
    lab.aws.write(lab.shards()[0], noise(5_000, 2))
    with pytest.raises(Exception, match="damaged"):
        lab.pull()
    assert picture(lab.target) == {}


def test_a_push_during_a_pull_is_reported_and_its_pin_gets_the_new_data_set(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shards of the old index are deleted by then. The machine accepts the new index only with the laptop's pin."""
    lab.write("a.bin", noise(60_000))
    lab.push()
    old = lab.aws.read(f"data/{NAME}/index.json.gz") or b""
    lab.write("a.bin", noise(60_000, 2))
    lab.push()
    new = lab.aws.read(f"data/{NAME}/index.json.gz") or b""
    lab.aws.write(f"data/{NAME}/index.json.gz", old)
    # The newer index is restored as soon as the old one has been read.
    asked_for = lab.aws.gate.fault_for

    def put_back(method: str, path: str) -> Fault | None:
        if "/shards/" in path:
            lab.aws.write(f"data/{NAME}/index.json.gz", new)
        return asked_for(method, path)

    monkeypatch.setattr(lab.aws.gate, "fault_for", put_back)
    with pytest.raises(AgentError, match="damaged"):
        lab.pull()
    lab.pull(lab.pin())
    assert picture(lab.target) == picture(lab.source)


def test_two_laptops_at_once_do_not_mix(lab: Lab, tmp_path: Path) -> None:
    """The second one gets an error, and no shard of the first one's index is deleted."""
    lab.write("a.png", b"base")
    lab.push()
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.png").write_bytes(b"theirs")
    done: list[bool] = []

    def overtake(**_context: Any) -> None:
        if not done:
            done.append(True)
            lab.push(source=other, state=tmp_path / "their state")

    lab.write("a.png", b"ours, longer")
    lab.client.meta.events.register("before-call.s3.PutObject", overtake)
    with pytest.raises(ConflictError):
        lab.push()
    lab.pull()
    assert (lab.target / "a.png").read_bytes() == b"theirs"


def test_a_file_that_changes_meanwhile_is_reported(lab: Lab) -> None:
    """Neither its old nor its new content would arrive."""
    lab.write("a.png", noise(5_000))

    def change(**_context: Any) -> None:
        lab.write("a.png", noise(6_000, 2))

    lab.client.meta.events.register("before-call.s3.ListObjectsV2", change)
    with pytest.raises(KedgeError, match="changes while it is being sent"):
        lab.push()
    assert lab.aws.read(f"data/{NAME}/index.json.gz") is None


def test_a_file_that_is_written_twice_within_a_clock_tick_is_sent(lab: Lab) -> None:
    """A recently changed file is read again, because its stat cannot show a second change."""
    file = lab.write("a.png", b"first")
    stamp = file.stat()
    lab.clock.ahead = timedelta(0)
    data = lab.data()
    data.put(str(lab.source), lambda _done, _total: None, name=NAME)
    file.write_bytes(b"other")
    os.utime(file, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    data.put(str(lab.source), lambda _done, _total: None, name=NAME)
    lab.pull()
    assert (lab.target / "a.png").read_bytes() == b"other"


def test_abandoned_shards_are_deleted_after_two_days(lab: Lab) -> None:
    """Not earlier, because somebody may still be uploading them."""
    lab.aws.write(f"data/{NAME}/shards/{'0' * 64}", b"left by a cut")
    lab.write("a.png", b"a")
    lab.push()
    assert len(lab.shards()) == 2
    lab.clock.ahead = timedelta(days=3)
    lab.write("b.png", b"b")
    lab.push()
    assert f"data/{NAME}/shards/{'0' * 64}" not in lab.shards()
