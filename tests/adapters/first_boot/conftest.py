"""Fixtures: a scratch folder that stands for a machine's file system, and one with disks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.first_boot.scratch import Disks, Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)


@pytest.fixture
def disks() -> Iterator[Disks]:
    # Not in tmp_path, which only root can read: a mounted volume belongs to another user.
    folder = Path(tempfile.mkdtemp(prefix="kedge-disks-"))
    folder.chmod(0o755)
    disks = Disks(folder)
    yield disks
    disks.detach()
    shutil.rmtree(folder)
