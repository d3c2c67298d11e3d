"""Create and destroy one local machine as the current user, and print what was observed as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.adapters.local.box import make_box


def main() -> None:
    box = make_box(Path(sys.argv[1]) / "box")
    machine = box.provider().create(box.order())
    argv = box.ssh_argv(machine)
    # sftp needs no login shell, and the account may have none.
    sftp = ["sftp", "-b", "-", *(word if word != "-p" else "-P" for word in argv[1:])]
    listing = subprocess.run(sftp, input=f"ls {box.base}\n", capture_output=True, text=True, check=False, timeout=30)
    box.provider().destroy(machine.id)
    seen = {
        "uid": os.getuid(),
        "user": machine.address.user if machine.address else "",
        "state": machine.state,
        "sftp": listing.returncode,
        "stderr": listing.stderr,
        "left": box.leftovers(),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
