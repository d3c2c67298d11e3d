"""The probes of `kedge doctor --provider do` and `amd`: they check an account for a launch, and create nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.probing import look_at_bucket, look_at_clock, look_at_offers
from orchestrator.adapters.providers.digitalocean.api import Api
from orchestrator.adapters.providers.digitalocean.market.room import ASK_FOR_MORE, read_room
from orchestrator.adapters.providers.digitalocean.provider import make
from orchestrator.adapters.providers.digitalocean.scopes import find_missing_scopes
from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES, SelfDelete, read_self_delete
from orchestrator.adapters.providers.digitalocean.site import SPACES, read_site
from orchestrator.adapters.rest.failures import RefusedError
from orchestrator.adapters.store.settings import read_settings
from orchestrator.core.checkup import OFFERS, QUOTA, Probe, ProbeResult, Verdict

if TYPE_CHECKING:
    from orchestrator.adapters.providers import Context
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Provider

_FORBIDDEN = 403


def make_probes(
    context: Context,
    resources: Resources,
    *,
    name: str,
    endpoint: str,
    endpoint_name: str,
    token_names: Sequence[str],
    delete_token_name: str,
    sister: str = "",
) -> Sequence[Probe]:
    """List the probes, in the order in which a launch needs what they check.

    Args:
        context: what the provider needs from the laptop.
        resources: what is to be launched.
        name: the provider's name.
        endpoint: the API's address.
        endpoint_name: the variable that overrides the address.
        token_names: the variables with the token.
        delete_token_name: the variable with the token that a droplet deletes itself with.
        sister: another provider to recommend, if it sells what this one doesn't.
    """
    options: dict[str, Any] = {
        "name": name,
        "endpoint": endpoint,
        "endpoint_name": endpoint_name,
        "token_names": token_names,
    }
    api = Api(read_site(context.environ, **options), context.clock)
    ending = read_self_delete(context.environ, endpoint=api.site.endpoint, token_name=delete_token_name)
    provider = make(context, **options, delete_token_name=delete_token_name, sister=sister).provider
    checkup = _Checkup(api, context, resources, provider, ending)
    return (
        Probe(name="clock", look=checkup.clock),
        Probe(name="credentials", look=checkup.credentials, vital=True),
        Probe(name="permissions", look=checkup.permissions),
        Probe(name="bucket", look=checkup.bucket),
        Probe(name="guards", look=checkup.guards),
        Probe(name="network", look=checkup.network),
        Probe(name=OFFERS, look=checkup.offers),
        Probe(name=QUOTA, look=checkup.quota),
    )


def look_at_sign_in(
    context: Context, *, name: str, endpoint: str, endpoint_name: str, token_names: Sequence[str], **_site: object
) -> ProbeResult | None:
    """Request once whose token this is; None if there is no token.

    Raises:
        KedgeError: the API doesn't accept it, or doesn't answer.
    """
    site = read_site(
        context.environ, name=name, endpoint=endpoint, endpoint_name=endpoint_name, token_names=token_names
    )
    if not site.token:
        return None
    api = Api(site, context.clock)
    return _judge(api.ask_once("the account can't be used", api.client.account.get))


def look_at_guard(context: Context, machine: Machine, *, delete_token_name: str, **_site: object) -> ProbeResult:  # noqa: ARG001 - the same for each
    """Say what ends the droplet besides its own timer: nothing in this API does; `kedge reap` is the guard outside."""
    if not context.environ.get(delete_token_name):
        return Verdict.WARNING, "it powers off and bills on until `kedge reap` deletes it", f"set {delete_token_name}"
    return Verdict.OK, "it deletes itself, and `kedge reap` is the guard outside of it", ""


class _Checkup:
    """The probes of one account; what several need is requested once."""

    def __init__(
        self, api: Api, context: Context, resources: Resources, provider: Provider, ending: SelfDelete
    ) -> None:
        self._api = api
        self._context = context
        self._resources = resources
        self._provider = provider
        self._ending = ending

    def clock(self) -> ProbeResult:
        site = self._api.site
        return look_at_clock(f"{site.endpoint}/v2/account", self._context.clock, ca_file=site.ca_file)

    def credentials(self) -> ProbeResult:
        return _judge({"account": self._account})

    def permissions(self) -> ProbeResult:
        missing = find_missing_scopes(self._api)
        if missing:
            fix = "make a token with the scopes that docs/digitalocean.md lists"
            return Verdict.FAILED, f"the token lacks {', '.join(missing)}", fix
        return Verdict.OK, "the token has the scopes that a launch needs", ""

    def bucket(self) -> ProbeResult:
        fix = f"name a Spaces bucket with {SPACES.bucket} (docs/digitalocean.md)"
        return look_at_bucket(read_settings(self._context.environ, SPACES), fix)

    def guards(self) -> ProbeResult:
        """Check that a droplet can delete itself: only a deletion ends its bill."""
        ending = self._ending
        if not ending.token:
            return Verdict.WARNING, ending.caveats[0], f"set {ending.token_name}, and run `kedge reap` on a schedule"
        site = replace(self._api.site, token=ending.token, token_names=(ending.token_name,))
        if missing := find_missing_scopes(Api(site, self._context.clock), SCOPES):
            fix = f"set {ending.token_name} to a token with the scopes {', '.join(SCOPES)}"
            return (
                Verdict.FAILED,
                f"{ending.token_name} lacks {', '.join(missing)}: no droplet would delete itself",
                fix,
            )
        return Verdict.OK, "a droplet deletes itself at its deadline", ""

    def network(self) -> ProbeResult:
        """Count the default VPCs; a region without one gets it with its first droplet."""
        what = "the networks can't be listed"
        try:
            vpcs = list(self._api.pages(what, self._api.client.vpcs.list, "vpcs"))
        except RefusedError as err:
            if err.status != _FORBIDDEN:
                raise
            return Verdict.OK, "this token may not list networks; the API makes a default VPC where there is none", ""
        found = sum(1 for vpc in vpcs if vpc.get("default"))
        return Verdict.OK, f"{found} default VPCs; the API makes one where there is none", ""

    def offers(self) -> ProbeResult:
        return look_at_offers(self._provider, self._resources)

    def quota(self) -> ProbeResult:
        """Compare the number of droplets with the account's limit; the API doesn't report the separate GPU limits."""
        room = read_room(self._api)
        if room is None:
            return Verdict.WARNING, "the API doesn't tell this token the account's limit of droplets", ""
        found, needed = f"{room.there} droplets of {room.limit}", self._resources.num_nodes
        if room.there + needed > room.limit:
            fit = "no other fits" if needed == 1 else f"{needed} others don't fit"
            return Verdict.FAILED, f"{found}: {fit}", ASK_FOR_MORE
        if self._resources.accelerators is not None:
            unknown = f"{found}; the limit of GPU droplets is unknown: the API doesn't tell it"
            return Verdict.WARNING, unknown, ASK_FOR_MORE
        return Verdict.OK, found, ""

    @cached_property
    def _account(self) -> dict[str, Any]:
        body = self._api.read("the account can't be used", self._api.client.account.get) or {}
        return dict(body.get("account") or {})


def _judge(body: dict[str, Any]) -> ProbeResult:
    """Say whose account it is, and whether it is active."""
    account = dict(body.get("account") or {})
    team = (account.get("team") or {}).get("name")
    who = str(account.get("email", "")) + (f", team {team}" if team else "")
    if account.get("status", "active") != "active":
        said = account.get("status_message") or account["status"]
        return Verdict.FAILED, f"the account of {who} is {said}", "see the control panel, or ask support"
    return Verdict.OK, f"account of {who}", ""
