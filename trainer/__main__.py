"""`python -m trainer`: handlers first, so that a stop during the imports is kept for the first step."""

import os
import sys

from trainer.signals import StopFlag

if __name__ == "__main__":
    stop = StopFlag()
    stop.install()
    from trainer.cli import main
    from trainer.leave import leave

    exit_code = main(sys.argv[1:], environ=os.environ, stop=stop)
    stop.ignore_further()
    leave(exit_code)
