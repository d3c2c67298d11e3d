"""What AWS sells that fits the wishes: live, or from the dated snapshot where AWS can't be reached."""

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
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.catalog import wanted_patterns
from orchestrator.adapters.providers.aws.closed import why_left_out
from orchestrator.adapters.providers.aws.market import RegionMarket, RegionReader
from orchestrator.adapters.providers.aws.places import choose_regions, choose_zone
from orchestrator.adapters.providers.aws.planning import plan_offers
from orchestrator.adapters.providers.aws.scores import ask_scores, describe_failure, describe_order, order_by_score
from orchestrator.adapters.providers.aws.snapshot import read_snapshot, snapshot_path
from orchestrator.adapters.providers.aws.zones import is_zone_id
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.session import AwsSession
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
    regions = choose_regions(resources, session, resources.zone or volume_zone)
    cache = Cache(cache_dir, clock)
    try:
        return _ask(resources, [RegionReader(session, each, cache, clock) for each in regions], cache, volume_zone)
    except (ClientError, BotoCoreError, KedgeError) as err:
        said = _why_offline(err)
        if not said:
            raise err if isinstance(err, KedgeError) else translate(err, "the offers of AWS can't be listed") from err
    kept = read_snapshot(snapshot or snapshot_path())
    zone = resources.zone or volume_zone
    offers = plan_offers(kept.markets(resources, regions, zone), resources, zone=zone)
    note = (
        f"AWS could not be asked ({said}): this is for planning only, and nothing is launched from it; zones are"
        " named by their ids, quotas and images are not checked"
    )
    return Listing(offers=offers, basis=kept.basis, notes=(note,))


def _why_offline(err: Exception) -> str:
    """Say why AWS can't be asked, and what to do about it; empty where it has answered.

    Signing in comes before the first call, and translates what it meets by itself.
    """
    if isinstance(err, _OFFLINE):
        err = translate(err, "the offers of AWS can't be listed")
    elif not isinstance(err, KedgeError) or not isinstance(err.__cause__, _OFFLINE):
        return ""
    return "; ".join(filter(None, (err.why, err.fix)))


def _ask(resources: Resources, readers: Sequence[RegionReader], cache: Cache, volume_zone: str | None) -> Listing:
    wish = resources.zone
    by_id = wish is not None and is_zone_id(wish)
    zone = choose_zone(readers[0].zone_name(wish) if wish and by_id else wish, volume_zone)
    markets, notes = _observe(resources, readers)
    offers = plan_offers(markets, resources, zone=zone)
    if resources.use_spot:
        offers, order = _order_spot(offers, readers, cache)
        notes = (*notes, order)
    if wish and by_id and volume_zone is None:
        offers = tuple(replace(offer, zone=wish) for offer in offers)
    return Listing(offers=offers, basis=cache.basis(), notes=notes)


def _order_spot(
    offers: tuple[Offer, ...], readers: Sequence[RegionReader], cache: Cache
) -> tuple[tuple[Offer, ...], str]:
    """Order offers by price and placement score, and say so; a refused question leaves them as they are."""
    used = {offer.region for offer in offers}
    try:
        ids = {name: zone_id for each in readers if each.region in used for name, zone_id in each.zone_ids().items()}
        scores = ask_scores(readers[0].ec2_once, offers, cache)
    except (ClientError, BotoCoreError) as err:
        return offers, describe_failure(err)
    ordered = order_by_score(offers, scores, ids)
    return ordered, describe_order(ordered, scores, ids)


def _observe(resources: Resources, readers: Sequence[RegionReader]) -> tuple[tuple[RegionMarket, ...], tuple[str, ...]]:
    """Read all regions at once; one that is closed to this account is left out while there are others."""

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
