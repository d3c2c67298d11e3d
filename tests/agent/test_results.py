"""`manifest`: the list of a machine's results that a fetch gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.agent.base.layout import Layout
from orchestrator.agent.results.listing import execute

ROUNDS = 200


@contextmanager
def pruning(folder: Path) -> Iterator[None]:
    """A command that writes checkpoints and removes them again, all the time."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            names = [folder / f"step-{number}.pt" for number in range(50)]
            for name in names:
                name.write_bytes(b"weights")
            for name in names:
                name.unlink()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def test_a_checkpoint_that_is_pruned_meanwhile_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fetch during a training that keeps only its newest checkpoints lists those that exist."""
    layout = Layout(tmp_path)
    layout.prepare()
    task = layout.task("")
    task.prepare()
    (task.output / "model.pt").write_bytes(b"best")
    with pruning(task.checkpoints):
        codes = {execute(layout) for _ in range(ROUNDS)}
    assert codes == {0}
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all("output/model.pt" in {file["path"] for file in files} for files in listed)
