"""The properties of DigitalOcean and the AMD Developer Cloud: user-data (`BOOT`) and what the life cycle must know."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.api import Traits
from orchestrator.adapters.cloud.boot.cloud_config import DiskNames
from orchestrator.adapters.cloud.boot.user_data import BootFormat
from orchestrator.adapters.cloud.idempotency import MarkAndLookUp
from orchestrator.adapters.providers.digitalocean.market.sizes import billed_for_at_least

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.site import Site

BOOT = BootFormat(
    # DigitalOcean API reference, "Create a New Droplet", `user_data`, read in November 2026: plain text.
    most_bytes=65_536,
    # A volume is /dev/disk/by-id/scsi-0DO_Volume_<its name> (docs.digitalocean.com, "How to Mount Volumes", 2026-11),
    # and /dev/sd? in the kernel's words. What else there is besides /dev/vda came with the droplet.
    # inferred: do-scratch-disk
    disks=DiskNames(volume_model="DO_Volume", local="/dev/vd[b-z] /dev/nvme*n1"),
    says="DigitalOcean allows",
)
"""The user-data of a droplet. Droplets have no role: they wait until agent and secrets are sent over SSH."""

SETTLES_IN = timedelta(seconds=90)
"""How long after its answer the API may not know a droplet that it has accepted (seen for up to a minute)."""


def traits_of(site: Site) -> Traits:
    """Return a site's traits."""
    return Traits(
        name=site.name,
        speaker="the API",
        noun="droplet",
        other_account_fix=f"run the command again with {site.token_names[0]} set to a token of that account",
        idempotency=MarkAndLookUp(),
        boot=BOOT,
        settles_in=SETTLES_IN,
        looked_up_for=SETTLES_IN,
        # Much longer than listing takes: giving a request up too early could cost a second machine.
        unclear_for=timedelta(minutes=15),
        shown_for=timedelta(minutes=3),
        id_first=True,
        folds_case=True,
        billed_for_at_least=billed_for_at_least,
    )
