"""How DigitalOcean writes an instant."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(when: float) -> str:
    """Write an instant as the API does."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
