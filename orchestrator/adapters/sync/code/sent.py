"""Remembers the code that each machine was sent last: a hint that saves a request, and may be wrong."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.sync.code.entries import CodeManifest, decode_manifest


class SentCode:
    """One file per machine: the hash on the first line, the manifest on the second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hash(self, machine_id: str) -> str:
        """Return the hash of the code that was sent; empty for none."""
        return self._read(machine_id)[0].decode(errors="replace")

    def manifest(self, machine_id: str) -> CodeManifest | None:
        """Return the manifest of the code that was sent; None if it isn't known."""
        try:
            return decode_manifest(self._read(machine_id)[1])
        except ValueError:
            return None

    def remember(self, machine_id: str, manifest: CodeManifest) -> None:
        """Store the manifest of a machine's current code."""
        write_atomically(self._path(machine_id), manifest.hash.encode() + b"\n" + manifest.encode())

    def forget(self, machine_id: str) -> None:
        """Delete the record of a machine that is gone."""
        self._path(machine_id).unlink(missing_ok=True)

    def _path(self, machine_id: str) -> Path:
        return self._folder / machine_id.replace("/", "_")

    def _read(self, machine_id: str) -> tuple[bytes, bytes]:
        try:
            first, _, second = self._path(machine_id).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return b"", b""
        return first, second
