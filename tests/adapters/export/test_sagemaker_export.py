"""An export for SageMaker: the training job that AWS's API takes, and what the container's command finds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.export.conftest import Account
from tests.support.laptop import Laptop

VALUES = {
    "IMAGE": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8",
    "ROLE": "arn:aws:iam::123456789012:role/trains",
    "S3": "s3://shapes-bucket/here/",
}


def export(laptop: Laptop, *flags: str) -> Path:
    laptop.kedge("export", "--to", "sagemaker", "--output", "exported", "--force", *flags)
    return laptop.home / "exported"


def request(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "training-job.json").read_text())
    return found


def test_aws_takes_the_training_job(shapes: Laptop, account: Account) -> None:
    """With checkpoints, spot, its data as channels, and its files in the bucket, without secrets.env.

    fact: sagemaker-checkpoints
    """
    account.client("s3").create_bucket(Bucket="shapes-bucket")
    folder = export(shapes, "--spot")
    (folder / "secrets.env").write_text("HF_TOKEN=x")
    said = account.submit(folder, {"JOB": "shapes-1", **VALUES})
    assert "results: s3://shapes-bucket/here/runs/shapes-1/" in said
    job = account.client("sagemaker").describe_training_job(TrainingJobName="shapes-1")
    assert job["CheckpointConfig"] == {
        "S3Uri": "s3://shapes-bucket/here/runs/shapes-1/",
        "LocalPath": "/opt/ml/checkpoints",
    }
    assert job["EnableManagedSpotTraining"] is True
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 14400, "MaxWaitTimeInSeconds": 14400}
    assert job["ResourceConfig"]["InstanceType"] == "ml.g5.12xlarge"
    places = {row["ChannelName"]: row["DataSource"]["S3DataSource"]["S3Uri"] for row in job["InputDataConfig"]}
    assert places == {
        "kedge": "s3://shapes-bucket/here/job/shapes-1/",
        "data-0": "s3://shapes-bucket/here/data/images/",
        "data-1": "s3://shapes-bucket/here/data/labels.csv",
        "data-2": "s3://open-data/shards/",
    }
    keys = [row["Key"] for row in account.client("s3").list_objects_v2(Bucket="shapes-bucket")["Contents"]]
    assert {"here/job/shapes-1/sagemaker.sh", "here/job/shapes-1/code.tar.gz"} <= set(keys)
    assert not [key for key in keys if "secrets" in key]


def test_a_stopped_run_goes_on_in_another_job(shapes: Laptop, account: Account) -> None:
    """The new job has the checkpoints of the old one, its name, and files that are its own."""
    account.client("s3").create_bucket(Bucket="shapes-bucket")
    folder = export(shapes)
    assert request(folder)["Environment"] == {"EXPORT_RUN_ID": "@RUN@"}
    account.submit(folder, {"JOB": "shapes-3", "RUN": "shapes-2", **VALUES})
    job = account.client("sagemaker").describe_training_job(TrainingJobName="shapes-3")
    assert job["CheckpointConfig"]["S3Uri"] == "s3://shapes-bucket/here/runs/shapes-2/"
    assert job["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://shapes-bucket/here/job/shapes-3/"


def test_an_on_demand_job_waits_for_nothing(shapes: Laptop) -> None:
    """MaxWaitTimeInSeconds is for spot alone. fact: sagemaker-max-wait."""
    job = request(export(shapes))
    assert job["EnableManagedSpotTraining"] is False
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 14400}


@pytest.mark.parametrize(
    ("text", "flags", "says"),
    [
        ("", ("--ttl", "29d"), "SageMaker ends each job after 28 days"),
        ("", ("--ttl", "3m"), "the deadline leaves the command no time"),
        ("tasks: {a: {run: sleep 1}, b: {run: sleep 1}}", (), "SageMaker runs one command in a job"),
    ],
)
def test_what_sagemaker_cannot_run_is_refused(shapes: Laptop, text: str, flags: tuple[str, ...], says: str) -> None:
    """Nothing is written then.

    fact: sagemaker-stop
    """
    if text:
        shapes.write_job(f"name: two\nresources: {{accelerators: a10g}}\n{text}\n")
    shapes.kedge("export", "--to", "sagemaker", *flags, code=2)
    assert says in shapes.errors
    assert not (shapes.home / "export").exists()


def test_a_single_task_with_a_name_is_a_job(laptop: Laptop, tmp_path: Path) -> None:
    """Its results are in its own folder, as on kedge's machines; one of the head alone has one machine."""
    job = "name: one\nnum_nodes: 2\ntasks: {only: {nodes: head, run: echo $KEDGE_TASK > $KEDGE_OUTPUT_DIR/said}}\n"
    laptop.write_job(f"{job}resources: {{infra: aws, instance_type: g4dn.xlarge}}\n")
    folder = export(laptop)
    assert request(folder)["ResourceConfig"]["InstanceCount"] == 1
    _start(folder, tmp_path, "one-1")
    assert (tmp_path / "ml" / "checkpoints" / "only" / "output" / "said").read_text() == "only\n"


@pytest.mark.parametrize(
    ("resources", "gib", "says"),
    [
        ("accelerators: v100:8", 100, ""),
        ("accelerators: v100:8, disk_size: 150GB", 150, ""),
        # A local disk, which is all that there is.
        ("accelerators: t4, disk_size: 50GB", 50, ""),
        (
            "accelerators: t4, disk_size: 150GB",
            116,
            "the local disk of ml.g4dn.xlarge has 116 GB, which can't be changed; the job asks for 150 GB",
        ),
    ],
)
def test_the_disk_is_as_large_as_the_job_asks(laptop: Laptop, resources: str, gib: int, says: str) -> None:
    """As far as the machine can have one.

    fact: sagemaker-local-disks
    """
    laptop.write_job(f"name: disks\nresources: {{{resources}}}\nrun: sleep 1\n")
    folder = export(laptop)
    assert request(folder)["ResourceConfig"]["VolumeSizeInGB"] == gib
    lost = [line for line in (folder / "README.md").read_text().splitlines() if "resources.disk_size" in line]
    assert len(lost) == bool(says)
    assert says in "".join(lost)


def test_the_containers_command_has_the_contract(shapes: Laptop, tmp_path: Path) -> None:
    """Run as SageMaker starts it, on the second of two machines: data in its place, and torchrun's variables.

    fact: sagemaker-container

    fact: sagemaker-secrets
    """
    file = shapes.home / "kedge.yaml"
    run = 'run: env > "$KEDGE_OUTPUT_DIR/env"; cat images/one.png labels.csv shards/0 > "$KEDGE_OUTPUT_DIR/data"'
    file.write_text(file.read_text().replace("run: torchrun --nproc-per-node 4 train.py", run).replace("setup:", "#"))
    folder = export(shapes, "--num-nodes", "2")
    ml = tmp_path / "ml"
    for path, text in {
        "input/data/data-0/one.png": "png ",
        "input/data/data-1/labels.csv": "labels ",
        "input/data/data-2/0": "shard",
    }.items():
        (ml / path).parent.mkdir(parents=True, exist_ok=True)
        (ml / path).write_text(text)
    said = _start(folder, tmp_path, "shapes-7", hosts=("algo-2", "algo-1"))
    assert "HF_TOKEN is not set: this scheduler can't pass secrets" in said
    output = ml / "checkpoints" / "output"
    env = dict(line.split("=", 1) for line in (output / "env").read_text().splitlines() if "=" in line)
    assert (output / "data").read_text() == "png labels shard"
    assert env["KEDGE_RUN_ID"] == "shapes-7"
    assert env["KEDGE_CHECKPOINT_DIR"] == str(ml / "checkpoints" / "checkpoints")
    assert (env["KEDGE_NODE_RANK"], env["KEDGE_NUM_NODES"], env["KEDGE_GPUS_PER_NODE"]) == ("1", "2", "4")
    assert (env["MASTER_ADDR"], env["PET_NNODES"], env["PET_NODE_RANK"]) == ("algo-1", "2", "1")


def test_a_continued_run_has_a_deadline_of_its_own(laptop: Laptop, tmp_path: Path) -> None:
    """An interrupted job keeps its first one when it starts again; the next job of the run isn't bound to that."""
    folder = export_stepping(laptop)
    first = _deadline(_start(folder, tmp_path, "stepping-1"))
    assert _deadline(_start(folder, tmp_path, "stepping-1")) == first
    for path in (tmp_path / "ml" / "checkpoints" / ".kedge").glob("deadline*"):
        path.write_text("1")
    assert "the deadline has passed" in _start(folder, tmp_path, "stepping-1", code=143)
    said = _start(folder, tmp_path, "stepping-2", run="stepping-1")
    assert _deadline(said) >= first
    assert f"stepping-1 from {tmp_path}/ml/checkpoints/checkpoints/step-1.txt" in said


def export_stepping(laptop: Laptop, *flags: str) -> Path:
    laptop.write_job(
        """
        name: stepping
        resources: {infra: aws, instance_type: g4dn.xlarge}
        run: echo 1 > ckpt/step-1.txt; echo "$KEDGE_RUN_ID from $KEDGE_CHECKPOINT"; cat $KEDGE_DEADLINE_FILE
        checkpoints: ckpt
        """
    )
    return export(laptop, *flags)


def _deadline(said: str) -> int:
    return next(int(line) for line in said.splitlines() if line.isdigit())


def _start(
    folder: Path, tmp_path: Path, name: str, *, run: str = "", hosts: tuple[str, ...] = ("algo-1",), code: int = 0
) -> str:
    """Run the container's command as SageMaker does, on the first of these hosts; return what it prints."""
    ml = tmp_path / "ml"
    (ml / "input" / "config").mkdir(parents=True, exist_ok=True)
    here = {"current_host": hosts[0], "hosts": hosts}
    (ml / "input" / "config" / "resourceconfig.json").write_text(json.dumps(here))
    script = (folder / "sagemaker.sh").read_text().replace("/opt/ml", str(ml))
    (folder / "sagemaker.sh").write_text(script.replace("/tmp/kedge", str(tmp_path / "work")))
    told = {key: value.replace("@RUN@", run or name) for key, value in request(folder).get("Environment", {}).items()}
    done = subprocess.run(
        ["bash", str(folder / "sagemaker.sh")],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "TRAINING_JOB_NAME": name, "VIRTUAL_ENV": "/usr", **told},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout
