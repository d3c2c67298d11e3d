"""Ending a process whose work is closed and durable."""

import os
import sys
from typing import NoReturn


def leave(exit_code: int) -> NoReturn:
    """End this process.

    One of a group goes without Python's own ending: a thread of gloo's may be just about to let go of a tensor that
    Python knows, isn't given Python's lock any more, and aborts (torch 2.13, seen in 3 of 45 exits).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        os._exit(exit_code)
    sys.exit(exit_code)
