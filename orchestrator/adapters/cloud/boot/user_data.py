"""Renders user-data as a cloud takes it: cloud-config, compressed if needed, and checked before anybody pays."""

from __future__ import annotations

import gzip
from dataclasses import dataclass

from orchestrator.adapters.cloud.boot.bootstrap_bundle import read_bootstrap
from orchestrator.adapters.cloud.boot.check import check_user_data
from orchestrator.adapters.cloud.boot.cloud_config import (
    BootSpec,
    DiskNames,
    render_cloud_config,
    render_files,
)
from orchestrator.core.errors import KedgeError


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFormat:
    """The user-data that a cloud takes, and the names of its machines' disks.

    Attributes:
        most_bytes: the limit for user-data, as it is sent.
        disks: the names of a machine's disks.
        says: the subject and verb of the error about the limit: "EC2 allows".
        packs: user-data above the limit is compressed with gzip.
        carries_bootstrap: user-data holds the part of the agent that fetches the rest from the store; else the
            machine waits until the agent is sent over SSH.
        metadata: the metadata service from which the agent reads credentials and spot notices; empty for none.
    """

    most_bytes: int
    disks: DiskNames
    says: str
    packs: bool = False
    carries_bootstrap: bool = False
    metadata: str = ""


def render_user_data(spec: BootSpec, form: BootFormat) -> bytes:
    """Render the user-data of a creation; the same spec gives the same bytes.

    Raises:
        KedgeError: it is longer than the cloud allows, or a machine couldn't parse it.
    """
    bootstrap = read_bootstrap() if form.carries_bootstrap else {}
    plain = render_cloud_config(spec, bootstrap, disks=form.disks).encode()
    is_packed = form.packs and len(plain) > form.most_bytes
    content = gzip.compress(plain, mtime=0) if is_packed else plain
    if len(content) > form.most_bytes:
        raise KedgeError(
            "the machine's user-data is too long",
            why=f"{len(content)} bytes{', compressed' if is_packed else ''}; {form.says} {form.most_bytes}",
            fix="use fewer volumes",
        )
    check_user_data(content, spec, render_files(spec, bootstrap, form.disks))
    return content
