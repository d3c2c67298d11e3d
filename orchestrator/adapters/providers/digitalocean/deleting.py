"""Deletes a droplet, and believes in its end only when the API shows it no longer.

An accepted deletion is no end: one of a droplet that is still `new` has been without effect, and one that is carried
out takes seconds. It is asked for again, with growing pauses, as long as the droplet is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.digitalocean.droplets import delete_droplet, read_droplet
from orchestrator.adapters.providers.digitalocean.failures import RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.core.ports import Clock

GONE_IN = timedelta(minutes=3)

_IN_PROGRESS = (409, 422)
"""Of a second deletion, while the first is carried out."""


def delete_until_gone(api: Api, clock: Clock, droplet_id: int, is_settled: Callable[[], bool]) -> bool:
    """Delete a droplet until the API shows it no longer; False where it still does after some minutes.

    Args:
        api: the way to the account.
        clock: lets time pass between attempts.
        droplet_id: the droplet.
        is_settled: tells whether the API would know it by now: a 404 for a younger one says nothing.

    Raises:
        ApiError: the API doesn't delete it.
    """
    known = False

    def is_gone() -> bool:
        nonlocal known
        try:
            if not delete_droplet(api, droplet_id):
                return known or is_settled()
        except RefusedError as err:
            if err.status not in _IN_PROGRESS:
                raise
        known = True
        return read_droplet(api, droplet_id) is None

    return wait_until(clock, GONE_IN, is_gone)
