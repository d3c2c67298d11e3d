from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.adapters.objects.shelves import FolderShelf, S3Shelf, Shelf
from tests.agent.aws import Aws, running_aws
from tests.cloudbox.strict_moto import serving_moto


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    with serving_moto() as url:
        yield url


@pytest.fixture
def aws(moto: str) -> Iterator[Aws]:
    """A bucket of the test's own."""
    with running_aws(moto, f"kedge-{uuid4().hex}") as running:
        yield running


@pytest.fixture(params=["folder", "s3"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """A store of each kind, and the way in at its back."""
    if request.param == "folder":
        return FolderShelf(tmp_path / "store")
    return S3Shelf(request.getfixturevalue("aws"))
