"""A small data set, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainer.generators import generate_data


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two skulls with five defects each; not to be changed."""
    folder = tmp_path_factory.mktemp("skulls") / "data"
    generate_data("voxelization", folder, count=10, seed=3)
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "data"))
