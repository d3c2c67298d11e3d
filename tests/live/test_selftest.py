"""`kedge selftest` in the user's own accounts: real machines, real money, never run by itself.

    .venv/bin/pytest -m live tests/live

The credentials are those of the shell. A provider without any is skipped: there is nothing that could be installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.providers import PROVIDERS

pytestmark = [pytest.mark.live, pytest.mark.timeout(2400)]

WORDS = {"amd": ("--gpu", "mi300x")}
"""A site that sells nothing but GPUs is asked for one."""

CREDENTIALS = {name: entry.sign_in.variables for name, entry in PROVIDERS.items() if entry.sign_in}


@pytest.mark.parametrize("provider", CREDENTIALS)
def test_a_selftest_passes_in_a_real_account(provider: str, tmp_path: Path) -> None:
    """The whole life of a run for a dollar at most; the report stays in the test's folder."""
    if not any(os.environ.get(name) for name in CREDENTIALS[provider]):
        pytest.skip(f"none of {', '.join(CREDENTIALS[provider])} is set")
    words = ["selftest", "--provider", provider, *WORDS.get(provider, ()), "--yes"]
    argv = [sys.executable, "-m", "orchestrator.cli", *words]
    done = subprocess.run(argv, cwd=tmp_path, check=False)
    assert done.returncode == 0, (tmp_path / "kedge-selftest.json").read_text()
