"""A process with a box and a droplet for tests to kill.

python -m tests.cloudbox.digitalocean.parent FOLDER
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cloudbox.digitalocean.box import start_box
from tests.cloudbox.digitalocean.orders import create

if __name__ == "__main__":
    with start_box(Path(sys.argv[1]), machines=True) as do:
        create(do)
        print("created", flush=True)
        signal.pause()
