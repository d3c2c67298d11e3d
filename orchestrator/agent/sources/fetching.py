"""`fetch-data`: bring what the run's configuration names as sources. What is complete isn't fetched again.

The runner calls it before each attempt, as a program of its own, so that a stop ends it at once. A source grows in
`<root>/data/.fetching/`, is put in place when it is whole, and `<root>/data/.fetched/` remembers what it was.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..config import read_run_config
from ..errors import AgentError, RequestError
from ..files import locked, read_json, write_json
from ..layout import Layout
from ..parse import clean_relative, read_machine_config
from ..wire import DataSource, MachineConfig, RunConfig
from .draft import Draft, writing
from .mirror import SCHEME, mirror
from .tally import Tally, say
from .task import PATIENCE_SECONDS, Fetched, Task
from .web import shown

NOTE = "fetch"
"""The agent's small file that says why the last fetch failed."""

_LOCK_SECONDS = 60.0
_KINDS = {"s3": "s3", "https": "https", "http": "https", "git+https": "git", "git+http": "git"} | {
    name: name for name in ("hf", "kaggle")
}


def execute(layout: Layout, _args: argparse.Namespace) -> int:
    """Fetch what is missing.

    Raises:
        AgentError: a source can't be had.
    """
    config = read_run_config(layout)
    layout.prepare()
    note = layout.note(NOTE)
    note.unlink(missing_ok=True)
    # Another one may be dying.
    with locked(layout.lock("fetch-data"), timeout=_LOCK_SECONDS):
        try:
            fetch_all(layout, read_machine_config(layout), config)
        except AgentError as err:
            write_json(note, {"error": str(err.args[0])})
            raise
    return 0


def fetch_all(layout: Layout, machine: MachineConfig, config: RunConfig, *, patience: float = PATIENCE_SECONDS) -> None:
    """Bring every source of a run that isn't here yet.

    Raises:
        AgentError: one of them can't be had.
    """
    for source in config.sources:
        _Source(layout, machine, config, source).bring(patience)


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
        # A draft belongs to one source: what was begun of another is of no use.
        self._drafts = layout.data / ".fetching" / name
        self._draft = Draft(self._drafts / hashlib.sha256(source.source.encode()).hexdigest()[:32])
        self._whole = self._draft.folder / "fetched.json"

    def bring(self, patience: float) -> None:
        if self._is_fetched():
            return
        if self._source.source.startswith(SCHEME):
            self._mirror()
            return
        if not read_json(self._whole):
            self._fetch(patience)
        self._put_in_place()

    def _is_fetched(self) -> bool:
        is_recorded = read_json(self._record).get("source") == self._source.source
        return is_recorded and os.path.lexists(self._target)

    def _mirror(self) -> None:
        tally = Tally(self._source.target)
        with self._telling(tally):
            pin = mirror(self._layout, self._machine, self._source, self._target, tally)
            self._remember(self._describe(pin, tally))

    def _fetch(self, patience: float) -> None:
        self._draft.prepare()
        tally = Tally(self._source.target)
        task = Task(self._source.source, self._draft, tally, self._machine, self._settings, patience)
        with self._telling(tally):
            fetched = _open(self._source.source)(task)
            place = str(fetched.path.relative_to(self._draft.folder))
            with writing():
                whole = {**self._describe(fetched.version, tally), "path": place}
                write_json(self._whole, whole, mode=0o600, durable=True)

    @contextmanager
    def _telling(self, tally: Tally) -> Iterator[None]:
        """Say in the log that a fetch begins and what it has brought, or why it can't be done."""
        name = _shown(self._source.source)
        say(f"fetching {name} to {self._source.target}")
        try:
            yield
        except OSError as err:
            fix = "the next start goes on from where this one was"
            raise AgentError(f"{name} can't be fetched", why=str(err), fix=fix) from err
        say(f"{self._source.target} is here: {tally.total()}")

    def _describe(self, version: str, tally: Tally) -> dict[str, Any]:
        return {
            "source": self._source.source,
            "target": self._source.target,
            "version": version,
            "files": tally.files,
            "bytes": tally.bytes,
        }

    def _remember(self, record: dict[str, Any]) -> None:
        with writing():
            self._record.parent.mkdir(exist_ok=True)
            write_json(self._record, record, mode=0o600, durable=True)

    def _put_in_place(self) -> None:
        """Move it over what was there before; interrupted anywhere, the next call goes on."""
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


def _open(source: str) -> Callable[[Task], Fetched]:
    """Return what fetches such a source; its modules are imported when one is wanted."""
    kind = _KINDS.get(source.partition("://")[0])
    if kind is None:
        raise RequestError(
            f"{_shown(source)} is no source that this agent knows", fix="kedge and its agent differ in age"
        )
    fetch: Callable[[Task], Fetched] = importlib.import_module(f".{kind}", __package__).fetch
    return fetch


def _shown(source: str) -> str:
    return shown(source.partition("#")[0]) if source.startswith("http") else source.partition("?")[0]
