"""Only one process of this computer at a time creates a machine."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.claims import claim
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError

CLOCK = SystemClock()
HOLDER = """
import sys, time
from datetime import timedelta
from pathlib import Path
from orchestrator.adapters.host.claims import claim
from orchestrator.adapters.host.clock import SystemClock
with claim(Path(sys.argv[1]), "run-1a2b-m1", SystemClock()):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_machine_that_another_process_creates_is_refused_until_that_process_ends(tmp_path: Path) -> None:
    """At once without a time limit; with one, the caller waits for the other process.

    A killed process frees the lock.
    """
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConflictError, match="is being created"), claim(tmp_path, "run-1a2b-m1", CLOCK):
            pytest.fail("two processes create it")
        with claim(tmp_path, "run-1a2b-m2", CLOCK):
            holder.kill()
        with claim(tmp_path, "run-1a2b-m1", CLOCK, within=timedelta(seconds=30)):
            pass


def test_a_claim_ends_with_its_block(tmp_path: Path) -> None:
    """A failed creation blocks nobody."""
    with pytest.raises(KedgeError, match="no capacity"), claim(tmp_path, "run-1a2b-m1", CLOCK):
        raise KedgeError("no capacity")
    with claim(tmp_path, "run-1a2b-m1", CLOCK):
        pass


def test_a_string_that_is_no_machine_id_creates_no_file(tmp_path: Path) -> None:
    """A path in an id would create a lock elsewhere."""
    with pytest.raises(BadRequestError, match="not the id"), claim(tmp_path / "claims", "../m1", CLOCK):
        pass
    assert list(tmp_path.iterdir()) == []
