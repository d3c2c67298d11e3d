"""Opens the provider `aws`: EC2, its bucket, and this computer's records of both."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.adapters.cloud.context import CloudContext
from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.account_resources import AccountResources, cache_name
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.cloud_api import AwsCloudApi
from orchestrator.adapters.providers.aws.context import AwsContext
from orchestrator.adapters.providers.aws.naming import NAME
from orchestrator.adapters.providers.aws.offer_source import AwsMarket
from orchestrator.adapters.providers.aws.record import Records
from orchestrator.adapters.providers.aws.run_resources.secrets import AwsSecrets
from orchestrator.adapters.sync.storage import open_storage

_REGIONS = "KEDGE_AWS_REGIONS"
"""Regions, separated by commas, in which to look for machines besides those in this laptop's records."""


def make(context: Context) -> Backing:
    """Make the provider, its store and its stage for the registry; nothing is contacted."""
    return make_backing(context, AwsSession(environ=context.environ))


def make_backing(context: Context, session: AwsSession) -> Backing:
    """Make them with an existing session: making its clients takes long."""
    folder = context.state_dir / NAME
    cache_dir = folder / cache_name(context.environ)
    cache = Cache(cache_dir, context.clock)
    resources = AccountResources(session, cache)
    storage = open_storage(resources.open_bucket, data_memory=folder / "data", clock=context.clock)
    aws = AwsContext(
        session=session,
        records=Records(folder),
        cache=cache,
        cache_dir=cache_dir,
        clock=context.clock,
        account=lambda: resources.account,
        fresh_account=resources.ask_again,
        regions=tuple(name.strip() for name in context.environ.get(_REGIONS, "").split(",") if name.strip()),
    )
    ctx = CloudContext(
        api=AwsCloudApi(aws),
        records=aws.records,
        clock=context.clock,
        key_file=context.key_file,
        claims=folder / "claims",
        stage=lambda: storage.stage,
    )
    provider = CloudProvider(ctx, AwsMarket(aws), ends_by_itself=True)
    return replace(Backing.with_storage(provider, storage), secrets=AwsSecrets(aws))
