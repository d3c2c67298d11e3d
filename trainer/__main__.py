"""`python -m trainer`: handlers first, so that a stop during the imports is kept for the first step."""

import os
import sys

from trainer.signals import StopFlag

if __name__ == "__main__":
    stop = StopFlag()
    stop.install()
    from trainer.cli import main

    exit_code = main(sys.argv[1:], environ=os.environ, stop=stop)
    stop.ignore_further()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # All is closed and durable. torch's own threads end in no order at a normal exit: a rank that had succeeded was
        # seen to abort there.
        os._exit(exit_code)
    sys.exit(exit_code)
