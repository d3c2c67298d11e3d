"""What a newcomer's computer needs of this one's package index, so that its pip finds the same packages.

Passed as variables of the user's shells, and as read-only folders at the same paths: no file is written.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.cloudbox.nspawn import rootfs

_NAMES = re.compile(
    r"(PIP|UV)_\w+|SSL_CERT_(FILE|DIR)|(REQUESTS_CA|CURL_CA)_BUNDLE|((HTTPS?|ALL|NO)_PROXY)", re.IGNORECASE
)
_SETTING = re.compile(r"(?:global|install)\.([a-z-]+)='(.*)'")
_WARM = rootfs.CACHE / "pip"
_CACHE = "/srv/pip-cache"
_USER_ID = 1000
"""The first user on a Debian."""


def index_environment() -> dict[str, str]:
    """Return pip's configuration on this computer as variables, configuration files included."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    settings = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in _SETTING.findall(listed)}
    variables = {name: value for name, value in os.environ.items() if _NAMES.fullmatch(name)}
    return {**settings, **variables, "PIP_CACHE_DIR": _CACHE}


def index_folders(environment: dict[str, str]) -> list[str]:
    """Return systemd-nspawn's arguments that mount the folders in these variables, and a warm cache."""
    _WARM.mkdir(parents=True, exist_ok=True)
    os.chown(_WARM, _USER_ID, _USER_ID)
    words = [word for value in environment.values() for word in value.split()]
    # An index may refer to files next to it.
    indexes = [Path(unquote(urlsplit(word).path)).parent for word in words if word.startswith("file://")]
    folders = {path for path in (*indexes, *map(Path, words)) if path.is_absolute() and path.exists()}
    return [*(f"--bind-ro={folder}" for folder in sorted(folders)), f"--bind={_WARM}:{_CACHE}"]
