"""Names at AWS, derived from kedge's ids: the same id always gives the same name."""

from __future__ import annotations

from orchestrator.adapters.host.ids import fit

NAME = "aws"
"""kedge's name of the provider."""

SHARED_ROLE = "kedge-runs"
"""The role shared by all runs, and its instance profile, if `bootstrap --run-role` has created it (account.yaml)."""


def role_name(run_id: str) -> str:
    """Return the name of a run's role and instance profile."""
    return fit(f"kedge-run-{run_id}")


def placement_name(run_id: str, zone: str) -> str:
    """Return the name of a run's placement group: one for each zone, because a group that empties keeps its zone."""
    return fit(f"kedge-{run_id}-{zone}")


def group_name(run_id: str) -> str:
    """Return the name of a run's security group."""
    return fit(f"kedge-{run_id}")
