"""Checks ids of machines and runs before they become names, tags and paths."""

from __future__ import annotations

import hashlib
import re

from orchestrator.core.errors import BadRequestError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST = 16


def is_id(text: str) -> bool:
    """Tell whether a text can be an id of a machine or a run."""
    return _ID.fullmatch(text) is not None


def check_id(text: str) -> str:
    """Return an id of a machine or a run unchanged, if it is valid.

    Raises:
        BadRequestError: it isn't an id, and could be a path or a pattern.
    """
    if not is_id(text):
        raise BadRequestError(f"{text!r} is not the id of a machine or run", fix="take one that `kedge status` shows")
    return text


def fit(name: str, longest: int = 64) -> str:
    """Shorten a name to `longest` characters: a longer one becomes its beginning and a digest of the whole name."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: longest - _DIGEST - 1]}-{digest}"
