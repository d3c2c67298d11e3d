"""Reads a refusal of the API's by the table in refusal_table.py."""

from __future__ import annotations

from orchestrator.adapters.cloud.refusals import Refused, find_refusal
from orchestrator.adapters.providers.digitalocean.instances.refusal_table import GPU_LIMIT, REFUSALS
from orchestrator.adapters.rest.failures import RefusedError


def read_refusal(err: RefusedError) -> Refused:
    """Say what a refused creation means; the API's own error is raised as it is where no row of the table matches."""
    row = find_refusal(REFUSALS, str(err.status), err.message)
    covers = (lambda offer: offer.accelerators is not None) if row is GPU_LIMIT else None
    return Refused(refusal=row, says=err.why, error=err, as_is=err, covers=covers)
