"""Parses rendered user-data as the machine will, before a machine that boots with it is paid for.

Cloud-init ignores a cloud-config that it can't parse: the machine would bill without a deadline and without a user.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Any

import yaml

from orchestrator.adapters.cloud.boot.cloud_config import BootSpec, render_closing, render_deadline
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
"""What the script that arms the deadline must contain, whatever its template says."""


def check_user_data(content: bytes, spec: BootSpec, files: Mapping[str, str]) -> None:
    """Check that user-data arms the deadline, admits kedge alone, and writes each file as it was rendered.

    Args:
        content: the user-data to send, compressed or not.
        spec: the spec that it was rendered from.
        files: the files that the machine must have, path -> text.

    Raises:
        KedgeError: a check failed; nothing was created.
    """
    config = _read(content)
    first, second, *_ = [*_list(config.get("bootcmd")), None, None]
    arms = (*_ARMS, str(spec.lifetime_seconds))
    if first != _ended(render_deadline(spec)) or not all(part in first for part in arms):
        raise _unreadable("the first thing that it does isn't to arm the deadline")
    if spec.ssh_from and second != _ended(render_closing(spec)):
        raise _unreadable("the second thing that it does isn't to close the machine to everybody else")
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
    """End a text with one newline, as YAML's `|` does."""
    return text.rstrip("\n") + "\n"


def _unreadable(why: str) -> KedgeError:
    return KedgeError(
        "the machine's user-data can't be read again: nothing was created",
        why=why,
        fix="write the names and paths of the job with plain letters; if they are, install kedge again",
    )
