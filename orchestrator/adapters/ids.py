"""The ids of machines and runs, as they become names, tags and paths outside."""

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
    """Return an id of a machine or a run unchanged.

    Raises:
        BadRequestError: it could be something else, such as a path or a pattern.
    """
    if not is_id(text):
        raise BadRequestError(f"{text!r} is no id of a machine or run", fix="take one that `kedge status` shows")
    return text


def fit(name: str, longest: int = 64) -> str:
    """Return a name of at most so many characters: itself, or its beginning and a digest of the whole."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: longest - _DIGEST - 1]}-{digest}"
