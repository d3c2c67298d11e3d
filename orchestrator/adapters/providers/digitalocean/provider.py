"""Opens the providers `do` and `amd`: two entries of the registry with this module and different sites."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.adapters.cloud.context import CloudContext
from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.digitalocean.api import Api
from orchestrator.adapters.providers.digitalocean.cloud_api import DoCloudApi
from orchestrator.adapters.providers.digitalocean.market.market import DoMarket
from orchestrator.adapters.providers.digitalocean.run_resources.record import Records
from orchestrator.adapters.providers.digitalocean.self_deletion import read_self_delete
from orchestrator.adapters.providers.digitalocean.site import SPACES, read_site
from orchestrator.adapters.providers.digitalocean.volume_api import DoVolumes
from orchestrator.adapters.store.settings import read_settings
from orchestrator.adapters.sync.storage import open_keyed_storage


def make(
    context: Context,
    *,
    name: str,
    endpoint: str,
    endpoint_name: str,
    token_names: Sequence[str],
    delete_token_name: str,
    sister: str = "",
) -> Backing:
    """Make the provider, its store and its stage for the registry; nothing is contacted.

    Args:
        context: what the provider needs from the laptop.
        name: the provider's name.
        endpoint: the API's address.
        endpoint_name: the variable that overrides the address.
        token_names: the variables with the token; the first one that is set counts.
        delete_token_name: the variable with the token that a droplet deletes itself with.
        sister: another site to recommend, if it sells what this one doesn't; empty for none.
    """
    site = read_site(
        context.environ, name=name, endpoint=endpoint, endpoint_name=endpoint_name, token_names=token_names
    )
    ending = read_self_delete(
        context.environ, endpoint=site.endpoint, token_name=delete_token_name, ca_file=site.ca_file
    )
    folder = context.state_dir / name
    records = Records(folder)
    bucket = read_settings(context.environ, SPACES)
    api = Api(site, context.clock)
    ctx = CloudContext(
        api=DoCloudApi(api, ending, records, context.clock),
        records=records,
        clock=context.clock,
        key_file=context.key_file,
        claims=folder / "claims",
        bucket=bucket,
    )
    market = DoMarket(api, DoVolumes(api), context.clock, sister)
    provider = CloudProvider(ctx, market, ends_by_itself=bool(ending.token), caveats=ending.caveats)
    storage = open_keyed_storage(bucket, data_memory=folder / "data", clock=context.clock)
    return Backing.with_storage(provider, storage)
