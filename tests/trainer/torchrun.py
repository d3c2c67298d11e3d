"""torchrun, with ranks that are forked: `python -m tests.trainer.torchrun ARGUMENTS`.

Each rank is a child of torchrun, as usual, but its imports are done before the fork.
"""

import os
import traceback
from functools import partial
from typing import Any

import torch.distributed.run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from tests.support.preloaded.process import PreloadedProcess, Server
from tests.support.preloaded.server import fork_server
from trainer.base.hard_exit import hard_exit


def _no_name(_depth: int = 2) -> str:
    return "not looked up"


def main() -> int:
    server = Server(fork_server(), os.environ)
    handler: Any = subprocess_handler
    handler.Popen = partial(PreloadedProcess, server=server)
    # The names of torchrun's own events, which nobody reads: to find one, it searches all modules, for 0.1 s.
    rendezvous: Any = dynamic_rendezvous
    rendezvous.get_method_name = _no_name
    try:
        torch.distributed.run.main()
    except ChildFailedError:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    hard_exit(main())
