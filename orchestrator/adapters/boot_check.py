"""Reads user-data again, as the machine will, before anybody pays for a machine that boots with it.

Cloud-init drops a cloud-config as a whole that it can't read: the machine would have no deadline and no user, and bill.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Any

import yaml

from orchestrator.adapters.boot import BootSpec, render_deadline
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import CLOUD_ADMIN, CLOUD_USER

_GZIP = b"\x1f\x8b"
_HEAD = "#cloud-config\n"
_ARMS = (
    "OnCalendar=",
    "OnActiveSec=",
    "FailureAction=",
    "systemctl --no-block restart kedge-deadline.timer",
    "poweroff",
)
"""What a deadline's script has in it, whatever its template says."""


def check_user_data(content: bytes, spec: BootSpec, files: Mapping[str, str]) -> None:
    """See that user-data arms the deadline, lets kedge in, and writes each file as it was rendered.

    Args:
        content: what the cloud would be sent, compressed or not.
        spec: what it was rendered from.
        files: what the machine is to have, path -> text.

    Raises:
        KedgeError: it doesn't; nothing was created.
    """
    config = _read(content)
    first = next(iter(_list(config.get("bootcmd"))), None)
    arms = (*_ARMS, str(spec.lifetime_seconds))
    if first != _ended(render_deadline(spec)) or not all(part in first for part in arms):
        raise _unreadable("the first thing that it does isn't to arm the deadline")
    users = [user for user in _list(config.get("users")) if isinstance(user, dict)]
    for name in (CLOUD_ADMIN, CLOUD_USER):
        if [user.get("ssh_authorized_keys") for user in users if user.get("name") == name] != [[spec.authorized_key]]:
            raise _unreadable(f"the user {name} doesn't get the key that kedge connects with")
    keys = {"ecdsa_private": spec.host_private_key, "ecdsa_public": spec.host_public_key}
    if config.get("ssh_keys") != keys:
        raise _unreadable("the host key isn't the one by which kedge knows the machine")
    written = {entry["path"]: entry["content"] for entry in _list(config.get("write_files"))}
    for path, text in files.items():
        if written.get(path) != _ended(text):
            raise _unreadable(f"{path} would be another file than was rendered")


def _read(content: bytes) -> dict[str, Any]:
    try:
        text = (gzip.decompress(content) if content.startswith(_GZIP) else content).decode()
        config = yaml.safe_load(text)
    except (OSError, EOFError, zlib.error, ValueError, yaml.YAMLError) as err:
        raise _unreadable(" ".join(str(err).split())) from err
    if not text.startswith(_HEAD) or not isinstance(config, dict):
        raise _unreadable("it isn't a cloud-config")
    return config


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _ended(text: str) -> str:
    """End a text as YAML's `|` does."""
    return text.rstrip("\n") + "\n"


def _unreadable(why: str) -> KedgeError:
    return KedgeError(
        "the machine's user-data can't be read again: nothing was created",
        why=why,
        fix="write the names and paths of the job with plain letters; if they are, install kedge again",
    )
