"""Machines for the agent's tests; whatever a test leaves behind on one is ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.box import Box
from tests.agent.places import FolderPlace, Place, S3Place


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


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An object store of each kind."""
    if request.param == "folder":
        return FolderPlace(tmp_path / "a store")
    return S3Place(request.getfixturevalue("aws"))
