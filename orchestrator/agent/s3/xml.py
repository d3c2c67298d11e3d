"""Parses S3's XML responses safely, because any endpoint may have sent them."""

from __future__ import annotations

from xml.etree import ElementTree

_MOST = 16 << 20


def parse(content: bytes) -> ElementTree.Element:
    """Parse a response.

    Raises:
        OSError: it is too long, isn't XML, or defines entities, which may expand without limit.
    """
    try:
        text = content.decode().strip()
        _require_plain(text)
        return ElementTree.fromstring(text)  # noqa: S314 - it is plain
    except (ValueError, ElementTree.ParseError) as err:
        raise OSError(f"S3's response is invalid: {err}") from err


def error_code(content: bytes) -> str:
    """Return the code of an error response; empty for anything else."""
    try:
        return parse(content).findtext("{*}Code", "")
    except OSError:
        return ""


def _require_plain(text: str) -> None:
    if len(text) > _MOST or "<!DOCTYPE" in text:
        raise ValueError("it is too long, or has a document type")
