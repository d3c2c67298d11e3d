"""Plans the watch's last actions before the deadline: stop, last upload, end. Pure."""

from __future__ import annotations

from .record import Record

_UPLOAD_SHARE = 0.05
_UPLOAD_LEAST_SECONDS = 1.0
_UPLOAD_MOST_SECONDS = 60.0


class Timetable(Record):
    """Instants, in Unix seconds.

    Attributes:
        stop: when the command is asked to checkpoint and exit.
        last_upload: when the results are uploaded, even if the command is still running.
        end: when the machine is ended in any case.
    """

    stop: float
    last_upload: float
    end: float


def plan_timetable(created: float, deadline_at: float, grace: float) -> Timetable:
    """Reserve time for the grace period and the upload, but leave the command at least half of the lifetime."""
    lifetime = max(0.0, deadline_at - created)
    upload = min(max(lifetime * _UPLOAD_SHARE, _UPLOAD_LEAST_SECONDS), _UPLOAD_MOST_SECONDS)
    stop = max(deadline_at - grace - upload, created + lifetime / 2)
    return Timetable(stop=stop, last_upload=max(stop, deadline_at - upload), end=deadline_at)
