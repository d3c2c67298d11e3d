"""Extends a run for real and kills itself with SIGKILL at one point: before or after the n-th write to the ledger.

Run as `python crashing_extend.py before|after N RUN TIME`; exits with 0 if the move has fewer writes.
"""

from __future__ import annotations

import sys

from orchestrator.app.extending import extension_plan, read_move
from orchestrator.app.root import App
from tests.chaos.crashing_launch import CrashingLedger


def main(moment: str, number: int, run: str, by: str) -> None:
    """Move the run's deadline, unless killed first."""
    app = App()
    spec, plan, _ = extension_plan(app, app.named_run(run), read_move(by, None, app.clock.now()))
    app.ledger = CrashingLedger(app.ledger, moment, number)  # type: ignore[assignment]
    app._worlds.clear()
    app.apply(spec, plan, lambda _event: None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
