"""Kill a command that creates a machine, during a chosen call to AWS."""

from __future__ import annotations

import os
import signal
import sys
import time

from tests.adapters.aws.world import AwsWorld
from tests.support.laptop import KEDGE
from tests.support.preloaded.process import PreloadedProcess, but_for_a_sample


def kill_when(aws: AwsWorld, action: str, *volumes: str) -> None:
    """Run a command that creates a machine with data volumes, and kill it when it calls this action."""
    argv = [sys.executable, "-m", "tests.adapters.aws.crashing_creation", str(aws.folder), *volumes]
    command = PreloadedProcess(argv, preload=but_for_a_sample(KEDGE), env={**os.environ, **aws.api.env})
    end = time.monotonic() + 120
    while not aws.api.calls(action=action):
        assert command.poll() is None, "the command ended before it called the action"
        assert time.monotonic() < end
        time.sleep(0.02)
    command.send_signal(signal.SIGKILL)
    command.wait(60)
