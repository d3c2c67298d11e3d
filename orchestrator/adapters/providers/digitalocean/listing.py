"""Lists droplets, as the API shows them.

The API has two listings. The plain one can filter by tag, but leaves GPU droplets out; the one of GPU droplets can't
filter by tag (inferred: do-gpus-not-listed-by-tag). Every search uses both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json


def read_droplets(api: Api, **plainly: str) -> list[Json]:
    """Read both listings, in the order of ids.

    Args:
        api: the account's API.
        plainly: filters of the plain listing, which the listing of GPU droplets lacks.

    Raises:
        ApiError: a listing fails. What may be billing is never silently left out.
    """
    what = "the droplets can't be listed"
    plain = api.pages(what, api.client.droplets.list, "droplets", **plainly)
    found = {fields["id"]: fields for fields in plain}
    found |= {fields["id"]: fields for fields in api.pages(what, api.client.droplets.list, "droplets", type="gpus")}
    return [found[each] for each in sorted(found)]
