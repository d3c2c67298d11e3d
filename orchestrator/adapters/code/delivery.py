"""A tree on its way to a machine: read and packed in the background, while the way there is being opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from orchestrator.adapters.code.ahead import Ahead, Part
from orchestrator.adapters.code.entries import Manifest
from orchestrator.adapters.code.tree import CodeTree
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Completed, Progress, Remote

_SENDING = timedelta(hours=2)


class Delivery:
    """One stream to one machine: what changed since a base, or all of it, or word that nothing has."""

    def __init__(self, read: Callable[[], CodeTree], base: Manifest | None, *, zstd: bool) -> None:
        """Begin to read and to pack.

        Args:
            read: reads the tree.
            base: what the machine was last sent; None to send all.
            zstd: the machine unpacks zstd.
        """
        self._read = read
        self._base = base
        self._zstd = zstd
        self._tree: CodeTree | None = None
        self._total = 0
        self._packing = Ahead(self._pack())

    @property
    def manifest(self) -> Manifest:
        """What was read; known once the stream has been sent."""
        assert self._tree is not None  # noqa: S101 - the stream begins with reading
        return self._tree.manifest

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> Completed:
        """Send the stream, in one round trip.

        Raises:
            TreeChangedError: a file changed under our hands; the machine keeps what it had.
            BadRequestError: the tree holds something that can't be sent.
        """
        base = ["--base", self._base.hash] if self._base else []
        argv = [machine.agent, "receive-code", *base, "--codec", "zstd" if self._zstd else "gzip"]
        packed = self._packing.read(lambda reached: progress(reached, self._total) if reached else None)
        try:
            return remote.send(argv, packed, timeout=_SENDING)
        finally:
            self._packing.drop()

    def _pack(self) -> Iterator[Part]:
        # Imported while the channel opens: tar and zstd cost as much as the way there.
        from orchestrator.adapters.code.pack import pack, pack_unchanged  # noqa: PLC0415

        tree = self._tree = self._read()
        if self._base is not None and self._base.hash == tree.manifest.hash:
            yield pack_unchanged(self._base.hash, zstd=self._zstd)
            return
        entries = tree.manifest.changes_since(self._base) if self._base else list(tree.manifest.entries)
        self._total = sum(entry.size for entry in entries)
        yield from pack(tree, entries, zstd=self._zstd)
