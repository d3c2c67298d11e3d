"""Machines for the agent's tests; all processes that a test leaves on one are ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.box import Box
from tests.agent.images import make_wheels
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


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Packages that can be installed without a network."""
    return make_wheels(tmp_path / "wheels", "toy", "another")


@pytest.fixture
def make_machine(make_box: Callable[..., Box], tmp_path: Path) -> Callable[..., Box]:
    """Make a rented machine with its own PATH; if it has GPUs, torch was found at boot."""

    def make(programs: Path, *, image: Path | None = None, archs: tuple[str, ...] = (), **torch: Any) -> Box:
        box = make_box(provider="do", path=[str(image)] if image else [])
        box.env["PATH"] = f"{programs}:/usr/bin:/bin"
        for name in ("PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL"):
            box.env.pop(name, None)
        box.env |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
        if archs:
            note = {"python": f"{image}/python3", "torch": "2.9.1+rocm6.4", "archs": archs, **torch}
            (box.root / "torch.json").write_text(json.dumps(note))
        return box

    return make
