"""`fetch-data`: downloads the run's data sources. Complete ones aren't downloaded again.

The runner calls it before each attempt, as a process of its own, so that a stop ends it at once. A source is downloaded
to `<root>/data/.fetching/` and moved to its target when it is complete; `<root>/data/.fetched/` records its version.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...base.config import read_run_config
from ...base.errors import AgentError, RequestError
from ...base.files import locked, read_json, write_json
from ...base.layout import Layout
from ...base.parse import clean_relative, read_machine_config
from ...base.wire import DataSource, MachineConfig, RunConfig
from .address import parse_scheme
from .draft import SourceDraft, writing
from .mirror import SCHEME, mirror
from .task import RETRY_SECONDS, FetchedSource, Task
from .transfer_progress import TransferProgress, say
from .web import shown

NOTE = "fetch"
"""The agent's state file with the reason of the last failure."""

_LOCK_SECONDS = 60.0
_KINDS = {"s3": "s3", "https": "https", "http": "https", "git+https": "git", "git+http": "git"} | {
    name: name for name in ("hf", "kaggle")
}


def execute(layout: Layout) -> int:
    """Download the missing sources.

    Raises:
        AgentError: a source can't be downloaded.
    """
    config = read_run_config(layout)
    layout.prepare()
    note = layout.note(NOTE)
    note.unlink(missing_ok=True)
    # An earlier process may still be ending.
    with locked(layout.lock("fetch-data"), timeout=_LOCK_SECONDS):
        try:
            fetch_all(layout, read_machine_config(layout), config)
        except AgentError as err:
            write_json(note, {"error": str(err.args[0])})
            raise
    return 0


def fetch_all(
    layout: Layout, machine: MachineConfig, config: RunConfig, *, retry_seconds: float = RETRY_SECONDS
) -> None:
    """Download every source of a run that isn't here yet.

    Raises:
        AgentError: one of them can't be downloaded.
    """
    for source in config.sources:
        _Source(layout, machine, config, source).fetch(retry_seconds)


class _Source:
    """One source and its target."""

    def __init__(self, layout: Layout, machine: MachineConfig, config: RunConfig, source: DataSource) -> None:
        path = clean_relative(source.target)
        name = hashlib.sha256(path.encode()).hexdigest()[:32]
        self._source = source
        self._layout = layout
        self._machine = machine
        self._settings = {**config.envs, **config.secrets}
        self._target = layout.data / path
        self._record = layout.data / ".fetched" / f"{name}.json"
        # A draft belongs to one source: a partial download of another one is useless.
        self._drafts = layout.data / ".fetching" / name
        self._draft = SourceDraft(self._drafts / hashlib.sha256(source.source.encode()).hexdigest()[:32])
        self._whole = self._draft.folder / "fetched.json"

    def fetch(self, retry_seconds: float) -> None:
        if self._is_fetched():
            return
        if self._source.source.startswith(SCHEME):
            self._mirror()
            return
        if not read_json(self._whole):
            self._fetch(retry_seconds)
        self._put_in_place()

    def _is_fetched(self) -> bool:
        is_recorded = read_json(self._record).get("source") == self._source.source
        return is_recorded and os.path.lexists(self._target)

    def _mirror(self) -> None:
        progress = TransferProgress(self._source.target)
        with self._telling(progress):
            pin = mirror(self._layout, self._machine, self._source, self._target, progress)
            self._remember(self._describe(pin, progress))

    def _fetch(self, retry_seconds: float) -> None:
        self._draft.prepare()
        progress = TransferProgress(self._source.target)
        task = Task(self._source.source, self._draft, progress, self._machine, self._settings, retry_seconds)
        with self._telling(progress):
            fetched = _open(self._source.source)(task)
            place = str(fetched.path.relative_to(self._draft.folder))
            with writing():
                whole = {**self._describe(fetched.version, progress), "path": place}
                write_json(self._whole, whole, mode=0o600, durable=True)

    @contextmanager
    def _telling(self, progress: TransferProgress) -> Iterator[None]:
        """Log the start of a download and its result; turn a failure into AgentError."""
        name = _shown(self._source.source)
        say(f"fetching {name} to {self._source.target}")
        try:
            yield
        except OSError as err:
            fix = "start again: the download resumes where it stopped"
            raise AgentError(f"{name} can't be fetched", why=str(err), fix=fix) from err
        say(f"{self._source.target} is complete: {progress.total()}")

    def _describe(self, version: str, progress: TransferProgress) -> dict[str, Any]:
        return {
            "source": self._source.source,
            "target": self._source.target,
            "version": version,
            "files": progress.files,
            "bytes": progress.bytes,
        }

    def _remember(self, record: dict[str, Any]) -> None:
        with writing():
            self._record.parent.mkdir(exist_ok=True)
            write_json(self._record, record, mode=0o600, durable=True)

    def _put_in_place(self) -> None:
        """Replace the target by the download; an interrupted replacement is completed by the next call."""
        record = read_json(self._whole)
        path = self._draft.folder / record.pop("path")
        with writing():
            self._target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                self._move_away(self._target)
                path.replace(self._target)
        self._remember(record)
        shutil.rmtree(self._drafts, ignore_errors=True)

    def _move_away(self, path: Path) -> None:
        if os.path.lexists(path):
            old = self._drafts / "old"
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()
            path.replace(old / "data")


def _open(source: str) -> Callable[[Task], FetchedSource]:
    """Return the fetch function for a source; its module is imported only when it is used."""
    kind = _KINDS.get(parse_scheme(source))
    if kind is None:
        raise RequestError(
            f"{_shown(source)}: unknown kind of source", fix="use the same version of kedge and of its agent"
        )
    fetch: Callable[[Task], FetchedSource] = importlib.import_module(f".{kind}", __package__).fetch
    return fetch


def _shown(source: str) -> str:
    return shown(source.partition("#")[0]) if source.startswith("http") else source.partition("?")[0]
