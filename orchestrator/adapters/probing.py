"""Probes that all clouds' checkups share: this computer's clock, the bucket for results, and what is for sale."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from orchestrator.core.checkup import ProbeResult, Verdict
from orchestrator.core.errors import UnreachableError
from orchestrator.core.values.units import format_duration, format_usd

if TYPE_CHECKING:
    from orchestrator.adapters.store.settings import S3Settings
    from orchestrator.core.job import Resources
    from orchestrator.core.ports import Clock, Provider

_ASK_SECONDS = 10
_REFUSED_AFTER = timedelta(minutes=5)
"""AWS refuses signatures that are further off (fact: aws-signature-age)."""
_NOTABLE = timedelta(minutes=1)
_SET_CLOCK = "set the clock: `sudo timedatectl set-ntp true`"


def look_at_clock(url: str, clock: Clock, *, ca_file: str = "") -> ProbeResult:
    """Compare this computer's clock with an API's, by the Date header of any answer.

    Raises:
        UnreachableError: the API doesn't answer.
    """
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - an API's own address
    context = ssl.create_default_context(cafile=ca_file or None)
    try:
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS, context=context) as answer:  # noqa: S310 - as above
            said = answer.headers.get("Date", "")
    except urllib.error.HTTPError as answer:
        said = answer.headers.get("Date", "")
    except OSError as err:
        raise UnreachableError(
            f"{url} doesn't answer",
            why=str(err.reason if isinstance(err, urllib.error.URLError) else err),
            fix="check the network",
        ) from err
    if not said:
        return Verdict.WARNING, "the API's answer has no time", "compare the clock with another one"
    ahead = clock.now() - parsedate_to_datetime(said)
    found = f"{format_duration(abs(ahead))} {'ahead of' if ahead > timedelta(0) else 'behind'} the API's"
    if abs(ahead) > _REFUSED_AFTER:
        return Verdict.FAILED, f"{found}: its signatures are refused, and deadlines come at the wrong time", _SET_CLOCK
    if abs(ahead) > _NOTABLE:
        return Verdict.WARNING, found, _SET_CLOCK
    return Verdict.OK, "right", ""


def look_at_bucket(settings: S3Settings | None, fix: str) -> ProbeResult:
    """Read, write and delete in the bucket for results, as a run would; `fix` says how to name one.

    Raises:
        KedgeError: it can't be used.
    """
    if settings is None:
        return Verdict.WARNING, "none: results wait on the machine, and end with it at its deadline", fix
    from orchestrator.adapters.store.s3 import connect_with_keys  # noqa: PLC0415 - both load the SDK
    from orchestrator.adapters.store.s3_sdk import try_bucket  # noqa: PLC0415

    return Verdict.OK, try_bucket(connect_with_keys(settings)), ""


def look_at_offers(provider: Provider, resources: Resources) -> ProbeResult:
    """Find the first offer that is for sale and within the quotas.

    Raises:
        KedgeError: the provider can't be asked; the error says why.
    """
    offers = provider.offers(resources)
    if not offers:
        return Verdict.FAILED, "no offer fits", "ask for less, for other regions, or see `kedge offers`"
    first = offers[0]
    found = f"{first.instance_type} in {first.place}, {format_usd(first.usd_per_hour)}/h ({provider.offers_basis})"
    if not first.live:
        return Verdict.WARNING, found, "the provider wasn't asked: these are prices of a snapshot, for planning only"
    return Verdict.OK, found, ""
