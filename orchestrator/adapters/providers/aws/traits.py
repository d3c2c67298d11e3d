"""EC2's properties: its user-data (`BOOT`) and what the life cycle must know (`TRAITS`)."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.adapters.cloud.api import Traits
from orchestrator.adapters.cloud.boot.cloud_config import DiskNames
from orchestrator.adapters.cloud.boot.user_data import BootFormat
from orchestrator.adapters.cloud.idempotency import ClientToken
from orchestrator.adapters.providers.aws.naming import NAME

APPEARS_IN = timedelta(seconds=30)
"""How long one part of AWS may not know what another has just created (EC2 developer guide, "Eventual consistency")."""

BOOT = BootFormat(
    # Before base64 (EC2 API reference, RunInstances, read in November 2026).
    most_bytes=16_384,
    # fact: local-disk-names; fact: dlami-nvme
    disks=DiskNames(
        volume_model="Amazon_Elastic_Block_Store",
        local="/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*",
        mounted_by="dlami-nvme.service",
        mounted_at="/opt/dlami/nvme",
    ),
    says="EC2 allows",
    packs=True,
    carries_bootstrap=True,
    metadata=NAME,
)
"""The user-data that EC2 takes."""

TRAITS = Traits(
    name=NAME,
    speaker="AWS",
    noun="machine",
    account_noun="another AWS account",
    other_account_fix="run the command again with the AWS_PROFILE, or the keys, of account {account}",
    idempotency=ClientToken(),
    boot=BOOT,
    # The time for repeating a request, plus the time until AWS lists the instance (the EC2 developer guide's chapter
    # on eventual consistency speaks of seconds and advises to poll for longer; read in November 2026).
    settles_in=timedelta(seconds=90),
    looked_up_for=timedelta(seconds=30),
    # Much longer than listing takes: giving a request up too early could cost a second machine.
    unclear_for=timedelta(minutes=15),
    ends_adopted=True,
    is_regional=True,
)
