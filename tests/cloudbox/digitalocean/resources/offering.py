"""What is for sale and who buys it: sizes, regions, the account and its balance."""

from __future__ import annotations

from tests.cloudbox.digitalocean.account.clock import iso
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.views import show_region
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/sizes", "sizes:read", "regions:read")
def list_sizes(cloud: Cloud, call: Call) -> Answer:
    """List all sizes, GPU sizes among them."""
    return page(call, "sizes", [size.describe() for size in cloud.account.sizes.values()])


@routes.on("GET", "/regions", "regions:read")
def list_regions(cloud: Cloud, call: Call) -> Answer:
    """List all regions."""
    return page(call, "regions", [show_region(cloud.account, slug) for slug in cloud.account.regions])


@routes.on("GET", "/account", "account:read")
def get_account(cloud: Cloud, call: Call) -> Answer:
    """Show the account with its limits."""
    account = {
        "droplet_limit": cloud.account.settings.droplet_limit,
        "floating_ip_limit": 5,
        "reserved_ip_limit": 5,
        "volume_limit": cloud.account.settings.volume_limit,
        "email": "operator@example.com",
        "name": "Operator",
        "uuid": "00000000-0000-4000-8000-000000000001",
        "email_verified": True,
        "status": cloud.account.settings.account_status,
        "status_message": "",
        "team": {"uuid": "00000000-0000-4000-8000-000000000002", "name": "My Team"},
    }
    return Answer(body={"account": account})


@routes.on("GET", "/customers/my/balance", "billing:read")
def get_balance(cloud: Cloud, call: Call) -> Answer:
    """Show what the month has cost so far, in dollars."""
    used = f"{cloud.meter.usd():.2f}"
    balance = {
        "month_to_date_balance": used,
        "account_balance": "0.00",
        "month_to_date_usage": used,
        "generated_at": iso(cloud.clock.now()),
    }
    return Answer(body=balance)
