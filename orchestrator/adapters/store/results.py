"""Reads the results that a run's machines have uploaded, from any kind of object store.

`<run id>/manifest.json` lists the files of the head's newest complete upload, `<run id>/blobs/<sha256>` are their
contents; those of other machines are below `<run id>/nodes/RANK/`. The agent writes both, the manifest last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.adapters.host.files import make_destination
from orchestrator.adapters.incoming.arrivals import rename_repository_files
from orchestrator.adapters.incoming.disk_room import require_room
from orchestrator.adapters.store.fetching import Fetching
from orchestrator.adapters.store.manifest import ResultsManifest, UploadedFile, place_of, run_key
from orchestrator.adapters.store.object_store import ObjectStore
from orchestrator.adapters.store.transfer import TransferProgress, in_parallel
from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.decoding import LIST_BYTES, LOG_BYTES, decode, nonsense
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import Arrival, is_below
from orchestrator.core.transfers import LastUpload, Progress
from orchestrator.core.values.units import format_bytes

_NAMED = 3
_VERSIONS = 5
"""How many newer uploads a copy follows."""
_LARGEST = 1 << 60


class Results:
    """Implements `core.ports.ResultStore`.

    Args:
        store: has a folder for each run; nothing is read yet.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """The URL that the agent gets."""
        return self._store.url

    def manifest(self, run_id: str, *, rank: int = 0) -> tuple[ResultFile, ...]:
        """List the results that the machine of a rank has uploaded; empty if there are none.

        Raises:
            NonsenseError: the manifest is invalid.
            KedgeError: the store can't be used.
        """
        files = self._files(run_id, rank)
        return tuple(ResultFile(path=row.path, bytes=row.bytes, sha256=row.sha256, link=row.link) for row in files)

    def last_upload(self, run_id: str, *, rank: int = 0) -> LastUpload | None:
        """Describe the last upload of the machine of a rank; None if there was none.

        Raises:
            NonsenseError: the manifest is invalid.
            KedgeError: the store can't be used.
        """
        manifest = self._read(run_id, rank)
        if manifest is None:
            return None
        at = datetime.fromtimestamp(manifest.time, UTC)
        tasks = {name: task.command for name, task in manifest.tasks.items()}
        return LastUpload(
            machine=manifest.machine,
            command=manifest.command,
            at=at,
            tasks=tasks,
            sequence=manifest.sequence,
            earlier=manifest.earlier,
        )

    def read_file(self, run_id: str, path: str, *, rank: int = 0) -> bytes:
        """Return the end of one file, such as `run.log`, as the machine of a rank uploaded it; empty without one."""
        file = next((file for file in self._files(run_id, rank) if file.path == path and file.has_content), None)
        return self._read_end(run_key(run_id, f"{place_of(rank)}blobs/{file.sha256}"), file.bytes) if file else b""

    def fetch(
        self,
        run_id: str,
        destination: str,
        progress: Progress,
        *,
        folders: Sequence[str] = (),
        rank: int = 0,
        only: Collection[str] | None = None,
    ) -> Arrival:
        """Copy the uploaded results into a folder: each file whole and verified, or not at all.

        Files with the same content stay as they are, and interrupted downloads resume. Links that lead out of the
        results are left out. A machine that uploads meanwhile deletes what it has replaced: then the newer version
        follows.

        Args:
            run_id: the run.
            destination: on the laptop.
            progress: called now and then.
            folders: copy only what lies below these folders of the results; empty for everything.
            rank: whose results, by the machine's number.
            only: copy only these paths; None for everything.

        Raises:
            KedgeError: some files couldn't be copied, but all others were; the disk has no room for them; or the store
                can't be used.
        """

        def list_wanted() -> list[UploadedFile]:
            listed = (file for file in self._files(run_id, rank) if is_below(file.path, folders))
            return [file for file in listed if only is None or file.path in only]

        files = list_wanted()
        if not files:
            return Arrival()
        make_destination(Path(destination))
        counted = TransferProgress(progress, 0)
        fetching = Fetching(self._store, run_key(run_id, f"{place_of(rank)}blobs/"), Path(destination), counted)
        self._fetch(fetching, files, counted)
        for _ in range(_VERSIONS):
            if not fetching.has_missed:
                break
            before, files = files, list_wanted()
            fetching.forget_all_but(files)
            self._fetch(fetching, [file for file in files if file not in before], counted)
        fetching.tidy()
        renamed = rename_repository_files(Path(destination))
        if fetching.problems:
            raise _incomplete([*fetching.problems.values()], len(files))
        return Arrival(left_out=fetching.left_out, renamed={**fetching.renamed, **renamed})

    def _fetch(self, fetching: Fetching, files: Sequence[UploadedFile], counted: TransferProgress) -> None:
        """Copy these files; links come last, after their targets, so that nothing is written through one."""
        require_room(fetching.destination, files)
        counted.expect(sum(file.bytes for file in files))
        for group in ([file for file in files if not file.link], [file for file in files if file.link]):
            in_parallel(fetching.fetch, group, counted, workers=self._store.workers if len(group) > 1 else 1)

    def remove(self, run_id: str) -> None:
        """Remove everything that the store has of a run: results, code, agent.

        Raises:
            KedgeError: the store can't be used.
        """
        self._store.remove(run_key(run_id, ""))

    def _files(self, run_id: str, rank: int = 0) -> tuple[UploadedFile, ...]:
        manifest = self._read(run_id, rank)
        return manifest.files if manifest else ()

    def _read(self, run_id: str, rank: int = 0) -> ResultsManifest | None:
        key = run_key(run_id, f"{place_of(rank)}manifest.json")
        try:
            found = self._store.read(key, LIST_BYTES)
        except OSError as err:
            raise KedgeError(
                f"the list of run {run_id}'s results can't be read",
                why=str(err),
                fix=f"look at {self._store.where(key)}; the files themselves are beside it in blobs/",
            ) from err
        if found is None:
            return None
        what = f"the list of run {run_id}'s results, {self._store.where(key)},"
        if len(found.content) > LIST_BYTES:
            raise nonsense(what, f"it is longer than {format_bytes(LIST_BYTES)}")
        return decode(found.content, ResultsManifest, what=what)

    def _read_end(self, key: str, size: int) -> bytes:
        """Read the end of a file's content; its real size may differ from the listed one."""
        content = bytearray()
        start = min(max(0, size - LOG_BYTES), _LARGEST)
        with contextlib.suppress(FileNotFoundError):
            for chunk in self._store.stream(key, start):
                content += chunk
                if len(content) >= LOG_BYTES:
                    break
        return bytes(content[:LOG_BYTES])


def _incomplete(problems: Sequence[str], count: int) -> KedgeError:
    more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
    return KedgeError(
        f"{len(problems)} of {count} results can't be copied; the others were",
        why="; ".join(problems[:_NAMED]) + more,
        fix="fetch again while their machine still runs, or do without them",
    )
