"""What a machine needs to start by itself, laid into the bucket at its run's place.

Code and agent lie under their own SHA-256. What is there under that name may still be something else: others may write
to the bucket. It counts as there when S3 says that its content has the same checksum, else it is written again.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from orchestrator.adapters.objects.manifest import run_key
from orchestrator.adapters.objects.s3_folder import S3Folder
from orchestrator.adapters.objects.tally import Tally
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ports import CodeSource, Progress, StagedCode
from orchestrator.core.wire import RunConfig

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Stage:
    """Implements `core.ports.Stage`."""

    def __init__(self, client: S3Client, bucket: str, prefix: str = "runs") -> None:
        """Name the place, the same as that of the runs' `S3Store`; nothing is contacted."""
        self._folder = S3Folder(client=client, bucket=bucket, prefix=prefix)

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> StagedCode:
        """Bring the code there, unless the very same archive is there already.

        Raises:
            BadRequestError: the tree holds something that can't be sent.
            KedgeError: the bucket can't be used.
        """
        with tempfile.TemporaryDirectory(prefix="kedge-code-") as folder:
            packed = Path(folder) / "code.tar.gz"
            written = source.write(str(packed))
            with packed.open("rb") as archive:
                sha256 = hashlib.file_digest(archive, "sha256").hexdigest()
                key = run_key(run_id, f"code/{sha256}.tar.gz")
                if not self._folder.has(key, archive):
                    self._folder.upload(key, packed, Tally(progress, packed.stat().st_size))
        return StagedCode(hash=written, sha256=sha256)

    def put_start(self, run_id: str, config: RunConfig) -> str:
        """Leave the command's configuration there, and return its SHA-256.

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
        content = msgspec.json.encode(config)
        self._folder.write(run_key(run_id, "start.json"), content)
        return hashlib.sha256(content).hexdigest()

    def put_agent(self, run_id: str, archive: bytes) -> str:
        """Bring the agent's archive there, unless the very same one is there already.

        Returns:
            Its key below the run's place: `agent/<sha256>.tar.gz`.

        Raises:
            KedgeError: the bucket can't be used.
        """
        name = f"agent/{hashlib.sha256(archive).hexdigest()}.tar.gz"
        key = run_key(run_id, name)
        if not self._folder.has(key, io.BytesIO(archive)):
            self._folder.write(key, archive)
        return name
