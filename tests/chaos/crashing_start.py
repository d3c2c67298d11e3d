"""Starts another mode for real and kills itself with SIGKILL before or after the n-th write to the ledger.

Run as `python crashing_start.py before|after N RUN MODE NAME=VALUE`; exits with 0 if the start has fewer writes.
"""

from __future__ import annotations

import sys

from orchestrator.adapters.jobfile.overrides import ENVS, Overrides
from orchestrator.app.acting import start_plan
from orchestrator.app.launch.modes import change_run
from orchestrator.app.root import App
from tests.chaos.crashing_launch import CrashingLedger


def main(moment: str, number: int, run: str, mode: str, variable: str) -> None:
    """Start a mode of the run, which stops what runs, unless killed first."""
    app = App()
    app.ledger = CrashingLedger(app.ledger, moment, number)  # type: ignore[assignment]
    changed = change_run(
        app,
        app.named_run(run),
        command=None,
        reread=False,
        mode=mode,
        overrides=Overrides().adding("--env", ENVS, [variable]),
        goes_on=False,
        continues=False,
    )
    app.apply(changed.record.spec, start_plan(app, changed.record), lambda _event: None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6])
