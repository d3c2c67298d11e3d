"""Runs a training script on this computer, as so many ranks: `python train_alone.py SCRIPT RANKS`.

The ranks are forked after torch is imported, once for all of them; on machines, torchrun starts each anew.
"""

import os
import runpy
import socket
import sys

# DistributedDataParallel imports it late, which takes a second.
import torch._dynamo  # noqa: F401


def main() -> int:
    script, ranks = sys.argv[1], int(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            runpy.run_path(script, run_name="__main__")
            raise AssertionError("the script ends the process")
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
