"""Fixture: an object store of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.objects.backends import Backend, FolderBackend, S3Backend


@pytest.fixture(params=["folder", "s3"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A store of each kind, with direct access to its objects."""
    if request.param == "folder":
        return FolderBackend(tmp_path / "store")
    return S3Backend(request.getfixturevalue("aws"))
