"""What a run's machines shipped, read back from whatever kind of object store holds it.

`<run id>/manifest.json` names the files of the newest complete copy, `<run id>/blobs/<sha256>` holds their contents.
The agent writes both; the manifest goes last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.adapters.arrivals import disarm
from orchestrator.adapters.files import make_destination
from orchestrator.adapters.objects.bucket import Bucket
from orchestrator.adapters.objects.fetching import Fetching
from orchestrator.adapters.objects.manifest import Manifest, ShippedFile, run_key
from orchestrator.adapters.objects.parallel import in_parallel
from orchestrator.adapters.objects.tally import Tally
from orchestrator.adapters.room import require_room
from orchestrator.core.decoding import LIST_BYTES, LOG_BYTES, decode, nonsense
from orchestrator.core.errors import KedgeError
from orchestrator.core.ports import Progress, Shipment
from orchestrator.core.report import ResultFile
from orchestrator.core.tree import Arrival
from orchestrator.core.units import format_bytes

_NAMED = 3
_LARGEST = 1 << 60


class Results:
    """Implements `core.ports.ResultStore`, but for its url, over a bucket."""

    def __init__(self, bucket: Bucket, *, workers: int) -> None:
        """Name the bucket; nothing is read yet.

        Args:
            bucket: holds a folder for each run.
            workers: how many contents are copied at once.
        """
        self._bucket = bucket
        self._workers = workers

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the results that were shipped, empty for none.

        Raises:
            NonsenseError: the manifest is none.
            KedgeError: the store can't be used.
        """
        files = self._files(run_id)
        return tuple(ResultFile(path=row.path, bytes=row.bytes, sha256=row.sha256, link=row.link) for row in files)

    def last_shipment(self, run_id: str) -> Shipment | None:
        """Say what the agent shipped last; None where it never did.

        Raises:
            NonsenseError: the manifest is none.
            KedgeError: the store can't be used.
        """
        manifest = self._read(run_id)
        if manifest is None:
            return None
        at = datetime.fromtimestamp(manifest.time, UTC)
        return Shipment(machine=manifest.machine, command=manifest.command, at=at)

    def read_file(self, run_id: str, path: str) -> bytes:
        """Return the end of one shipped file, such as `run.log`; empty where it isn't there."""
        file = next((file for file in self._files(run_id) if file.path == path and file.has_content), None)
        return self._read_end(run_id, file) if file else b""

    def fetch(self, run_id: str, destination: str, progress: Progress) -> Arrival:
        """Copy the shipped results into a folder: each whole and verified, or not at all.

        What is there already with the same content stays as it is, and a content that was cut goes on from there.
        Links that lead out of the results are left out.

        Raises:
            KedgeError: some couldn't be copied, all the others were; the disk has no room for them; or the store can't
                be used.
        """
        files = self._files(run_id)
        if not files:
            return Arrival()
        make_destination(Path(destination))
        require_room(Path(destination), files)
        tally = Tally(progress, sum(file.bytes for file in files))
        fetching = Fetching(self._bucket, run_key(run_id, "blobs/"), Path(destination), tally)
        # Links are made when what they lead to is there: nothing is written through one.
        for group in ([file for file in files if not file.link], [file for file in files if file.link]):
            in_parallel(fetching.fetch, group, tally, workers=self._workers if len(group) > 1 else 1)
        fetching.tidy()
        disarmed = disarm(Path(destination))
        if fetching.problems:
            raise _incomplete(fetching.problems, len(files))
        return Arrival(left_out=fetching.left_out, renamed={**fetching.renamed, **disarmed})

    def remove(self, run_id: str) -> None:
        """Remove all that the store holds of a run: results, code, agent.

        Raises:
            KedgeError: the store can't be used.
        """
        self._bucket.remove(run_key(run_id, ""))

    def _files(self, run_id: str) -> tuple[ShippedFile, ...]:
        manifest = self._read(run_id)
        return manifest.files if manifest else ()

    def _read(self, run_id: str) -> Manifest | None:
        key = run_key(run_id, "manifest.json")
        try:
            raw = self._bucket.read(key, LIST_BYTES)
        except OSError as err:
            raise KedgeError(
                f"the list of run {run_id}'s results can't be read",
                why=str(err),
                fix=f"look at {self._bucket.where(key)}; the files themselves lie beside it in blobs/",
            ) from err
        if raw is None:
            return None
        what = f"the list of run {run_id}'s results, {self._bucket.where(key)},"
        if len(raw) > LIST_BYTES:
            raise nonsense(what, f"it is longer than {format_bytes(LIST_BYTES)}")
        return decode(raw, Manifest, what=what)

    def _read_end(self, run_id: str, file: ShippedFile) -> bytes:
        """Read the end of a file's content, whose real size is whatever it is."""
        content = bytearray()
        start = min(max(0, file.bytes - LOG_BYTES), _LARGEST)
        with contextlib.suppress(FileNotFoundError):
            for chunk in self._bucket.stream(run_key(run_id, f"blobs/{file.sha256}"), start):
                content += chunk
                if len(content) >= LOG_BYTES:
                    break
        return bytes(content[:LOG_BYTES])


def _incomplete(problems: Sequence[str], count: int) -> KedgeError:
    more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
    return KedgeError(
        f"{len(problems)} of {count} results can't be copied; the others were",
        why="; ".join(problems[:_NAMED]) + more,
        fix="fetch again while the machine that made them still runs, or go without them",
    )
