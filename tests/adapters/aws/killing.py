"""Commands that die at the worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.adapters.aws.world import AwsWorld


def kill_when(aws: AwsWorld, action: str, *volumes: str) -> None:
    """Run a command that creates a machine with data volumes, and kill it when AWS is asked for this."""
    argv = [sys.executable, "-m", "tests.adapters.aws.crashing_creation", str(aws.folder), *volumes]
    command = subprocess.Popen(argv, env={**os.environ, **aws.api.env})
    end = time.monotonic() + 30
    while not aws.api.calls(action=action):
        assert command.poll() is None, "the command ended before"
        assert time.monotonic() < end
        time.sleep(0.02)
    command.send_signal(signal.SIGKILL)
    command.wait(10)
