"""A recipe's operation beside a plain loop, by the process's CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.rounds import Contender


def list_contenders(name: str, plain: Callable[[], object], ours: Callable[[], object]) -> list[Contender]:
    """List the plain loop and the recipe's version, which has to take a tenth at most."""
    peer = f"{name}: plain loop"
    return [
        Contender(name=peer, run=lambda: _clock(plain)),
        Contender(name=f"{name}: vectorised", run=lambda: _clock(ours), against=peer, bar=0.1),
    ]


def _clock(run: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began
