"""A machine's working folder, without a machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from orchestrator.agent.base.config import TaskContext
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.code.base_release import stamp
from orchestrator.agent.code.releases import write_record
from orchestrator.agent.results.left_behind import keep_left_behind
from tests.agent.configs import run_config

SENT = {"train.py": "print('hello')", "lib/model.py": "layers = 3"}


class Machine:
    """A machine with code on it, whose command has run."""

    def __init__(self, root: Path, **machine: Any) -> None:
        self.layout = Layout(root)
        self.layout.prepare()
        self.task = self.layout.task("")
        self.task.prepare()
        self.release = self.layout.releases / "abc"
        now = time.time()
        known = {"machine": "digits-1a2b-m1", "run": "digits-1a2b", "provider": "local", "root": str(root)}
        times = {"created": now, "deadline_at": now + 3600, "usd_per_hour": "0"}
        self.machine = MachineConfig(**{**known, **times, **machine})
        for path, text in SENT.items():
            self.write(path, text)
        write_record(self.release, {"hash": "abc", "files": {path: stamp(f"{self.release}/{path}") for path in SENT}})

    def write(self, path: str, text: str, *, age: float = 0) -> None:
        file = self.release / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if age:
            os.utime(file, (time.time() - age, time.time() - age))

    def end(self, *, seconds: float = 60, **config: Any) -> dict[str, Any]:
        """Do what the runner does when the command has ended; return the files that it records."""
        run = run_config(**config)
        context = TaskContext(self.task, self.machine, run, run.tasks[0])
        keep_left_behind(context, self.release, time.time() + seconds)
        return self.said

    @property
    def said(self) -> dict[str, Any]:
        file = self.task.left_behind_file
        return dict(json.loads(file.read_text())) if file.exists() else {}

    @property
    def kept(self) -> dict[str, str]:
        """Return the paths and contents of the kept files."""
        folder = self.task.left_behind
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_text() for path in files}
