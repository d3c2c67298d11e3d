"""A machine's folder to which sources are downloaded within this process."""

from __future__ import annotations

import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.wire import DataSource, MachineConfig, RunConfig
from orchestrator.agent.data.sources.fetching import fetch_all


class Machine:
    """A machine's folder, to which sources are downloaded within this process."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.layout.prepare()
        self.store_url = ""
        self.retry_seconds = 5.0
        self.volume = ""

    def attach(self, volume: Path, place: str = "disk") -> None:
        """Do what a boot does with a data volume that is mounted somewhere."""
        (self.layout.data / place).symlink_to(volume)
        self.volume = place

    def fetch(self, source: str, target: str = "data/set", index: str = "", **settings: str) -> Path:
        """Download one source, and return its path."""
        target = f"{self.volume}/{target}" if self.volume else target
        config = RunConfig(
            run="r", job="j", mode="", setup="", tasks=(),
            secrets=settings, data=(self.volume or target,), sources=(DataSource(source, target, index),),
        )  # fmt: skip
        now = time.time()
        root = str(self.layout.root)
        machine = MachineConfig("m", "r", "local", root, now, now + 60, "0", store_url=self.store_url)
        fetch_all(self.layout, machine, config, retry_seconds=self.retry_seconds)
        return self.layout.data / target

    def refuse(self, source: str, target: str = "data/set", **settings: str) -> AgentError:
        """Download a source that must be refused, and return the reason."""
        with pytest.raises(AgentError) as caught:
            self.fetch(source, target, **settings)
        return caught.value

    def record(self) -> dict[str, Any]:
        [path] = (self.layout.data / ".fetched").iterdir()
        return dict(json.loads(path.read_text()))


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()
