"""User-data for a droplet: cloud-config as plain text, of at most 64 KiB.

A droplet has no role: it waits, before its agent, until it is brought agent and secrets (supplies.py).
"""

from __future__ import annotations

from orchestrator.adapters.boot import BootSpec, DiskNames, render_cloud_config, render_files
from orchestrator.adapters.boot_check import check_user_data
from orchestrator.core.errors import KedgeError

LIMIT_BYTES = 65_536
"""DigitalOcean API reference, "Create a New Droplet", `user_data`, read in November 2026."""

# A volume is /dev/disk/by-id/scsi-0DO_Volume_<its name> (docs.digitalocean.com, "How to Mount Volumes", 2026-11), and
# /dev/sd? in the kernel's words. What else there is besides /dev/vda came with the droplet. inferred: do-scratch-disk
_DISKS = DiskNames(volume_model="DO_Volume", local="/dev/vd[b-z] /dev/nvme*n1")


def render_user_data(spec: BootSpec) -> str:
    """Render what a droplet is created with; the same text for the same spec.

    Args:
        spec: the machine; a volume's serial is its name.

    Raises:
        KedgeError: it is longer than the API allows, or no machine could read it.
    """
    text = render_cloud_config(spec, {}, disks=_DISKS)
    content = text.encode()
    size = len(content)
    if size > LIMIT_BYTES:
        raise KedgeError(
            "the machine's user-data is too long",
            why=f"{size} bytes; DigitalOcean allows {LIMIT_BYTES}",
            fix="use fewer volumes",
        )
    check_user_data(content, spec, render_files(spec, {}, _DISKS))
    return text
