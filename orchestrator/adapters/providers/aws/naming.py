"""Names at AWS, made of kedge's ids: the same id always gives the same name."""

from __future__ import annotations

import hashlib

from orchestrator.adapters.ids import fit


def token(*parts: str) -> str:
    """Return an idempotency token of 64 ASCII characters that stands for exactly these parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


SHARED_ROLE = "kedge-runs"
"""The role of all runs, and its instance profile, where `bootstrap --run-role` has made one (account.yaml)."""


def role_name(run_id: str) -> str:
    """Name a run's role, and its instance profile."""
    return fit(f"kedge-run-{run_id}")


def group_name(run_id: str) -> str:
    """Name a run's security group."""
    return fit(f"kedge-{run_id}")
