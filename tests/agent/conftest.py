"""Machines for the agent's tests; whatever a test leaves behind on one is ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.agent.aws import Aws, running_aws
from tests.agent.box import Box
from tests.agent.places import FolderPlace, Place, S3Place
from tests.cloudbox.strict_moto import serving_moto


@pytest.fixture
def make_box(tmp_path: Path) -> Iterator[Callable[..., Box]]:
    """Make machines; a name with spaces and quotes is in every path."""
    boxes: list[Box] = []

    def make(**machine: Any) -> Box:
        boxes.append(Box(tmp_path / f"a 'machine' {len(boxes) + 1}", **machine))
        return boxes[-1]

    yield make
    for box in boxes:
        box.close()


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    """One machine."""
    return make_box()


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """S3, for as long as the tests run."""
    with serving_moto() as url:
        yield url


@pytest.fixture
def aws(moto: str) -> Iterator[Aws]:
    """A bucket of the test's own, and a metadata service with a role."""
    with running_aws(moto, f"kedge-{uuid4().hex}") as running:
        yield running


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An object store of each kind."""
    if request.param == "folder":
        return FolderPlace(tmp_path / "a store")
    return S3Place(request.getfixturevalue("aws"))
