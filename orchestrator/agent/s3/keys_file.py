"""The object store's keys in a file, for a machine without a role."""

from __future__ import annotations

from pathlib import Path

from .imds import Role, load_object
from .sigv4 import Credentials


class KeysFile(Role):
    """Used in place of a role. Thread-safe.

    Args:
        path: a JSON file that only the machine's user can read, with access_key and secret_key.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def credentials(self) -> Credentials:
        """Read the file, every time, because it may have been replaced.

        Raises:
            OSError: it has no keys.
        """
        content = load_object(self._path.read_text())
        try:
            return Credentials(content["access_key"], content["secret_key"])
        except KeyError as err:
            raise OSError(f"{self._path} has no keys") from err

    def forget(self) -> None:
        """Do nothing, because keys don't expire."""
