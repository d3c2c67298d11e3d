"""Entry point of `python -m trainer`: installs signal handlers first, so that a stop during the imports isn't lost."""

import os
import sys
import traceback

from trainer.base.signals import StopFlag


def start() -> None:
    """Run the command line, and end the process with its exit code."""
    stop = StopFlag()
    stop.install()
    from trainer.base.hard_exit import hard_exit  # noqa: PLC0415
    from trainer.cli import main  # noqa: PLC0415

    try:
        exit_code = main(sys.argv[1:], environ=os.environ, stop=stop)
    except Exception:  # noqa: BLE001 - whatever it is ends the process
        # Printed as Python would. Its own shutdown would wait for a process group that other processes may still use.
        traceback.print_exc()
        exit_code = 1
    stop.ignore_further()
    hard_exit(exit_code)


if __name__ == "__main__":
    start()
