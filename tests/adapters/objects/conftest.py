from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.objects.shelves import FolderShelf, S3Shelf, Shelf


@pytest.fixture(params=["folder", "s3"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """A store of each kind, with direct access to its objects."""
    if request.param == "folder":
        return FolderShelf(tmp_path / "store")
    return S3Shelf(request.getfixturevalue("aws"))
