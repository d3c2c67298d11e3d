"""A pytest plugin for mutation testing of the trainer: each change is tried in a fork, up to the first failure.

So the quickest tests come first, and what takes seconds to import is imported before the forks.
"""

import json
from pathlib import Path

import pytest
import torch._dynamo
import torch.distributed._composable.checkpoint_activation
import torch.distributed.fsdp  # noqa: F401

_STATS = Path("mutmut-stats.json")
"""What mutmut has measured, in its working folder."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the seconds that a test took without changes; an unknown one comes first."""
    if _STATS.exists():
        seconds = json.loads(_STATS.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
