"""How large the disk of a machine must be, and the local disks that some of SageMaker's machines have instead.

kedge's snapshot of prices doesn't know local disks.
"""

from __future__ import annotations

from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.core.job import Resources

_DEFAULT_DISK_GIB = 100
# GB of all local disks together, by family and size. fact: sagemaker-local-disks
_LOCAL_GB = {
    "g4dn": {"xlarge": 125, "2xlarge": 225, "4xlarge": 225, "8xlarge": 900, "12xlarge": 900, "16xlarge": 900},
    "g5": {
        **{"xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900},
        **{"12xlarge": 3800, "16xlarge": 1900, "24xlarge": 3800, "48xlarge": 7600},
    },
    "g6": {
        **{"xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900},
        **{"12xlarge": 3760, "16xlarge": 1880, "24xlarge": 3760, "48xlarge": 7520},
    },
    "g6e": {
        **{"xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900},
        **{"12xlarge": 3800, "16xlarge": 1900, "24xlarge": 3800, "48xlarge": 7600},
    },
    "p3dn": {"24xlarge": 1800},
    "p4d": {"24xlarge": 8000},
    "p4de": {"24xlarge": 8000},
    "p5": {"4xlarge": 3840, "48xlarge": 30720},
    "p5e": {"48xlarge": 30720},
    "p5en": {"48xlarge": 30720},
}


def asked_gib(resources: Resources, otherwise: int = 0) -> int:
    """Return how much room a job asks for: that of its disk, or `otherwise`, and that of its volumes."""
    return (resources.disk_gib or otherwise) + sum(volume.size_gib for volume in resources.volumes)


def local_gib(kind: InstanceType) -> int:
    """Return the size of a type's local disks; 0 if it has none, or if they aren't known."""
    family, _, size = kind.name.partition(".")
    return kind.local_disk_gib or _LOCAL_GB.get(family, {}).get(size, 0) * 10**9 >> 30


def sagemaker_disk_gib(resources: Resources, kind: InstanceType) -> int:
    """Return the disk to ask SageMaker for, which gives a type with local disks these and no other."""
    asked = asked_gib(resources, _DEFAULT_DISK_GIB)
    return min(asked, local_gib(kind) or asked)
