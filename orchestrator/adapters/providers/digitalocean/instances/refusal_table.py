"""Refusals of a droplet, as data: what each means, what kedge does, and what a person can do.

The API has one status for most of them: what it says tells them apart. Lack of capacity has no code of its own either:
it looks like a size that isn't sold in the region.
"""

from __future__ import annotations

from orchestrator.adapters.cloud.refusals import Reaction, Refusal

_SAID_NO = ("403", "422")

GPU_LIMIT = Refusal(
    codes=_SAID_NO,
    says="gpu limit",
    meaning="the account may not run so many GPUs",
    reaction=Reaction.NEXT_QUOTA,
    what="the account may have no more GPUs, and machine {id} needs some",
    remedy="end a GPU droplet that isn't needed, or ask the site's support for a higher GPU limit: it is apart "
    "from the limit of droplets",
    why_is_said_only=True,
)

# The first that matches counts.
REFUSALS = (
    Refusal(
        codes=("422",),
        says="invalid key identifiers",
        meaning="the account has the SSH key, and creations don't accept it",
        reaction=Reaction.NOT_YET,
        remedy="run the command again in some minutes",
    ),
    Refusal(
        codes=_SAID_NO,
        says=("not available to your account", "access to this size", "gpu access", "tier"),
        meaning="the account may not have this size",
        reaction=Reaction.NEVER_HERE,
        what="the account may not have a {type}",
        remedy="ask the site's support for access to GPUs of this kind, or choose another --gpu",
        why_is_said_only=True,
    ),
    GPU_LIMIT,
    # It counts droplets of all sizes, in all regions.
    Refusal(
        codes=_SAID_NO,
        says="limit",
        meaning="the account may not have so many droplets",
        reaction=Reaction.NEVER_AT_ALL,
        what="the account has no room for machine {id}",
        remedy="destroy a droplet that isn't needed, or ask the site's support for a higher limit",
        why_is_said_only=True,
    ),
    Refusal(
        codes=_SAID_NO,
        says=("not available in", "region is not available", "unavailable", "capacity", "sold out"),
        meaning="this size isn't available in this region now",
        reaction=Reaction.NEXT_POOL,
        what="{type} isn't available in {region} now",
        remedy="try again later, or allow more regions",
        why_is_said_only=True,
    ),
)
