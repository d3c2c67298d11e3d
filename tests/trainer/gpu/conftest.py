"""Tests that need a GPU. `make gpu` runs them; elsewhere tests/trainer/test_feature_pairs.py proves their harness."""

import os
from pathlib import Path

import pytest
import torch

from tests.trainer.gpu.features import Outcome, train

# cuBLAS reads it when it is first used (compute.deterministic).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    without = pytest.mark.skip(reason="there is no GPU; tests/trainer/test_feature_pairs.py uses the CPU")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(without)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run without any feature."""
    return train((), tmp_path_factory.mktemp("plain") / "output")
