"""What each machine was last sent: a hint that spares a question, never a truth to rely on."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.code.entries import Manifest, decode_manifest
from orchestrator.adapters.files import write_atomically


class SentCode:
    """One file a machine: the hash on the first line, the manifest on the second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hash(self, machine_id: str) -> str:
        """Return the hash of what was sent, empty for nothing."""
        return self._read(machine_id)[0].decode(errors="replace")

    def manifest(self, machine_id: str) -> Manifest | None:
        """Return what was sent, None where that isn't known."""
        try:
            return decode_manifest(self._read(machine_id)[1])
        except ValueError:
            return None

    def remember(self, machine_id: str, manifest: Manifest) -> None:
        """Keep what a machine has now."""
        write_atomically(self._path(machine_id), manifest.hash.encode() + b"\n" + manifest.encode())

    def forget(self, machine_id: str) -> None:
        """Drop what is known of a machine that is gone."""
        self._path(machine_id).unlink(missing_ok=True)

    def _path(self, machine_id: str) -> Path:
        return self._folder / machine_id.replace("/", "_")

    def _read(self, machine_id: str) -> tuple[bytes, bytes]:
        try:
            first, _, second = self._path(machine_id).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return b"", b""
        return first, second
