"""Brings a machine's code to the state of the laptop's, in few bytes and round trips."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

from orchestrator.adapters.host.files import open_to_write
from orchestrator.adapters.sync.code.delivery import Delivery
from orchestrator.adapters.sync.code.entries import CodeManifest
from orchestrator.adapters.sync.code.sent import SentCode
from orchestrator.adapters.sync.code.tree import CodeTree, TreeChangedError, read_tree
from orchestrator.core.errors import KedgeError, agent_error
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Clock, Remote
from orchestrator.core.transfers import CodeSummary, Progress

_ATTEMPTS = 3
_NO_SUCH_BASE = 3
"""The agent's exit code if it doesn't have the base of the changes."""


class GitCodeSource:
    """Implements `core.ports.CodeSource` for a folder, in git or not, and additional packages."""

    def __init__(
        self, workdir: Path | None, *, state: Path, clock: Clock, extras: Mapping[str, Path] | None = None
    ) -> None:
        """Set the parts of the tree; nothing is read yet.

        Args:
            workdir: the folder; None for the packages alone.
            state: a folder for digests, and for the records of what each machine was sent.
            clock: tells the age of files.
            extras: name at the top of the tree -> Python package; names that the workdir has are ignored.
        """
        self._workdir = workdir
        self._extras = extras or {}
        self._caches = state / "digests"
        self._sent = SentCode(state / "sent")
        self._clock = clock
        self._reading = threading.Lock()

    def summary(self) -> CodeSummary:
        """Read the tree, and summarize it."""
        tree = self._read()
        return CodeSummary(hash=tree.manifest.hash, files=len(tree.manifest.entries), bytes=tree.bytes)

    def write(self, path: str) -> str:
        """Write the whole tree to a new file, as a gzip stream for the agent; return the content hash.

        Raises:
            BadRequestError: the tree has something that can't be sent.
            KedgeError: files keep changing, or the file can't be written.
        """
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(TreeChangedError):
                return self._write(Path(path))
        return self._write(Path(path))

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> str:
        """Bring the machine's code to this state and return the content hash.

        Raises:
            BadRequestError: the tree has something that can't be sent.
            UnreachableError: the connection broke; the machine has the old tree or the new one.
            KedgeError: the machine refuses it, or files keep changing.
        """
        base = self._sent.manifest(machine.id)
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(TreeChangedError):
                return self._bring(remote, machine, base, progress)
        return self._bring(remote, machine, base, progress)

    def _write(self, path: Path) -> str:
        # Imported when needed, as in a delivery: a `sync-code` without changes doesn't need it.
        from orchestrator.adapters.sync.code.pack import pack  # noqa: PLC0415

        tree = self._read()
        try:
            with open_to_write(path) as out:
                out.writelines(part.data for part in pack(tree, tree.manifest.entries, zstd=False))
        except OSError as err:
            raise KedgeError(
                f"the code can't be packed into {path}", why=err.strerror or str(err), fix="make room on that disk"
            ) from err
        return tree.manifest.hash

    def _bring(self, remote: Remote, machine: Machine, base: CodeManifest | None, progress: Progress) -> str:
        delivery = Delivery(self._read, base, zstd=machine.zstd)
        done = delivery.send(remote, machine, progress)
        if done.exit_code == _NO_SUCH_BASE and base is not None:
            self._sent.forget(machine.id)
            return self._bring(remote, machine, None, progress)
        if done.exit_code != 0:
            raise agent_error("the machine could not take the code", done.exit_code, done.stderr)
        if base is None or delivery.manifest.hash != base.hash:
            self._sent.remember(machine.id, delivery.manifest)
        return delivery.manifest.hash

    def _read(self) -> CodeTree:
        # For several machines at once, the first one computes the digests for all.
        with self._reading:
            return read_tree(self._workdir, self._extras, self._caches, self._clock)
