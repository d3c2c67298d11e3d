"""User-data for EC2: cloud-config of at most 16 KiB, compressed where it must be."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from orchestrator.adapters import boot
from orchestrator.adapters.boot import BootSpec, BootVolume, DiskNames, read_bootstrap
from orchestrator.adapters.boot_check import check_user_data
from orchestrator.core.errors import KedgeError

__all__ = ["DISKS", "LIMIT_BYTES", "BootSpec", "BootVolume", "render_cloud_config", "render_user_data"]

LIMIT_BYTES = 16_384
"""Before base64 (EC2 API reference, RunInstances, read in November 2026)."""

# fact: local-disk-names; fact: dlami-nvme
DISKS = DiskNames(
    volume_model="Amazon_Elastic_Block_Store",
    local="/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*",
    mounted_by="dlami-nvme.service",
    mounted_at="/opt/dlami/nvme",
)


def render_user_data(spec: BootSpec) -> bytes:
    """Render what RunInstances is given, before base64; the same bytes for the same spec.

    Raises:
        KedgeError: it is longer than EC2 allows, or no machine could read it.
    """
    bootstrap = read_bootstrap()
    plain = render_cloud_config(spec, bootstrap).encode()
    content = plain if len(plain) <= LIMIT_BYTES else gzip.compress(plain, mtime=0)
    if len(content) > LIMIT_BYTES:
        raise KedgeError(
            "the machine's user-data is too long",
            why=f"{len(content)} bytes, compressed; EC2 allows {LIMIT_BYTES}",
            fix="use fewer volumes",
        )
    check_user_data(content, spec, boot.render_files(spec, bootstrap, DISKS))
    return content


def render_cloud_config(spec: BootSpec, bootstrap: Mapping[str, str]) -> str:
    """Render the cloud-config; `bootstrap` holds the agent's own modules that fetch the rest of it."""
    return boot.render_cloud_config(spec, bootstrap, disks=DISKS)
