"""Running rsync: whatever it prints, it comes to an end."""

from __future__ import annotations

import os

import pytest

from orchestrator.adapters.sync.rsync_run import run_rsync
from orchestrator.core.errors import NonsenseError

COMPLAINS_AGAIN = "trap 'head -c 200000 /dev/zero >&2; exit 20' TERM; while :; do head -c 1000 /dev/zero >&2; done"


def test_a_copy_that_is_ended_for_its_errors_can_print_more_of_them() -> None:
    """Rsync reports the signal that ends it. If nobody read that, it would wait forever."""
    with pytest.raises(NonsenseError, match="it goes on for more than"):
        run_rsync(["bash", "-c", COMPLAINS_AGAIN], os.environ, lambda _done, _total: None)
