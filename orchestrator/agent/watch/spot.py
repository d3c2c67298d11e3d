"""Handles spot interruptions: watches for the notice, stops the command, and makes uploads hurry.

Source: Amazon EC2 User Guide, "Spot Instance interruption notices" and "EC2 instance rebalance recommendations", read
in November 2026.
"""

from __future__ import annotations

import contextlib
import time

from ..base import state
from ..base.config import list_tasks
from ..base.files import read_json, write_json
from ..base.layout import Layout
from ..base.runlog import RunLog
from ..base.wire import LIVE, SPOT_NOTICE, STOPPING
from ..run.control import give_notice, request_stop
from ..s3.imds import Metadata, load_object, parse_time

POLL_SECONDS = 5.0
"""AWS's recommended polling interval."""

_PROMISED_SECONDS = 120.0


class SpotLoop:
    """Polls the metadata service."""

    def __init__(self, layout: Layout, log: RunLog) -> None:
        self._layout = layout
        self._log = log
        self._metadata = Metadata()
        told = read_json(layout.note("spot"))
        notice = told.get("notice")
        self._notice = float(notice) if isinstance(notice, int | float) else 0.0
        self._rebalance = str(told.get("rebalance", ""))

    @property
    def notice(self) -> float:
        """When the machine will be interrupted, in Unix seconds; 0 without a notice."""
        return self._notice

    def step(self) -> None:
        """Poll once, and act on the answer.

        Raises:
            OSError: the metadata service doesn't answer.
        """
        notice = instance_action(self._metadata)
        is_news = bool(notice) != bool(self._notice)
        if is_news:
            self._notice = notice
            # First, because the runner says how long its command has; a full disk must not keep it from being stopped.
            with contextlib.suppress(OSError):
                self._keep()
        if self._notice:
            # Repeated every time, because a runner that has just died may have been replaced.
            self._stop()
        else:
            self._recommend(rebalance(self._metadata))
        if is_news:
            self._tell()

    def _stop(self) -> None:
        for task in list_tasks(self._layout).values():
            command = state.load(task).command
            if command.is_live and command.state != STOPPING:
                request_stop(task, SPOT_NOTICE)

    def _tell(self) -> None:
        left = self._notice - time.time()
        what = f"the machine will be interrupted in {left:.0f} s" if self._notice else "it was withdrawn"
        self._log.remark(f"{SPOT_NOTICE}: {what}")

    def _recommend(self, recommended: str) -> None:
        """Ask the command to checkpoint and continue, once for each recommendation."""
        is_at_work = any(each.command.state in LIVE - {STOPPING} for each in state.load_all(self._layout))
        if recommended in ("", self._rebalance) or not is_at_work:
            return
        self._rebalance = recommended
        self._log.remark(f"rebalance recommendation of {recommended}: asking the command to checkpoint")
        give_notice(self._layout, "rebalance recommendation")
        self._keep()

    def _keep(self) -> None:
        write_json(self._layout.note("spot"), {"notice": self._notice, "rebalance": self._rebalance})


def instance_action(metadata: Metadata) -> float:
    """Return when a spot machine will be interrupted, in Unix seconds; 0 for no notice.

    Raises:
        OSError: the metadata service doesn't answer.
    """
    text = metadata.get("spot/instance-action")
    if text is None:
        return 0.0
    try:
        return parse_time(load_object(text)["time"])
    except (KeyError, TypeError, ValueError):
        # It is a notice, even without a valid time.
        return time.time() + _PROMISED_SECONDS


def rebalance(metadata: Metadata) -> str:
    """Return the time of the newest rebalance recommendation, as AWS writes it; empty for none.

    Raises:
        OSError: the metadata service doesn't answer.
    """
    return str(load_object(metadata.get("events/recommendations/rebalance")).get("noticeTime", ""))
