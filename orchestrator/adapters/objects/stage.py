"""What a machine needs to start by itself, laid into the bucket at its run's place."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from orchestrator.adapters.objects.manifest import run_key
from orchestrator.adapters.objects.s3_folder import S3Folder
from orchestrator.adapters.objects.tally import Tally
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ports import CodeSource, Progress
from orchestrator.core.wire import RunConfig

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Stage:
    """Implements `core.ports.Stage`: code and agent are named by their content, and go up once."""

    def __init__(self, client: S3Client, bucket: str, prefix: str = "runs") -> None:
        """Name the place, the same as that of the runs' `S3Store`; nothing is contacted."""
        self._folder = S3Folder(client=client, bucket=bucket, prefix=prefix)

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> str:
        """Bring the code there, unless this content is there already, and return the content hash.

        Raises:
            BadRequestError: the tree holds something that can't be sent.
            KedgeError: the bucket can't be used.
        """
        found = source.summary().hash
        if self._folder.exists(_code_key(run_id, found)):
            return found
        with tempfile.TemporaryDirectory(prefix="kedge-code-") as folder:
            packed = Path(folder) / "code.tar.gz"
            # The tree may have changed since: what was written counts.
            written = source.write(str(packed))
            self._folder.upload(_code_key(run_id, written), packed, Tally(progress, packed.stat().st_size))
        return written

    def put_start(self, run_id: str, config: RunConfig) -> None:
        """Leave the command's configuration there.

        Raises:
            BadRequestError: it holds secrets, which must not lie in a bucket.
            KedgeError: the bucket can't be used.
        """
        if config.secrets:
            raise BadRequestError(
                f"run {run_id} can't start by itself at boot: it has secrets ({', '.join(sorted(config.secrets))})",
                why="they are sent over SSH alone, and never lie in the bucket",
                fix="leave `start: boot` out of the job file",
            )
        self._folder.write(run_key(run_id, "start.json"), msgspec.json.encode(config))

    def put_agent(self, run_id: str, archive: bytes) -> str:
        """Bring the agent's archive there, unless it is there already.

        Returns:
            Its key below the run's place: `agent/<sha256>.tar.gz`.

        Raises:
            KedgeError: the bucket can't be used.
        """
        name = f"agent/{hashlib.sha256(archive).hexdigest()}.tar.gz"
        key = run_key(run_id, name)
        if not self._folder.exists(key):
            self._folder.write(key, archive)
        return name


def _code_key(run_id: str, content_hash: str) -> str:
    return run_key(run_id, f"code/{content_hash}.tar.gz")
