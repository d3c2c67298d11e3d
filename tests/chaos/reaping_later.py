"""Reaps for real on a clock that is ahead of the computer's, and that shortens waiting times.

Run as `python reaping_later.py SECONDS [--all] [PROVIDER ...]`; prints and exits like `kedge reap --yes`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.app.root import App
from orchestrator.cli.tasks.reaping import reap_until_clean
from orchestrator.core.errors import KedgeError


class ClockAhead(SystemClock):
    """The computer's clock, set forward."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        """Return the time of this clock."""
        return datetime.now(UTC) + self._ahead

    def sleep(self, duration: timedelta) -> None:
        """Wait a twentieth of the time, and count all of it."""
        super().sleep(duration / 20)
        self._ahead += duration * 19 / 20


def main(seconds: str, *words: str) -> int:
    """Reap at every provider, or at those named."""
    providers = [word for word in words if word != "--all"]
    app = App()
    app.clock = ClockAhead(timedelta(seconds=float(seconds)))
    try:
        reap_until_clean(app, providers, everyone="--all" in words, dry_run=False, yes=True, as_json=False)
    except KedgeError as err:
        print(f"error: {err}", file=sys.stderr)
        return err.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
