"""Opens the provider `lambda`, and has the probes of `kedge doctor --provider lambda`. Nothing is created here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.context import CloudContext
from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.adapters.cloud.records import RecordFolder
from orchestrator.adapters.host.timer import REAP
from orchestrator.adapters.probing import look_at_bucket, look_at_clock, look_at_offers
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.lambdacloud.api import KEY_NAME, open_api, read_service
from orchestrator.adapters.providers.lambdacloud.cloud_api import TRAITS, LambdaCloudApi
from orchestrator.adapters.providers.lambdacloud.offers import LambdaOffers
from orchestrator.adapters.providers.lambdacloud.run_resources import LambdaResources, LambdaRun
from orchestrator.adapters.reaper import find_gap
from orchestrator.adapters.store.settings import KEDGE_STORE, read_settings
from orchestrator.adapters.sync.storage import open_keyed_storage
from orchestrator.core.checkup import OFFERS, QUOTA, Probe, ProbeResult, Verdict

if TYPE_CHECKING:
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine

_CAVEATS = (
    "only Lambda's API ends an instance's bill: at its deadline the machine powers off and bills on until `kedge reap` "
    "ends it, so reap must run on a computer that is on at that time",
)
_NAME_ONE = f"name one with {KEDGE_STORE.bucket} (docs/lambda.md)"


def make(context: Context) -> Backing:
    """Make the provider, its store and its stage for the registry; nothing is contacted."""
    folder = context.state_dir / "lambda"
    api, records = open_api(context.environ, context.clock), RecordFolder(folder, LambdaRun)
    bucket = read_settings(context.environ, KEDGE_STORE)
    cloud, claims = LambdaCloudApi(api, LambdaResources(api, records)), folder / "claims"
    ctx = CloudContext(
        api=cloud, records=records, clock=context.clock, key_file=context.key_file, claims=claims, bucket=bucket
    )
    provider = CloudProvider(ctx, LambdaOffers(api), ends_by_itself=False, caveats=_CAVEATS)
    return Backing.with_storage(provider, open_keyed_storage(bucket, data_memory=folder / "data", clock=context.clock))


def make_probes(context: Context, resources: Resources) -> Sequence[Probe]:
    """List the probes, in the order in which a launch needs what they check."""
    service = read_service(context.environ)
    return (
        Probe(name="clock", look=partial(look_at_clock, service.endpoint, context.clock, ca_file=service.ca_file)),
        Probe(name="credentials", look=partial(_look_at_key, context), vital=True),
        Probe(name="guards", look=partial(_look_at_reaper, context)),
        Probe(name="bucket", look=partial(look_at_bucket, read_settings(context.environ, KEDGE_STORE), _NAME_ONE)),
        Probe(name=OFFERS, look=partial(look_at_offers, make(context).provider, resources)),
        Probe(name=QUOTA, look=lambda: (Verdict.OK, "Lambda doesn't tell it: a launch that exceeds it is refused", "")),
    )


def look_at_sign_in(context: Context) -> ProbeResult | None:
    """Try the key with one request; None if there is no key."""
    return _look_at_key(context) if read_service(context.environ).key else None


def look_at_guard(context: Context, machine: Machine) -> ProbeResult:  # noqa: ARG001 - the same for each
    """Say what ends an instance's bill, since its own timer doesn't."""
    return _look_at_reaper(context)


def identify_account(context: Context) -> frozenset[str]:
    """Return values that only this account has: its SSH keys' ids, and a digest of the API key in case it has none."""
    api = open_api(context.environ, context.clock)
    return frozenset({api.key_digest, *(key.id for key in api.ssh_keys())})


def _look_at_key(context: Context) -> ProbeResult:
    keys = open_api(context.environ, context.clock).ssh_keys(once=True)
    return Verdict.OK, f"the key is accepted; the account has {len(keys)} SSH keys", ""


def _look_at_reaper(context: Context) -> ProbeResult:
    identify, now = partial(identify_account, context), context.clock.now()
    gap = find_gap(context.environ, context.state_dir, TRAITS.name, (KEY_NAME,), identify, now)
    if gap is None:
        return Verdict.OK, REAP.name, ""
    fix = f"{gap.fix}, unless a reaper runs elsewhere (docs/lambda.md)"
    return Verdict.WARNING, f"nothing ends a forgotten bill: {gap.why}", fix
