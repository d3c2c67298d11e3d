"""Lists AWS's fitting offers: live, or from the dated snapshot if AWS can't be reached."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.access.closed import why_left_out
from orchestrator.adapters.providers.aws.access.zones import is_zone_id
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.market.catalog import wanted_patterns
from orchestrator.adapters.providers.aws.market.planning import plan_offers
from orchestrator.adapters.providers.aws.market.reader import RegionMarket, RegionReader
from orchestrator.adapters.providers.aws.market.regions import choose_regions, choose_zone
from orchestrator.adapters.providers.aws.market.scores import (
    ask_scores,
    describe_failure,
    describe_order,
    order_by_score,
)
from orchestrator.adapters.providers.aws.market.snapshot import read_snapshot, snapshot_path
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.job import Resources
    from orchestrator.core.offer import Offer
    from orchestrator.core.ports import Clock

_OFFLINE = (
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)
_MOST_REGIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Offers, the first to be tried first, and where they come from.

    Attributes:
        basis: `live`, or how old the answers are.
        notes: remarks for the plan.
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
    """List offers from AWS, or from the snapshot without a network or credentials.

    Args:
        resources: the job's requirements.
        session: the account's session.
        clock: for the age of cached answers.
        cache_dir: where answers are cached for a day; each account has its own.
        volume_zone: the zone of the job's existing data volumes, which machines must be in.
        snapshot: another file than the one installed with kedge.

    Raises:
        BadRequestError: AWS has no such thing, or the requirements contradict each other.
        NoCapacityError: nothing fits, or the quota has no room.
        KedgeError: AWS refuses.
    """
    wanted_patterns(resources)
    regions = choose_regions(resources, session, resources.zone or volume_zone)
    cache = Cache(cache_dir, clock)
    try:
        return _ask(resources, [RegionReader(session, each, cache, clock) for each in regions], cache, volume_zone)
    except (ClientError, BotoCoreError, KedgeError) as err:
        said = why_offline(err)
        if not said:
            raise err if isinstance(err, KedgeError) else translate(err, "the offers of AWS can't be listed") from err
    kept = read_snapshot(snapshot or snapshot_path())
    zone = resources.zone or volume_zone
    offers = plan_offers(kept.markets(resources, regions, zone), resources, zone=zone)
    note = (
        f"AWS could not be queried ({said}): this is for planning only, and nothing is launched from it; zones are"
        " named by their ids, quotas and images are not checked"
    )
    return Listing(offers=offers, basis=kept.basis, notes=(note,))


def why_offline(err: Exception) -> str:
    """Say why AWS can't be queried, and what to do about it; empty if AWS has answered.

    Signing in comes before the first call, and translates its own errors.
    """
    if isinstance(err, _OFFLINE):
        err = translate(err, "the offers of AWS can't be listed")
    elif not isinstance(err, KedgeError) or not isinstance(err.__cause__, _OFFLINE):
        return ""
    return "; ".join(filter(None, (err.why, err.fix)))


def _ask(resources: Resources, readers: Sequence[RegionReader], cache: Cache, volume_zone: str | None) -> Listing:
    wanted = resources.zone
    by_id = wanted is not None and is_zone_id(wanted)
    zone = choose_zone(readers[0].zone_name(wanted) if wanted and by_id else wanted, volume_zone)
    markets, notes = _observe(resources, readers)
    offers = plan_offers(markets, resources, zone=zone)
    if resources.use_spot:
        offers, order = _order_spot(offers, readers, cache)
        notes = (*notes, order)
    if wanted and by_id and volume_zone is None:
        offers = tuple(replace(offer, zone=wanted) for offer in offers)
    return Listing(offers=offers, basis=cache.basis(), notes=notes)


def _order_spot(
    offers: tuple[Offer, ...], readers: Sequence[RegionReader], cache: Cache
) -> tuple[tuple[Offer, ...], str]:
    """Order offers by price and placement score, and describe the order; without scores, leave them as they are."""
    used = {offer.region for offer in offers}
    try:
        ids = {name: zone_id for each in readers if each.region in used for name, zone_id in each.zone_ids().items()}
        scores = ask_scores(readers[0].ec2_once, offers, cache)
    except (ClientError, BotoCoreError) as err:
        return offers, describe_failure(err)
    ordered = order_by_score(offers, scores, ids)
    return ordered, describe_order(ordered, scores, ids)


def _observe(resources: Resources, readers: Sequence[RegionReader]) -> tuple[tuple[RegionMarket, ...], tuple[str, ...]]:
    """Read all regions in parallel; leave out those that are closed to this account while others remain."""

    def read(reader: RegionReader) -> RegionMarket | ClientError | KedgeError:
        try:
            return reader.read(resources)
        except (ClientError, KedgeError) as err:
            if why_left_out(err):
                return err
            raise

    with ThreadPoolExecutor(_MOST_REGIONS) as pool:
        results = list(pool.map(read, readers))
    markets = tuple(each for each in results if isinstance(each, RegionMarket))
    closed = {
        reader.region: each for reader, each in zip(readers, results, strict=True) if not isinstance(each, RegionMarket)
    }
    if closed and not markets:
        raise next(iter(closed.values()))
    return markets, tuple(f"{region} {why_left_out(err)}" for region, err in closed.items())
