"""Sends a code tree to a machine: reads and packs it in the background while the connection is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from orchestrator.adapters.sync.code.entries import CodeManifest
from orchestrator.adapters.sync.code.read_ahead import ReadAhead, StreamPart
from orchestrator.adapters.sync.code.tree import CodeTree
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.transfers import Progress

_SENDING = timedelta(hours=2)


class Delivery:
    """One stream to one machine: the changes since a base, the whole tree, or the message that nothing has changed."""

    def __init__(self, read: Callable[[], CodeTree], base: CodeManifest | None, *, zstd: bool) -> None:
        """Start to read and pack.

        Args:
            read: reads the tree.
            base: the manifest that the machine was sent last; None to send everything.
            zstd: the machine can unpack zstd.
        """
        self._read = read
        self._base = base
        self._zstd = zstd
        self._tree: CodeTree | None = None
        self._total = 0
        self._packing = ReadAhead(self._pack())

    @property
    def manifest(self) -> CodeManifest:
        """The tree's manifest; known once the stream has been sent."""
        assert self._tree is not None  # noqa: S101 - the stream begins with reading
        return self._tree.manifest

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> Completed:
        """Send the stream, in one round trip.

        Raises:
            TreeChangedError: a file changed while it was sent; the machine keeps its old tree.
            BadRequestError: the tree has something that can't be sent.
        """
        base = ["--base", self._base.hash] if self._base else []
        argv = [machine.agent, "receive-code", *base, "--codec", "zstd" if self._zstd else "gzip"]
        packed = self._packing.read(lambda reached: progress(reached, self._total) if reached else None)
        try:
            return remote.send(argv, packed, timeout=_SENDING)
        finally:
            self._packing.drop()

    def _pack(self) -> Iterator[StreamPart]:
        # Imported while the channel opens: importing tar and zstd takes as long as connecting.
        from orchestrator.adapters.sync.code.pack import pack, pack_unchanged  # noqa: PLC0415

        tree = self._tree = self._read()
        if self._base is not None and self._base.hash == tree.manifest.hash:
            yield pack_unchanged(self._base.hash, zstd=self._zstd)
            return
        entries = tree.manifest.changes_since(self._base) if self._base else list(tree.manifest.entries)
        self._total = sum(entry.size for entry in entries)
        yield from pack(tree, entries, zstd=self._zstd)
