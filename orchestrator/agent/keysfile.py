"""Keys to the object store that the machine was brought, where it has no role."""

from __future__ import annotations

from pathlib import Path

from .imds import Role, load_object
from .sigv4 import Credentials


class KeysFile(Role):
    """Stands in for a role. For all threads.

    Args:
        path: of a JSON file that the machine's user alone can read: access_key and secret_key.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def credentials(self) -> Credentials:
        """Read them, each time anew: they may have been replaced.

        Raises:
            OSError: there are none.
        """
        content = load_object(self._path.read_text())
        try:
            return Credentials(content["access_key"], content["secret_key"])
        except KeyError as err:
            raise OSError(f"{self._path} holds no keys") from err

    def forget(self) -> None:
        """Do nothing: they don't expire."""
