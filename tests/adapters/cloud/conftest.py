"""Fixtures: the golden files, an environment for the tests of a module, a laptop at a fake cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.cloud.goldens import Golden
from tests.adapters.cloud.laptops import Laptop, laptop


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    """The golden files."""
    return Golden(tmp_path)


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """A monkeypatch that lasts for the tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def regional(tmp_path: Path) -> Laptop:
    """A laptop with an account at a fake cloud that has regions."""
    return laptop("token", tmp_path)
