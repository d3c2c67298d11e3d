"""Flags override the job file and its mode."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.adapters.jobfile.read import plain_machine_job
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, Resources
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import SupervisorKind, SupervisorSpec
from tests.support.flags import given

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]

JOB = """
resources: {infra: aws/us-east-1, instance_type: g5.xlarge, use_spot: true, disk_size: 100}
envs: {A: a, B: b}
supervisor: {kind: tmux, restarts: 7}
deadline: 3h
budget: 5
modes: {fast: {deadline: 1h, envs: {B: bb}}}
"""


def test_every_flag_overrides_the_file_and_its_mode(read: Read) -> None:
    """All flags at once."""
    job = read(
        JOB,
        mode="fast",
        region="us-west-2, us-east-1",
        zone="us-west-2b",
        instance_type="p4d.24xlarge",
        gpu="A100:8",
        max_price="40",
        spot=False,
        image_id="ami-1",
        disk_size="500GB",
        price="$1.99",
        ttl="2h",
        budget="0",
        supervisor="nohup",
        env=("B=x=y", "HOME_SWEET"),
        environ={"HOME_SWEET": "/h"},
    )
    assert job.resources == Resources(
        provider="aws",
        regions=("us-west-2", "us-east-1"),
        zone="us-west-2b",
        instance_type="p4d.24xlarge",
        max_usd_per_hour=Decimal(40),
        accelerators=Accelerators(name="a100", count=8),
        image_id="ami-1",
        disk_gib=500,
        usd_per_hour=Decimal("1.99"),
    )
    assert job.time_limit == timedelta(hours=2)
    assert job.budget_usd == 0
    assert job.supervisor == SupervisorSpec(kind=SupervisorKind.NOHUP, restarts=7)
    assert dict(job.envs) == {"A": "a", "B": "x=y"}
    assert job.inherited == ("HOME_SWEET",)


def test_without_flags_the_files_values_stay(read: Read) -> None:
    """Of the job and of its mode."""
    job = read(JOB)
    assert (job.budget_usd, job.resources.use_spot, job.time_limit) == (
        Decimal(5),
        True,
        timedelta(hours=3),
    )


def test_a_job_for_a_cloud_is_rehearsed_on_this_computer(read: Read) -> None:
    """`--provider local` drops the cloud's regions and types."""
    resources = read(JOB, provider="local").resources
    assert resources == Resources(provider="local", use_spot=True, disk_gib=100)


def test_a_variable_that_the_file_leaves_open_can_come_from_a_flag(read: Read) -> None:
    """As SkyPilot's `--env` does."""
    assert read("envs: {A: null}", env=("A=x",)).envs == (("A", "x"),)


@pytest.mark.parametrize(
    ("flag", "arguments", "fix"),
    [
        ("--provider", {"provider": "locl"}, "local"),
        ("--provider", {"provider": "azure"}, "aws, do, local"),
        ("--gpu", {"gpu": "mi300x:none"}, "A10G:4"),
        ("--region", {"region": "us east"}, "kedge offers"),
        ("--zone", {"zone": ""}, "kedge offers"),
        ("--instance-type", {"instance_type": "a;b"}, "kedge offers"),
        ("--image-id", {"image_id": "docker:x"}, "image_id"),
        ("--disk-size", {"disk_size": "big"}, "256GB"),
        ("--price", {"price": "cheap"}, "0.50"),
        ("--ttl", {"ttl": "90"}, "90s"),
        ("--budget", {"budget": "ten"}, "$10"),
        ("--supervisor", {"supervisor": "systmd"}, "systemd"),
        ("--env", {"env": ("1A=x",)}, "letters"),
        ("--env", {"env": ("NOT_SET",)}, "NOT_SET=value"),
        ("--env", {"env": ("KEDGE_RUN_ID=x",)}, "another name"),
    ],
)
def test_a_flag_that_cannot_be_read_is_named(refuse: Refuse, flag: str, arguments: dict[str, object], fix: str) -> None:
    """The error says what to write instead."""
    error = refuse("run: x", **arguments)
    assert error.what.startswith(flag)
    assert fix in error.fix


def test_a_secret_is_not_taken_from_the_command_line(refuse: Refuse) -> None:
    """Its value would be in the shell's history. The refusal doesn't repeat it."""
    error = refuse("secrets: [T]", env=("T=hunter2",), environ={"T": "x"})
    assert error.what.startswith("--env T")
    assert "hunter2" not in str(error)


def test_env_does_not_inherit_kedges_own_credentials(read: Read, refuse: Refuse) -> None:
    """The refusal names the flag that allows it. A value that is given with the name needs no permission."""
    environ = {"AWS_SESSION_TOKEN": "hunter2"}
    error = refuse("run: x", env=("AWS_SESSION_TOKEN",), environ=environ)
    assert "--allow-secret AWS_SESSION_TOKEN" in error.fix
    allowed = read("run: x", env=("AWS_SESSION_TOKEN",), allow_secret=("AWS_SESSION_TOKEN",), environ=environ)
    assert allowed.inherited == ("AWS_SESSION_TOKEN",)
    assert read("run: x", env=("AWS_REGION=us-east-1",)).envs == (("AWS_REGION", "us-east-1"),)


def test_an_inherited_variable_overrides_the_files_value(read: Read) -> None:
    """And a value on the command line replaces an inherited variable."""
    job = read("envs: {A: a, B: null}", env=("A", "B=b"), environ={"A": "x", "B": "y"})
    assert (job.envs, job.inherited) == ((("B", "b"),), ("A",))


def test_a_machine_without_a_job_is_described_by_flags_alone() -> None:
    """It still has a deadline."""
    job = plain_machine_job(given(provider="do", gpu="mi300x", budget="10"), environ={}, providers=("do",))
    assert job == Job(
        name="machine",
        resources=Resources(provider="do", accelerators=Accelerators(name="mi300x")),
        budget_usd=Decimal(10),
    )
    assert job.time_limit == timedelta(hours=1)


def test_a_number_of_machines_overrides_the_files_and_its_modes(read: Read) -> None:
    """A mode may have another number, and a flag wins."""
    text = "num_nodes: 4\nmodes: {fast: {num_nodes: 2}}"
    numbers = [
        read(text).num_nodes,
        read(text, mode="fast").num_nodes,
        read(text, mode="fast", num_nodes="3").num_nodes,
    ]
    assert numbers == [4, 2, 3]
    assert read(text).resources_at("aws").num_nodes == 4


def test_a_number_of_machines_that_the_job_can_not_have_names_the_flag(read: Read, refuse: Refuse) -> None:
    """One machine makes a job valid that isn't with the file's number."""
    text = "num_nodes: {}\nvolumes: {{v: {{name: scans, size: 100}}}}"
    assert read(text.format(2), num_nodes="1").num_nodes == 1
    err = refuse(text.format(1), num_nodes="2")
    assert err.what == "--num-nodes: 2 machines can't share the volume scans"
    assert "kedge.yaml:2" in str(refuse(text.format(2)))
