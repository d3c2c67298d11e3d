"""The box starts quickly and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cloudbox.aws.box import start_box
from tests.cloudbox.aws.launches import instances
from tests.support.waiting import wait_until


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_box_ends_with_the_process_that_started_it(death: signal.Signals, tmp_path: Path) -> None:
    """Tests that are killed leave no process and no folder."""
    script = (
        "import time, pathlib\n"
        "from tests.cloudbox.aws.box import start_box\n"
        f"with start_box(pathlib.Path({str(tmp_path)!r}), machines=False) as box:\n"
        "    print(box.process.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    root = Path(__file__).parents[4]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        box = int(tests.stdout.readline())
        assert [path for path in tmp_path.iterdir() if path.is_dir()]
        os.kill(tests.pid, death)

    wait_until(lambda: not psutil.pid_exists(box))
    assert [path.name for path in tmp_path.iterdir()] == ["cloudbox.log"]


def test_box_is_up_in_five_seconds(tmp_path: Path) -> None:
    """Nobody waits for the box: measured in its own seconds, since other tests run beside it."""
    with start_box(tmp_path, machines=False) as box:
        instances(box)
        used = psutil.Process(box.process.pid).cpu_times()

    assert used.user + used.system < 5
