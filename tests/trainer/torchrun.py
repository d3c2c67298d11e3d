"""torchrun, with ranks that are forked: `python -m tests.trainer.torchrun ARGUMENTS`.

Each rank is a child of torchrun, as usual, but its imports are done before the fork.
"""

import os
from functools import partial
from typing import Any

import torch.distributed.run
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from tests.support.preloaded.process import PreloadedProcess, Server
from tests.support.preloaded.server import fork_server


def main() -> None:
    server = Server(fork_server(), os.environ)
    handler: Any = subprocess_handler
    handler.Popen = partial(PreloadedProcess, server=server)
    torch.distributed.run.main()


if __name__ == "__main__":
    main()
