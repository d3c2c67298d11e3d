"""Sends code and prints the result in one line, without loading rich."""

from __future__ import annotations

import json
import sys
import time

from orchestrator.app.root import App
from orchestrator.app.syncing import send_code
from orchestrator.cli.terminal.streams import draw
from orchestrator.core.ledger import RunRecord
from orchestrator.core.values.units import format_bytes

_PATIENCE_S = 1.0
"""How long to draw nothing: most transfers are done by then."""


class _Moved:
    """Counts bytes, and shows them on a terminal if the transfer takes long."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.bytes = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __call__(self, done: int, total: int) -> None:
        self.bytes = done
        if self.seconds > _PATIENCE_S and sys.stderr.isatty():
            of = f" of {format_bytes(total)}" if total else ""
            draw(f"\r\033[Ksending {format_bytes(done)}{of}", stderr=True)


def send_and_say(app: App, record: RunRecord, *, as_json: bool) -> None:
    """Send the code of a run, and print in one line what was sent."""
    moved = _Moved()
    content_hash = send_code(app, record, moved)
    if moved.seconds > _PATIENCE_S and sys.stderr.isatty():
        draw("\r\033[K", stderr=True)
    if as_json:
        print(json.dumps({"run": record.run_id, "code": content_hash, "sent_bytes": moved.bytes}))
    elif moved.bytes:
        print(f"Code {content_hash[:12]} is in place: {format_bytes(moved.bytes)} of files in {moved.seconds:.1f} s.")
    else:
        print(f"Code {content_hash[:12]} is in place already; nothing was sent.")
