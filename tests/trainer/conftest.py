import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainer import harness
from tests.trainer.ranks import OnRanks, ranks_as_threads


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, harness.Result]:
    """The digits recipe with its defaults, from the command line, to the end."""
    folder = tmp_path_factory.mktemp("default") / "output"
    return folder, harness.run(folder)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small uninterrupted run on one process; read-only."""
    folder = tmp_path_factory.mktemp("small") / "output"
    torch.set_num_threads(1)
    assert harness.call(folder, *harness.SMALL) == 0
    return folder


@pytest.fixture
def finished(small_run: Path, tmp_path: Path) -> Path:
    """A copy of the small run, which a test may change."""
    return Path(shutil.copytree(small_run, tmp_path / "output"))


@pytest.fixture
def on_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnRanks]:
    """Calls a function on several ranks of a process group."""
    with ranks_as_threads(monkeypatch) as call:
        yield call
