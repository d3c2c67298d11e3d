"""What AWS sells that fits the wishes: live, or from the dated snapshot where AWS can't be reached."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.catalog import wanted_patterns
from orchestrator.adapters.providers.aws.market import RegionMarket, RegionReader
from orchestrator.adapters.providers.aws.planning import plan_offers
from orchestrator.adapters.providers.aws.snapshot import read_snapshot, snapshot_path
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.session import AwsSession
    from orchestrator.core.job import Resources
    from orchestrator.core.offer import Offer
    from orchestrator.core.ports import Clock

_LOG = logging.getLogger(__name__)
_OFFLINE = (
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)
_CLOSED = frozenset({"OptInRequired", "AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId"})
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
_MOST_REGIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Offers in the order in which to try them, and where they come from.

    Attributes:
        basis: `live`, or what is how old.
        notes: what somebody who reads the plan should know besides.
    """

    offers: tuple[Offer, ...]
    basis: str
    notes: tuple[str, ...] = ()


def list_offers(
    resources: Resources,
    session: AwsSession,
    clock: Clock,
    cache_dir: Path,
    *,
    volume_zone: str | None = None,
    snapshot: Path | None = None,
) -> Listing:
    """Ask AWS what it sells; without a network or credentials, take the snapshot.

    Args:
        resources: the wishes.
        session: the way to AWS.
        clock: for the age of what is kept.
        cache_dir: where answers are kept for a day; one for each account.
        volume_zone: where a data volume of the job's already is; machines must be there too.
        snapshot: another file than the one that travels with kedge.

    Raises:
        BadRequestError: wishes that AWS doesn't know, or that contradict each other.
        NoCapacityError: nothing fits, or the quota has no room for it.
        KedgeError: AWS refuses to tell.
    """
    wanted_patterns(resources)
    zone = _zone(resources.zone, volume_zone)
    regions = _regions(resources, session, zone)
    cache = Cache(cache_dir, clock)
    try:
        markets, notes = _observe(resources, [RegionReader(session, each, cache, clock) for each in regions])
        offers = plan_offers(markets, resources, zone=zone)
        return Listing(offers=offers, basis=cache.basis(), notes=notes)
    except _OFFLINE as err:
        said = " ".join(str(err).split())
        _LOG.warning("AWS can't be asked, so the snapshot of its prices is taken: %s", said)
        kept = read_snapshot(snapshot or snapshot_path())
        offers = plan_offers(kept.markets(resources, regions, zone), resources, zone=zone)
        note = f"AWS could not be asked ({said}); zones are named by their ids, quotas and images are not checked"
        return Listing(offers=offers, basis=kept.basis, notes=(note,))
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the offers of AWS can't be listed") from err


def _zone(wish: str | None, volume_zone: str | None) -> str | None:
    if wish and volume_zone and wish != volume_zone:
        raise BadRequestError(
            f"a machine in {wish} can't use the data volume",
            why=f"the volume is in {volume_zone}, and a volume serves machines of its own zone only",
            fix=f"say --zone {volume_zone} or leave it out, or name another volume",
        )
    return wish or volume_zone


def _regions(resources: Resources, session: AwsSession, zone: str | None) -> tuple[str, ...]:
    found = _REGION.match(zone or "")
    if found is None:
        return tuple(_checked(name) for name in resources.regions) or (session.region,)
    region = found[0]
    if resources.regions and region not in resources.regions:
        raise BadRequestError(
            f"{zone} is in none of the regions {', '.join(resources.regions)}",
            why=f"it is a zone of {region}",
            fix=f"say --region {region}, or choose another --zone",
        )
    return (region,)


def _checked(region: str) -> str:
    """Return a region's name; a new one may be unknown to the SDK, what isn't written like one is unknown to AWS."""
    if _REGION.fullmatch(region):
        return region
    raise BadRequestError(
        f"AWS has no region {region!r}",
        why="its regions are called like us-east-1",
        fix="say it as AWS does, for example --region eu-west-1",
    )


def _observe(resources: Resources, readers: Sequence[RegionReader]) -> tuple[tuple[RegionMarket, ...], tuple[str, ...]]:
    """Read all regions at once; one that is closed to this account is left out while there are others."""

    def read(reader: RegionReader) -> RegionMarket | ClientError:
        try:
            return reader.read(resources)
        except ClientError as err:
            if code_of(err) in _CLOSED:
                return err
            raise

    with ThreadPoolExecutor(_MOST_REGIONS) as pool:
        results = list(pool.map(read, readers))
    markets = tuple(each for each in results if isinstance(each, RegionMarket))
    closed = [
        (reader.region, err) for reader, err in zip(readers, results, strict=True) if isinstance(err, ClientError)
    ]
    if closed and not markets:
        raise closed[0][1]
    return markets, tuple(f"{region} is closed to this account ({code_of(err)})" for region, err in closed)
