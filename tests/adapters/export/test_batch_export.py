"""An export for AWS Batch: what it asks a machine for, what AWS's API takes, and what the container's command finds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.adapters.export.conftest import Account
from tests.support.laptop import Laptop

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "batch.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def export(laptop: Laptop, *flags: str, job: str = "") -> Path:
    if job:
        laptop.write_job(job)
    laptop.kedge("export", "--to", "batch", "--output", "exported", "--force", *flags)
    return laptop.home / "exported"


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def asked(folder: Path, name: str = "job-definition.json") -> dict[str, int]:
    rows = read(folder, name)["containerProperties"]["resourceRequirements"]
    return {row["type"]: int(row["value"]) for row in rows}


@pytest.fixture
def batch(account: Account) -> Any:
    config = json.dumps({"batch": {"use_docker": False}}).encode()
    urlopen(Request(f"{account.endpoint}/moto-api/config", config, {"Content-Type": "application/json"})).close()
    iam = account.client("iam")
    if not any(
        row["InstanceProfileName"] == "ecsInstanceRole" for row in iam.list_instance_profiles()["InstanceProfiles"]
    ):
        iam.create_instance_profile(InstanceProfileName="ecsInstanceRole")
        iam.create_role(RoleName="batch", AssumeRolePolicyDocument=json.dumps(TRUST))
    return account.client("batch")


def values(account: Account) -> dict[str, str]:
    return {
        "IMAGE": "123456789012.dkr.ecr.us-east-1.amazonaws.com/shapes:1",
        "SUBNETS": ",".join(account.subnets),
        "SECURITY_GROUPS": account.group,
        "FILE_SYSTEM": "fs-0123456789abcdef0",
        "EXECUTION_ROLE": "arn:aws:iam::123456789012:role/reads-secrets",
        "INSTANCE_ROLE": "arn:aws:iam::123456789012:instance-profile/ecsInstanceRole",
        # moto doesn't have the role that AWS would make.
        "SERVICE_ROLE": "arn:aws:iam::123456789012:role/batch",
    }


def test_a_container_never_asks_for_more_than_its_machine_has(shapes: Laptop) -> None:
    """Four A10G are a g5.12xlarge with 48 vCPUs, and of its 192 GiB ECS keeps a part. fact: batch-memory."""
    folder = export(shapes)
    assert read(folder, "compute-environment.json")["computeResources"]["instanceTypes"] == ["g5.12xlarge"]
    assert asked(folder) == {"VCPU": 48, "GPU": 4, "MEMORY": 192 * 1024 * 95 // 100 - 32}


def test_tasks_share_the_machine_by_their_gpus(shapes: Laptop) -> None:
    """Together they fit; one that asks for what the machine doesn't have is refused before anything is written."""
    job = """
        name: two
        resources: {accelerators: a10g:4}
        tasks:
          large: {run: "true", gpus: 0-2}
          small: {run: "true", gpus: 3, cpus: 8}
          after: {run: "true", gpus: 0, after: large}
        """
    folder = export(shapes, job=job)
    shares = [asked(folder, f"{name}.job-definition.json") for name in ("large", "small")]
    assert [share["GPU"] for share in shares] == [3, 1]
    assert [share["VCPU"] for share in shares] == [36, 8]
    assert sum(share["MEMORY"] for share in shares) <= 192 * 1024 * 95 // 100 - 32
    assert read(folder, "compute-environment.json")["computeResources"]["maxvCpus"] == 48
    shapes.write_job(job.replace("cpus: 8", "cpus: 64"))
    shapes.kedge("export", "--to", "batch", "--output", "other", code=2)
    assert "g5.12xlarge is too small for the task small" in shapes.errors
    assert "48 vCPUs" in shapes.errors
    assert not (shapes.home / "other").exists()


def test_aws_takes_every_request(shapes: Laptop, account: Account, batch: Any) -> None:
    """Environment, queue, definition and job, by the model and its rules; a second submission makes only a job.

    fact: batch-retries

    fact: batch-secrets
    """
    folder = export(shapes)
    for _ in range(2):
        said = account.submit(folder, values(account))
    name = "kedge-shapes-g5-12xlarge"
    (environment,) = batch.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
    assert environment["computeResources"]["subnets"] == account.subnets
    assert environment["computeResources"]["minvCpus"] == 0
    (queue,) = batch.describe_job_queues(jobQueues=[name])["jobQueues"]
    assert queue["computeEnvironmentOrder"][0]["computeEnvironment"] == name
    (job,) = batch.describe_jobs(jobs=[said.split()[-1]])["jobs"]
    definition = batch.describe_job_definitions(jobDefinitions=[job["jobDefinition"]])["jobDefinitions"][0]
    assert definition["timeout"] == {"attemptDurationSeconds": 4 * 3600}
    rules = definition["retryStrategy"]["evaluateOnExit"]
    assert [rule["action"].upper() for rule in rules] == ["RETRY", "EXIT"]
    assert rules[0]["onStatusReason"] == "Host EC2*"
    container = definition["containerProperties"]
    assert container["secrets"] == [{"name": "HF_TOKEN", "valueFrom": "/kedge/export/shapes/HF_TOKEN"}]
    assert container["mountPoints"][0]["containerPath"] == "/mnt/kedge"


def test_several_machines_are_one_job(shapes: Laptop, account: Account, batch: Any) -> None:
    """A multi-node parallel job; not at the spot price, which AWS doesn't have for them.

    The export says what such a job asks of the network, and that Batch replaces the main machine alone.

    fact: batch-several-nodes

    fact: batch-network-of-several-nodes

    fact: batch-loss-of-a-node
    """
    folder = export(shapes, "--num-nodes", "2")
    readme = (folder / "README.md").read_text()
    assert "SUBNETS must be private ones with a route to a NAT gateway" in readme
    assert "reach each other" in readme
    assert "NAT gateway" in (folder / "values.sh").read_text()
    assert "- recover: Batch starts a job again whose main machine was lost; after the loss of another one" in readme
    properties = read(folder, "job-definition.json")["nodeProperties"]
    assert (properties["numNodes"], properties["mainNode"]) == (2, 0)
    assert properties["nodeRangeProperties"][0]["container"]["instanceType"] == "g5.12xlarge"
    assert read(folder, "compute-environment.json")["computeResources"]["maxvCpus"] == 96
    account.submit(folder, values(account))
    shapes.kedge("export", "--to", "batch", "--num-nodes", "2", "--spot", code=2)
    assert "AWS Batch runs no job of several machines at the spot price" in shapes.errors


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ((), "kedge-shapes-g5-12xlarge"),
        (("--spot",), "kedge-shapes-g5-12xlarge-spot"),
        (("--num-nodes", "2"), "kedge-shapes-g5-12xlarge-x2"),
        (("--gpu", "l40s:4"), "kedge-shapes-g6e-12xlarge"),
    ],
)
def test_an_environment_is_reused_for_the_same_machines_alone(
    shapes: Laptop, flags: tuple[str, ...], name: str
) -> None:
    """In another one the job would wait for ever; its queue and the commands that remove it have the same name."""
    folder = export(shapes, *flags)
    assert read(folder, "compute-environment.json")["computeEnvironmentName"] == name
    queue = read(folder, "job-queue.json")
    assert queue["jobQueueName"] == queue["computeEnvironmentOrder"][0]["computeEnvironment"] == name
    assert f"delete-compute-environment --compute-environment {name}\n" in (folder / "README.md").read_text()


def test_an_environment_in_another_network_is_not_used(shapes: Laptop, account: Account, batch: Any) -> None:
    """Its machines might not reach the file system; nothing is submitted."""
    folder = export(shapes, "--gpu", "l40s:4")
    account.submit(folder, values(account))
    assert len(batch.list_jobs(jobQueue="kedge-shapes-g6e-12xlarge")["jobSummaryList"]) == 1
    said = account.submit(folder, {**values(account), "SUBNETS": account.subnets[0]}, code=2)
    assert "kedge-shapes-g6e-12xlarge has other subnets or security groups" in said
    assert len(batch.list_jobs(jobQueue="kedge-shapes-g6e-12xlarge")["jobSummaryList"]) == 1


def test_the_first_error_of_the_aws_cli_ends_a_submission(shapes: Laptop, tmp_path: Path) -> None:
    """It isn't taken for an environment that exists already."""
    folder = export(shapes)
    said = _submit_with(f"echo called >> {tmp_path}/calls; echo expired token >&2; exit 255", tmp_path, folder)
    assert said == "expired token\n"
    assert (tmp_path / "calls").read_text() == "called\n"


def test_an_environment_that_is_invalid_is_not_waited_for(shapes: Laptop, tmp_path: Path) -> None:
    """Batch's reason is shown."""
    text = "case $* in *statusReason*) echo no such role ;; *subnets*) echo sg-1,subnet-1 ;; *) echo INVALID ;; esac"
    assert "no such role" in _submit_with(text, tmp_path, export(shapes))


def _submit_with(aws: str, tmp_path: Path, folder: Path) -> str:
    """Submit with this script as the AWS CLI, which must fail; return what is printed."""
    (tmp_path / "aws").write_text(f"#!/bin/sh\n{aws}\n")
    (tmp_path / "aws").chmod(0o755)
    names = ("IMAGE", "FILE_SYSTEM", "EXECUTION_ROLE")
    own = dict.fromkeys(names, "x") | {"SUBNETS": "subnet-1", "SECURITY_GROUPS": "sg-1"}
    env = {**own, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    argv = ["bash", str(folder / "submit.sh")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, 2), done.stdout
    return done.stdout + done.stderr


def test_a_run_goes_on_in_another_job(shapes: Laptop, account: Account, batch: Any) -> None:
    """Which has the first one's folder on the file system; its name can't lead elsewhere."""
    folder = export(shapes)
    said = account.submit(folder, {**values(account), "RUN": "shapes-1"})
    assert "run shapes-1\n" in said
    (job,) = batch.describe_jobs(jobs=[said.split()[-1]])["jobs"]
    assert {"name": "EXPORT_RUN_ID", "value": "shapes-1"} in job["container"]["environment"]
    assert "no run: ../x" in account.submit(folder, {**values(account), "RUN": "../x"}, code=2)


def test_spot_machines_are_chosen_by_their_price_and_capacity(shapes: Laptop) -> None:
    """And a job whose machine was reclaimed is started again."""
    folder = export(shapes, "--spot")
    resources = read(folder, "compute-environment.json")["computeResources"]
    assert (resources["type"], resources["allocationStrategy"]) == ("SPOT", "SPOT_PRICE_CAPACITY_OPTIMIZED")


def test_a_submission_without_values_names_the_first(shapes: Laptop, account: Account) -> None:
    """Before it asks AWS for anything; a value that would need quotes is none."""
    folder = export(shapes)
    assert account.submit(folder, {}, code=2) == "set IMAGE in values.sh\n"
    assert "set SUBNETS" in account.submit(folder, {"IMAGE": "x", "SUBNETS": 'a","b'}, code=2)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--gpu", "mi300x"), "AWS has no GPU 'mi300x'"),
        (("--gpu", "v100"), "AWS Batch has no image for p3.2xlarge"),
        (("--gpu", "a10g:3"), "no machine of AWS has a10g:3"),
        (("--instance-type", "c9.huge"), "kedge doesn't know the vCPUs and the memory of c9.huge"),
        (("--ttl", "80s"), "the deadline leaves the command no time"),
    ],
)
def test_what_batch_cannot_run_is_refused(shapes: Laptop, flags: tuple[str, ...], says: str) -> None:
    """Nothing is written then.

    fact: batch-images
    """
    shapes.kedge("export", "--to", "batch", *flags, code=2)
    assert says in shapes.errors
    assert not (shapes.home / "export").exists()


def test_the_containers_command_has_the_contract(laptop: Laptop, tmp_path: Path) -> None:
    """A second attempt of the job resumes, and keeps the first one's deadline.

    Another job of the same run resumes, too, and has a deadline and a port of its own: two may be on one machine.

    fact: batch-network-of-one-node
    """
    laptop.write_job(
        """
        name: stepping
        resources: {infra: aws}
        run: echo "$KEDGE_RUN_ID $KEDGE_RESUME $KEDGE_NODE_RANK" >> $KEDGE_OUTPUT_DIR/log; cat $KEDGE_DEADLINE_FILE;
          echo $KEDGE_PORT >> $KEDGE_OUTPUT_DIR/ports; echo 1 > ckpt/step-1.txt; false
        resume: {command: echo "on $KEDGE_CHECKPOINT" >> $KEDGE_OUTPUT_DIR/log; cat $KEDGE_DEADLINE_FILE;
          echo $KEDGE_PORT >> $KEDGE_OUTPUT_DIR/ports}
        checkpoints: ckpt
        supervisor: {restarts: 0}
        """
    )
    folder = export(laptop)
    script = (folder / "batch.sh").read_text().replace("/mnt/kedge", str(tmp_path / "efs"))
    (folder / "batch.sh").write_text(script.replace("/tmp/kedge", str(tmp_path / "work")))
    deadlines = [_start(folder, attempt) for attempt in (1, 2)]
    root = tmp_path / "efs/runs/stepping-0a1b2c3d"
    next((root / ".kedge").glob("deadline*")).write_text("1")
    deadlines.append(_start(folder, 2, AWS_BATCH_JOB_ID="1b2c", EXPORT_RUN_ID="stepping-0a1b2c3d"))
    assert (root / "output" / "log").read_text().splitlines() == [
        "stepping-0a1b2c3d  0",
        *[f"on {root}/checkpoints/step-1.txt"] * 2,
    ]
    assert deadlines[0] == deadlines[1] <= deadlines[2]
    ports = (root / "output" / "ports").read_text().split()
    assert ports[0] == ports[1] != ports[2]


def _start(folder: Path, attempt: int, **more: str) -> int:
    done = subprocess.run(
        ["bash", str(folder / "batch.sh")],
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "AWS_BATCH_JOB_ID": "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
            "AWS_BATCH_JOB_ATTEMPT": str(attempt),
            "VIRTUAL_ENV": "/usr",
            **more,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == (1 if attempt == 1 else 0), done.stderr + done.stdout
    return next(int(line) for line in done.stdout.splitlines() if line.isdigit())
