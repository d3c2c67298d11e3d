"""When the watch does what, on the way to the deadline. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_SHIPPING_SHARE = 0.05
_SHIPPING_LEAST_SECONDS = 1.0
_SHIPPING_MOST_SECONDS = 60.0


@dataclass(frozen=True)
class Timetable:
    """Instants, in Unix seconds.

    Attributes:
        stop: the command is asked to checkpoint and exit.
        last_ship: what is there is shipped, whether the command is over or not.
        end: the machine is ended, whatever happens.
    """

    stop: float
    last_ship: float
    end: float


def plan_timetable(created: float, deadline: float, grace: float) -> Timetable:
    """Leave time for the grace and for shipping, but never less than half of the lifetime for the command."""
    lifetime = max(0.0, deadline - created)
    shipping = min(max(lifetime * _SHIPPING_SHARE, _SHIPPING_LEAST_SECONDS), _SHIPPING_MOST_SECONDS)
    stop = max(deadline - grace - shipping, created + lifetime / 2)
    return Timetable(stop=stop, last_ship=max(stop, deadline - shipping), end=deadline)
