"""A parent process of a machine, for tests to kill: boots a machine, prints its address, and waits.

python -m tests.cloudbox.machines.parent FOLDER DISK
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cloudbox.machines.lab import make_spec
from tests.cloudbox.machines.machines import Machines

if __name__ == "__main__":
    folder, image = sys.argv[1:]
    spec = make_spec(b"#cloud-config\n{}\n", disks=((image, "vol0"),))
    Machines(Path(folder)).boot(spec, lambda name, powered_off: print("over", name, powered_off, flush=True))
    print(spec.address, flush=True)
    signal.pause()
