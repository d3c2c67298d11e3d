"""Rows for parametrized tests: a kind of cloud, and the faults of its calls in the order in which they occur."""

from __future__ import annotations

from itertools import product

from tests.support.fake_cloud.account import MARK_CLOUD, TOKEN_CLOUD
from tests.support.fake_cloud.volumes import AFTER_START, AT_BIRTH

Faults = tuple[tuple[str, str], ...]
"""Pairs of the call that fails and how it fails; see `FakeCloudApi`."""

CLOUDS = {"token": TOKEN_CLOUD, "mark": MARK_CLOUD}
KINDS_OF_VOLUMES = {"token": AFTER_START, "mark": AT_BIRTH}
LAGS = (0, 20, 60)
"""Seconds until the cloud lists what was created."""
ONE_LAG = (20,)
_CALLS = ("list", "read", "choose", "ensure", "arm", "adopt", "status", "delete")
_OUTCOMES = ("drop", "lost", "late", "very late", "errored", "vanishes", "unsent")
_REFUSALS = ("NEXT_POOL", "STOP", "RETRY", "NOT_YET", "UNCLEAR")
FAULTS: tuple[Faults, ...] = (
    (),
    *(((call, kind),) for call, kind in product(_CALLS, ("error", "drop"))),
    *((("send", kind),) for kind in (*_OUTCOMES, *_REFUSALS)),
    *((("send", kind), ("list", "error")) for kind in ("drop", "lost", "late")),
    *((("send", kind), ("send", kind)) for kind in ("drop", "lost", "RETRY")),
    (("adopt", "error"), ("delete", "error")),
    (("adopt", "error"), ("delete", "drop")),
    (("arm", "error"), ("delete", "error")),
    (("send", "errored"), ("delete", "error")),
)
ROWS = [
    (name, faults)
    for name, faults in product(CLOUDS, FAULTS)
    # A cloud with tokens does not undo a creation that it has accepted.
    if name == "mark" or not {("send", "errored"), ("send", "vanishes")} & set(faults)
]
