"""`fetch-data`: downloads the run's data sources. Complete ones aren't downloaded again.

The runner calls it before each attempt, as a process of its own, so that a stop ends it at once. A source is downloaded
to `<root>/data/.fetching/` and moved to its target when it is complete; `<root>/data/.fetched/` records its version.

Of a target within a data volume, download and record are on the volume, too: the next machine finds the data there, or
resumes the download. Data of another address is replaced; data that kedge hasn't fetched is not (data/fetched.py).
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
from ...base.files import locked, read_json, sync_disk, sync_folder, write_json
from ...base.layout import Layout
from ...base.parse import clean_relative, read_machine_config
from ...base.tree_rule import is_tree_path, make_folders
from ...base.wire import DataSource, MachineConfig, RunConfig
from ..fetched import is_occupied, record_beside, remove_fetched
from .address import parse_scheme
from .draft import FullDiskError, SourceDraft, full_disk, is_full, writing
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
        self._is_mirrored = source.source.startswith(SCHEME)
        self._volume = "" if self._is_mirrored else _find_volume(config, path)
        name = _hash(path.removeprefix(self._volume))[:32]
        self._source = source
        self._layout = layout
        self._machine = machine
        self._settings = {**config.envs, **config.secrets}
        self._target = layout.data / path
        self._record = layout.data / ".fetched" / f"{name}.json"
        self._identity = source.source
        if self._volume:
            self._record = record_beside(self._target)
            # An address may have a signature, which isn't left on a volume.
            self._identity = f"{_shown(source.source)} sha256:{_hash(source.source)}"
        self._drafts = layout.data / self._volume / ".fetching" / name
        # A draft belongs to one source: a partial download of another one is useless.
        self._draft = SourceDraft(self._drafts / _hash(source.source)[:32])
        self._whole = self._draft.folder / "fetched.json"

    def fetch(self, retry_seconds: float) -> None:
        """Download it, unless it is here, and put it in place.

        Raises:
            AgentError: it can't be downloaded, or other data is at its target.
        """
        if self._volume:
            self._make_folders()
        if self._is_fetched():
            if self._volume:
                say(f"{self._source.target} is on its volume already: {self._describe_record()}")
            self._discard_drafts()
        elif self._is_mirrored:
            self._mirror()
        else:
            self._refuse_others_data()
            self._discard_drafts(but=self._draft.folder)
            try:
                if not self._is_downloaded():
                    self._fetch(retry_seconds)
                self._put_in_place()
            except FullDiskError as err:
                raise self._explain(err) from err

    def _make_folders(self) -> None:
        """Create the folders on the volume; whoever had it before may have left links there."""
        root = self._layout.data / self._volume
        with writing():
            for path in (self._target, self._draft.folder / "download"):
                make_folders(root, str(path.relative_to(root)))

    def _is_fetched(self) -> bool:
        is_recorded = read_json(self._record).get("source") == self._identity
        return is_recorded and os.path.lexists(self._target)

    def _is_downloaded(self) -> bool:
        """Whether the download is complete: in its draft, or moved to the target by a replacement that was cut off."""
        place = str(read_json(self._whole).get("path", ""))
        is_moved = read_json(self._record).get("placing") == self._identity and os.path.lexists(self._target)
        return is_tree_path(place) and (os.path.lexists(self._draft.folder / place) or is_moved)

    def _refuse_others_data(self) -> None:
        if self._volume and not self._record.exists() and is_occupied(self._target):
            raise AgentError(
                f"{self._source.target} on the volume holds other data, which is not replaced",
                why="kedge has no record of having fetched it",
                fix="choose another target in `data`, or remove it from the volume",
            )

    def _mirror(self) -> None:
        progress = TransferProgress(self._source.target)
        with self._telling(progress):
            remove_fetched(self._target)
            pin = mirror(self._layout, self._machine, self._source, self._target, progress)
            self._remember(self._describe(pin, progress))

    def _fetch(self, retry_seconds: float) -> None:
        self._whole.unlink(missing_ok=True)
        self._draft.prepare()
        progress = TransferProgress(self._source.target)
        task = Task(self._source.source, self._draft, progress, self._machine, self._settings, retry_seconds)
        with self._telling(progress):
            fetched = _open(self._source.source)(task)
            place = str(fetched.path.relative_to(self._draft.folder))
            with writing():
                if self._volume:
                    # The volume may lose its machine at any time: without this the record could survive, not the data.
                    sync_disk(self._draft.folder)
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
            if is_full(err):
                raise full_disk(str(err)) from err
            fix = "start again: the download resumes where it stopped"
            raise AgentError(f"{name} can't be fetched", why=str(err), fix=fix) from err
        say(f"{self._source.target} is complete: {progress.total()}")

    def _describe(self, version: str, progress: TransferProgress) -> dict[str, Any]:
        return {
            "source": self._identity,
            "target": self._source.target,
            "version": version,
            "files": progress.files,
            "bytes": progress.bytes,
        }

    def _describe_record(self) -> str:
        version = read_json(self._record).get("version")
        return f"{_shown(self._source.source)}{f', version {version}' if version else ''}"

    def _explain(self, err: FullDiskError) -> AgentError:
        if not self._volume:
            return err
        return AgentError(
            f"{self._source.target} doesn't fit on the volume at {self._volume}",
            why=err.why,
            fix=f"use a larger volume, or remove files from it; unfinished downloads are in {self._volume}.fetching",
        )

    def _remember(self, record: dict[str, Any]) -> None:
        with writing():
            self._record.parent.mkdir(exist_ok=True)
            write_json(self._record, record, mode=0o600, durable=True)

    def _put_in_place(self) -> None:
        """Replace the target by the download; an interrupted replacement is completed by the next call."""
        record = read_json(self._whole)
        path = self._draft.folder / record.pop("path")
        if os.path.lexists(path):
            with writing():
                self._target.parent.mkdir(parents=True, exist_ok=True)
            # From here on the target isn't what an earlier record says.
            self._remember({"placing": self._identity})
            with writing():
                self._move_away(self._target)
                path.replace(self._target)
                sync_folder(self._target.parent)
        self._remember(record)
        self._discard_drafts()

    def _move_away(self, path: Path) -> None:
        if os.path.lexists(path):
            old = self._drafts / "old"
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()
            path.replace(old / "data")

    def _discard_drafts(self, *, but: Path | None = None) -> None:
        """Remove downloads for this target; each loses its note first, which says that it is complete."""
        if not self._drafts.is_dir():
            return
        for draft in [path for path in self._drafts.iterdir() if path != but]:
            (draft / self._whole.name).unlink(missing_ok=True)
            sync_folder(draft)
            shutil.rmtree(draft, ignore_errors=True)
        if but is None:
            shutil.rmtree(self._drafts, ignore_errors=True)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _find_volume(config: RunConfig, target: str) -> str:
    """Return the volume that holds a target, as `<its folder>/`; empty for none: other folders of data have their own.

    A target that is a whole entry of `data` has a place of its own; only a volume has targets within it.
    """
    places = (f"{clean_relative(place)}/" for place in config.data)
    return next((place for place in places if target.startswith(place)), "")


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
