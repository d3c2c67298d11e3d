"""Names at AWS, made of kedge's ids: the same id always gives the same name."""

from __future__ import annotations

import hashlib
import re

from orchestrator.core.errors import BadRequestError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LONGEST = 64
"""Of a role's name, a schedule's name and a client token."""


def check_id(text: str) -> str:
    """Return an id of a machine or a run unchanged.

    Raises:
        BadRequestError: it could be something else, such as a path or a pattern.
    """
    if not _ID.fullmatch(text):
        raise BadRequestError(f"{text!r} is no id of a machine or run", fix="take one that `kedge status` shows")
    return text


def fit(name: str) -> str:
    """Return a name of at most 64 characters: itself, or its beginning and a digest of the whole."""
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _LONGEST - 17]}-{digest}"


def token(*parts: str) -> str:
    """Return an idempotency token of 64 ASCII characters that stands for exactly these parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def role_name(run_id: str) -> str:
    """Name a run's role, and its instance profile."""
    return fit(f"kedge-run-{run_id}")


def group_name(run_id: str) -> str:
    """Name a run's security group."""
    return fit(f"kedge-{run_id}")
