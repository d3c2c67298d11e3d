"""Write access to the bucket can't make a machine run or accept anything but what the laptop pinned."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.boots import order, outcomes, readiness
from tests.agent.box import Box
from tests.agent.configs import encode
from tests.agent.places import Place
from tests.agent.trees import pack, tree_of

MakeBox = Callable[..., Box]
HASH = "hash0001"
CODE = {"train.py": b"print('mine')\n"}
EVIL = {"train.py": b"open('/tmp/evil', 'w')\n"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Staged:
    """What a laptop has staged in the store for one boot, and the order that pins it."""

    def __init__(self, store: Place, box: Box, command: str, **config: Any) -> None:
        self.box = box
        self._store = store
        code = gzip.compress(pack(HASH, CODE))
        start = encode(box.config(command, **config))
        self.code_key = f"code/{sha256(code)}.tar.gz"
        store.write(self.code_key, code)
        store.write("start.json", start)
        order(box, code=HASH, code_sha256=sha256(code), start_sha256=sha256(start))

    def replace_code(self, content: bytes) -> None:
        """Do what a hostile machine with the bucket's keys can do."""
        self._store.write(self.code_key, content)

    def replace_start(self, command: str) -> None:
        self._store.write("start.json", encode(self.box.config(command)))

    def boot(self) -> tuple[str, str]:
        """Boot; return the phase that failed, and why."""
        assert self.box.call("boot").returncode == 1
        phase = readiness(self.box.root)["phases"][-1]
        return phase["phase"], phase["error"]


def data_index(store_url: str, name: str, files: dict[str, bytes]) -> bytes:
    """Write a data set next to the runs in a folder store, and return its index."""
    place = Path(store_url.removeprefix("file://")) / "data" / name
    (place / "shards").mkdir(parents=True, exist_ok=True)
    rows = []
    for path, content in files.items():
        (place / "shards" / sha256(content)).write_bytes(content)
        piece = {"shard": sha256(content), "offset": 0, "bytes": len(content), "sha256": sha256(content)}
        rows.append({"path": path, "mode": 0o755, "mtime_ns": 1_700_000_000_000_000_000, "pieces": [piece]})
    index = {"format": 1, "is_file": False, "files": rows, "links": {}, "folders": [], "shards": {}}
    raw = gzip.compress(json.dumps(index).encode())
    (place / "index.json.gz").write_bytes(raw)
    return raw


def test_a_boot_with_matching_pins_succeeds(make_box: MakeBox, store: Place) -> None:
    """The order's pins match what was staged: code is in place, and the command runs."""
    box = make_box(store_url=store.url, env=store.env)
    Staged(store, box, "python3 train.py")
    assert box.call("boot").returncode == 0, readiness(box.root)
    box.await_state("succeeded")
    assert "mine" in box.log()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip.compress(pack(HASH, EVIL)), id="another tree that claims the same hash"),
        pytest.param(gzip.compress(pack(HASH, CODE)) + gzip.compress(b"more"), id="more behind the end"),
        pytest.param(gzip.compress(pack(HASH, CODE), 1), id="the same tree, packed by somebody else"),
    ],
)
def test_code_replaced_in_the_bucket_never_runs(make_box: MakeBox, store: Place, content: bytes) -> None:
    """An archive names its own content hash, so that hash proves nothing; the boot order's SHA-256 does."""
    box = make_box(store_url=store.url, env=store.env)
    staged = Staged(store, box, "python3 train.py")
    staged.replace_code(content)
    phase, why = staged.boot()
    assert (phase, "was replaced" in why) == ("code", True), why
    assert tree_of(box) == {}
    assert box.command()["state"] == "idle"


def test_a_configuration_replaced_in_the_bucket_never_starts(make_box: MakeBox, store: Place, tmp_path: Path) -> None:
    """`start.json` is as good as a shell script: whoever can write it decides what runs."""
    box = make_box(store_url=store.url, env=store.env)
    staged = Staged(store, box, "python3 train.py")
    staged.replace_start(f"touch {tmp_path}/evil")
    phase, why = staged.boot()
    assert (phase, "was replaced" in why) == ("start", True), why
    assert not (tmp_path / "evil").exists()


def test_an_order_without_pins_fetches_nothing(make_box: MakeBox, store: Place) -> None:
    """An older order, or one that was cut off: the pins can't be bypassed."""
    box = make_box(store_url=store.url, env=store.env)
    Staged(store, box, "python3 train.py")
    order(box, code=HASH, start=True)
    assert box.call("boot").returncode == 1
    assert outcomes(box.root)[-1] == ("agent", False)
    assert tree_of(box) == {}


def test_data_with_a_replaced_index_is_refused(make_box: MakeBox, tmp_path: Path) -> None:
    """A data set's index lists its files: a hostile index adds programs."""
    url = (tmp_path / "bucket").as_uri()
    box = make_box(store_url=url)
    pin = sha256(data_index(url, "set-1", {"a.bin": b"mine"}))
    data_index(url, "set-1", {"a.bin": b"mine", "sitecustomize.py": b"evil"})
    source = {"source": "kedge-data://set-1", "target": "set", "index": pin}
    box.start("ls set", data=["set"], sources=[source])
    box.await_state("failed")
    assert "was replaced" in box.log()
    assert not (box.root / "data/set/sitecustomize.py").exists()


def test_data_that_the_laptop_has_synced_since_is_accepted(make_box: MakeBox, tmp_path: Path) -> None:
    """`sync-data` tells the machine the new index over SSH, and the next attempt uses it."""
    url = (tmp_path / "bucket").as_uri()
    box = make_box(store_url=url)
    old = sha256(data_index(url, "set-1", {"a.bin": b"old"}))
    new = sha256(data_index(url, "set-1", {"a.bin": b"new"}))
    assert box.call("pull-data", "--index", new, "set-1", "set").returncode == 0
    source = {"source": "kedge-data://set-1", "target": "set", "index": old}
    box.start("cat set/a.bin", data=["set"], sources=[source])
    box.await_state("succeeded")
    assert "new" in box.log()
