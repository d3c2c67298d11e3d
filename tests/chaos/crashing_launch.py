"""Launches for real and kills itself with SIGKILL at one point: before or after the n-th write to the ledger.

Every action lies between two writes, so these points come after every single write and every single action. Run as
`python crashing_launch.py before|after N`; exits with 0 if the launch has fewer writes.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.app.launch.launching import new_launch, observe_and_plan
from orchestrator.app.root import App

WRITES = ("open_run", "end_run", "note_outcome", "intend", "close_intent", "put_machine", "record_machine_end")


class CrashingLedger:
    """The real ledger, in a process that kills itself before or after one of its writes."""

    def __init__(self, ledger: Any, moment: str, number: int) -> None:
        self._ledger = ledger
        self._moment = moment
        self._left = number

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._ledger, name)
        return self._counted(call) if name in WRITES else call

    def _counted(self, call: Any) -> Any:
        def write(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            self._die("before")
            result = call(*args, **kwargs)
            self._die("after")
            return result

        return write

    def _die(self, moment: str) -> None:
        if self._left == 0 and moment == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)


def main(moment: str, number: int) -> None:
    """Launch this folder's job, follow it, fetch, and end the machine, unless killed first."""
    app = App()
    app.ledger = CrashingLedger(app.ledger, moment, number)  # type: ignore[assignment]
    spec = new_launch(app, None, None, Overrides())
    plan = observe_and_plan(app, spec, follow=True)
    app.apply(spec, plan, lambda _event: None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
