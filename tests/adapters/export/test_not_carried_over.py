"""What an export says about volumes, disks, memory and several machines, which each scheduler loses in its own way."""

from __future__ import annotations

import pytest

from tests.support.laptop import Laptop

JOB = """
name: imagenet
resources: {accelerators: "v100:8", disk_size: 80GB}
run: sleep 1
"""
VOLUMES = "volumes: {imagenet: {name: imagenet, size: 500}}\n"


def lost(laptop: Laptop, target: str, *flags: str, job: str = JOB) -> dict[str, str]:
    """Export the job; return what isn't carried over by its topic."""
    laptop.write_job(job)
    said = laptop.kedge("export", "--to", target, "--output", "exported", "--force", *flags)
    sentences = "\n".join(said.splitlines()).partition("Not carried over:\n")[2].split("! ")
    return {topic: " ".join(rest.split()) for topic, _, rest in (each.partition(":") for each in sentences if each)}


@pytest.mark.parametrize(
    ("target", "flags", "volumes", "disk"),
    [
        ("batch", ("--gpu", "a10g:4"), "is on the machine's disk", "the job asks for 580 GB"),
        ("sagemaker", (), "on the job's disk", ""),
        ("slurm", (), "in the run's folder", "the file system of this folder needs 580 GB"),
    ],
)
def test_where_the_files_of_a_volume_are(
    laptop: Laptop, target: str, flags: tuple[str, ...], volumes: str, disk: str
) -> None:
    """And who makes room for them: only SageMaker's machines get a disk of the size."""
    said = lost(laptop, target, *flags, job=JOB + VOLUMES)
    assert said["volumes"].startswith("imagenet: not attached; ")
    assert volumes in said["volumes"]
    assert disk in said.get("resources.disk_size", "")
    assert bool(disk) == ("resources.disk_size" in said)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("batch", "each takes the newest in the common folder"),
        ("sagemaker", "each has its own /opt/ml/checkpoints, and after a failure takes the newest that it has itself"),
        ("slurm", "each takes the newest in the common folder"),
    ],
)
def test_where_several_machines_find_a_checkpoint(laptop: Laptop, target: str, says: str) -> None:
    """They have a common folder, except at SageMaker.

    fact: sagemaker-checkpoints
    """
    said = lost(laptop, target, "--num-nodes", "2", *(["--gpu", "a10g:4"] if target == "batch" else []))
    assert says in said["num_nodes"]


def test_slurm_is_not_asked_for_memory(laptop: Laptop) -> None:
    """Nothing in a job file says how much; the cluster's default may be too little."""
    assert "./submit.sh --mem=" in lost(laptop, "slurm")["memory"]
    assert "memory" not in lost(laptop, "sagemaker")
