"""Machines' lists of results, and their uploads: manifests in a store, and the list that an agent prints.

Promises: nothing outside of the destination changes, no link in it leads out, git finds no repository, nothing is
setuid; a second fetch changes nothing. The machine that takes a run over restores the same manifest.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from orchestrator.adapters.incoming.arrivals import ResultsPlacer
from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.results.restore import restore
from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.results import parse_results
from tests.fuzz.target import Target
from tests.fuzz.trees import describe, guarded, require_inside

_RUN = "r-1"
_BLOBS = {
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad": b"abc",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": b"",
    # The content of a blob that isn't named by its own hash.
    "0" * 64: b"x" * 100_000,
}


def _run(data: bytes, folder: Path) -> None:
    with guarded(folder, "store", "fetched", "listed", "machine"):
        _fill_store(folder / "store" / _RUN, data)
        with suppress(KedgeError):
            _fetch(folder / "store", folder / "fetched")
        with suppress(KedgeError):
            _bring_home(data, folder / "listed")
        with suppress(AgentError):
            _restore(folder / "store" / _RUN, folder / "machine")
        assert sorted(describe(folder / "store" / _RUN)) == sorted(
            ["blobs", "manifest.json", *(f"blobs/{sha}" for sha in _BLOBS)]
        )


def _fill_store(place: Path, manifest: bytes) -> None:
    (place / "blobs").mkdir(parents=True)
    (place / "manifest.json").write_bytes(manifest)
    for sha256, content in _BLOBS.items():
        (place / "blobs" / sha256).write_bytes(content)


def _fetch(store: Path, destination: Path) -> None:
    shipped = Results(FolderBucket(store))
    destination.mkdir()
    (destination / "kept.txt").write_text("mine")
    try:
        shipped.last_upload(_RUN)
        shipped.read_file(_RUN, "run.log")
        shipped.fetch(_RUN, str(destination), lambda _done, _total: None)
        before = describe(destination)
        shipped.fetch(_RUN, str(destination), lambda _done, _total: None)
        assert describe(destination) == before, "the second fetch changed something"
    finally:
        _require_home(destination)


def _bring_home(data: bytes, folder: Path) -> None:
    home = ResultsPlacer(folder, parse_results(data))
    folder.mkdir()
    try:
        for _, place in home.to_copy()[:10]:
            place.write_bytes(b"abc")
        home.finish()
    finally:
        _require_home(folder)


def _restore(store: Path, root: Path) -> None:
    layout = Layout(root)
    layout.prepare()
    machine = MachineConfig(
        machine="m",
        run=_RUN,
        provider="local",
        root=str(root),
        created=0.0,
        deadline_at=1.0,
        usd_per_hour="1",
        store_url=store.parent.as_uri(),
    )
    try:
        restore(layout, machine, RunLog(lambda: layout.task("").log_file))
    finally:
        require_inside(layout.results)


def _require_home(folder: Path) -> None:
    require_inside(folder)
    for path, (mode, _) in describe(folder).items():
        name = path.rpartition("/")[2].casefold()
        assert stat.S_ISDIR(mode) or name not in {"head", ".git"}, f"git finds {path}"


TARGET = Target(
    name="results",
    run=_run,
    allowed=(),
    tokens=(*(b'"link": "', b'"path": "', b'"..'), *(name.encode() for name in _BLOBS)),
    examples=400,
)
