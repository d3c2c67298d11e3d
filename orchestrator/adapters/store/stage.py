"""Uploads what a machine needs to start by itself (code, agent, configuration) to its run's prefix in the bucket.

Code and agent are named by their SHA-256. An object of that name may still have another content, because others can
write to the bucket. It is reused only if S3 reports the same checksum, else it is written again.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path

from orchestrator.adapters.host.hashing import sha256_of
from orchestrator.adapters.store.manifest import run_key
from orchestrator.adapters.store.object_store import ObjectStore
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.wire import RunConfig, encode_run_config
from orchestrator.core.transfers import CodeSource, Progress, StagedCode


class Stage:
    """Implements `core.ports.Stage`.

    Args:
        store: the store of the runs' `Results`; nothing is contacted.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> StagedCode:
        """Upload the code, unless the same archive is there already.

        Raises:
            BadRequestError: the tree has something that can't be sent.
            KedgeError: the bucket can't be used.
        """
        with tempfile.TemporaryDirectory(prefix="kedge-code-") as folder:
            packed = Path(folder) / "code.tar.gz"
            written = source.write(str(packed))
            with packed.open("rb") as archive:
                sha256 = sha256_of(archive)
                key = run_key(run_id, f"code/{sha256}.tar.gz")
                if not self._store.has(key, archive):
                    self._store.upload(key, packed, TransferProgress(progress, packed.stat().st_size))
        return StagedCode(hash=written, sha256=sha256)

    def put_start(self, run_id: str, config: RunConfig) -> str:
        """Upload the command's configuration, and return its SHA-256.

        Raises:
            BadRequestError: it has secrets, which must not be stored in a bucket.
            KedgeError: the bucket can't be used.
        """
        if config.secrets:
            raise BadRequestError(
                f"run {run_id} can't start by itself at boot: it has secrets ({', '.join(sorted(config.secrets))})",
                why="they are sent over SSH only, and never written to the bucket",
                fix="leave `start: boot` out of the job file",
            )
        content = encode_run_config(config)
        self._store.write(run_key(run_id, "start.json"), content)
        return hashlib.sha256(content).hexdigest()

    def put_agent(self, run_id: str, archive: bytes) -> str:
        """Upload the agent's archive, unless the same one is there already.

        Returns:
            Its key within the run's prefix: `agent/<sha256>.tar.gz`.

        Raises:
            KedgeError: the bucket can't be used.
        """
        name = f"agent/{hashlib.sha256(archive).hexdigest()}.tar.gz"
        key = run_key(run_id, name)
        if not self._store.has(key, io.BytesIO(archive)):
            self._store.write(key, archive)
        return name
