"""Whole runs on AWS in the box: the real program, machines that boot, an S3, a meter."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.in_cloudbox.aws.runs import assert_counted, shipped_step, steps, unseen_until_now, wait_until_shipped
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

ELSEWHERE = "us-west-2"
JOB = """
    name: toy
    workdir: .
    start: {start}
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {{STEPS: {steps}, PAUSE: 0.2, SAVE_EVERY: 10}}
    deadline: 10m
    budget: 5
    resources: {{accelerators: T4, use_spot: {spot}, region: us-east-1}}
    supervisor: {{kind: {supervisor}, restarts: 0, grace: 10s}}
"""


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account that a bootstrap has set up."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    yield laptop
    assert box.billing() == [], "something is left billing"


def write_job(
    laptop: Laptop, *, steps: int = 100_000, start: str = "boot", spot: bool = True, supervisor: str = "systemd"
) -> None:
    """Write the user's job."""
    laptop.write_job(JOB.format(steps=steps, start=start, spot=str(spot).lower(), supervisor=supervisor))


def end_when_told(laptop: Laptop) -> None:
    """Have the script succeed as soon as there is a file `enough`."""
    script = laptop.home / "train.py"
    step = "for step in range(done + 1, steps + 1):\n"
    assert step in script.read_text()
    look = '    if pathlib.Path("enough").exists():\n        break\n'
    script.write_text(script.read_text().replace(step, step + look))


def tell_to_end(laptop: Laptop) -> None:
    """Make the file on the machine of the only live run, as soon as it answers."""
    tell = ("exec", "--", "sh", "-c", "touch enough && echo told")
    wait_until(lambda: "told" in laptop.kedge(*tell, code=None))


def running(box: Box) -> str:
    """Return the only instance that runs."""
    (found,) = (one["InstanceId"] for one in instances(box) if one["State"]["Name"] == "running")
    return str(found)


def states(box: Box) -> list[str]:
    """Return the states of all instances, sorted."""
    return sorted(str(one["State"]["Name"]) for one in instances(box))


def read_steps(laptop: Laptop, run: str) -> list[int]:
    """Read the steps that were done from the run's machine, in order; empty if it doesn't answer yet."""
    lines = laptop.kedge("exec", run, "--", "cat", "results/steps.log", code=None).splitlines()
    return [int(line.split()[0]) for line in lines]


def reported_step(laptop: Laptop, run: str) -> int:
    """Return the step of the checkpoint that the machine reports as uploaded; 0 for none."""
    shipped = (laptop.json("status", run)[0].get("report") or {}).get("shipped") or {}
    return int(re.sub(r"\D", "", Path(shipped.get("checkpoint") or "").name) or 0)


def launch_to_recover(box: Box, laptop: Laptop) -> tuple[subprocess.Popen[str], str]:
    """Launch with `--recover`, and return the command and its run as soon as the machine has booted."""
    launch = laptop.start("launch", "--recover", "--yes")
    wait_until(lambda: any(one["booted"] for one in box.machines()), seconds=120, pause=0.3)
    return launch, laptop.json("status", "--ledger")[0]["run"]


def test_a_spot_launch_trains_by_itself_and_leaves_nothing(box: Box, laptop: Laptop) -> None:
    """Its user-data pulls the code from S3; results come home; the meter agrees with `cost`.

    No machine of the box has GPUs that the real torch would find: its burn-in is left out.
    """
    laptop.kedge(
        *("launch", "--provider", "aws", "--gpu", "t4", "--spot", "--job", "digits", "--mode", "validate"),
        *("--supervisor", "systemd", "--env", "EPOCHS=1", "--env", "OMP_NUM_THREADS=1"),
        *("--env", "KEDGE_TORCH_WHEEL=none", "--yes"),
    )
    (instance,) = instances(box)
    assert instance["State"]["Name"] == "terminated"
    assert instance["InstanceLifecycle"] == "spot"
    (results,) = (laptop.home / "kedge-results").glob("digits-*")
    assert {"curves.png", "model.onnx", "metrics.jsonl"} <= {path.name for path in (results / "output").iterdir()}
    (best,) = (results / "checkpoints").glob("best-*.safetensors")
    assert best.stat().st_size > 0
    assert_counted(box, laptop)
    assert leftovers(box) == []


def test_a_run_completes_although_the_laptop_died_right_after_the_creation(box: Box, laptop: Laptop) -> None:
    """It trains with its secret, uploads, and ends its machine; results can be fetched although the machine is gone.

    Files that the script wrote outside its outputs are among them. The machine's role may read its own secrets alone,
    and these are deleted with the run.
    """
    write_job(laptop, steps=3)
    job = laptop.home / "kedge.yaml"
    job.write_text(job.read_text().replace("run: ", "secrets: [HF_TOKEN]\nrun: printenv HF_TOKEN >beside.txt && "))
    laptop.extra_env["HF_TOKEN"] = "hf_only-the-machine"
    box.enforce_iam()
    with (laptop.home / "train.py").open("a") as script:
        script.write('pathlib.Path("beside.pt").write_text("weights")\n')
    # The ledger's writes: open_run, intent and outcome of the code and of the secrets, intent of the creation, machine.
    done = laptop.drive("crashing_launch.py", "before", "7")
    assert done.returncode == -9, done.stderr
    assert len(instances(box)) == 1
    del laptop.extra_env["HF_TOKEN"]
    wait_until(lambda: instances(box)[0]["State"]["Name"] == "terminated", seconds=240)
    assert instances(box)[0]["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    (status,) = laptop.json("status", "--all")
    run = status["run"]
    assert (status["state"], status["stage"]) == ("succeeded", "ended")
    assert steps(laptop, run, "home") == [1, 2, 3]
    left_behind = laptop.home / "home" / "left-behind"
    assert {path.name: path.read_text() for path in left_behind.iterdir()} == {"beside.pt": "weights"}
    assert leftovers(box) == []
    box.enforce_iam(False)


def test_a_run_on_demand_under_tmux_with_a_data_volume(box: Box, laptop: Laptop) -> None:
    """Started over SSH; the volume is formatted once, keeps its data across machines, and is kept at the end.

    What the first machine has fetched to the volume, the second one finds there.
    """
    (bucket,) = (found["Name"] for found in box.client("s3").list_buckets()["Buckets"])
    box.client("s3").put_object(Bucket=bucket, Key="data/given/a/set.csv", Body=b"1,2")
    write_job(laptop, start="ssh", spot=False, supervisor="tmux")
    with (laptop.home / "kedge.yaml").open("a") as job:
        job.write("volumes: {keep/here: {name: numbers, size: 1}}\n")
        job.write(f"data: {{keep/here/sets/given: s3://{bucket}/data/given/}}\n")
    run = laptop.json("launch", "--yes", "--detach")["run"]
    (instance,) = instances(box)
    assert "InstanceLifecycle" not in instance
    laptop.kedge("exec", "--", "sh", "-c", "findmnt -T keep/here -no FSTYPE && echo 42 > keep/here/answer")
    step = wait_until_shipped(box, run)
    # The machine reports an upload after the bucket has it.
    wait_until(lambda: reported_step(laptop, run) >= step)
    laptop.kedge("teardown", "--yes", "--no-fetch")
    volumes = box.client("ec2").describe_volumes()["Volumes"]
    assert [(volume["State"], volume["Size"]) for volume in volumes] == [("available", 1)]
    laptop.kedge("resume", run, "--yes", "--detach")
    assert laptop.kedge("exec", "--", "cat", "keep/here/answer") == "42\n"
    wait_until(lambda: "on its volume already" in laptop.kedge("logs", run))
    assert laptop.kedge("exec", "--", "cat", "keep/here/sets/given/a/set.csv") == "1,2"
    got = [seen for seen in box.calls("s3") if seen.action == "GetObject" and "given/a/set.csv" in str(seen.params)]
    assert len(got) == 1
    laptop.kedge("teardown", "--yes", "--no-fetch")
    box.client("ec2").delete_volume(VolumeId=volumes[0]["VolumeId"])


def test_a_reclaimed_run_is_recovered_on_another_machine(box: Box, laptop: Laptop) -> None:
    """`launch --recover` replaces the machine each time; the run resumes from its last complete checkpoint.

    With a notice the last save is uploaded; without one, the steps after the last upload are done again.
    """
    write_job(laptop)
    end_when_told(laptop)
    launch, run = launch_to_recover(box, laptop)
    wait_until_shipped(box, run)
    box.reclaim(running(box), notice_seconds=20)
    wait_until(lambda: states(box) == ["running", "terminated"], pause=0.3)
    wait_until_shipped(box, run, after=shipped_step(box, run))
    wait_until(lambda: read_steps(laptop, run))
    so_far = read_steps(laptop, run)
    assert len(so_far) - len(set(so_far)) <= 20
    box.reclaim(running(box), notice_seconds=None)
    wait_until(lambda: states(box) == ["running", "terminated", "terminated"], pause=0.3)
    tell_to_end(laptop)
    said, errors = launch.communicate(timeout=120)
    assert launch.returncode == 0, said + errors
    assert "is replaced" in said
    assert len(instances(box)) == 3
    done = steps(laptop, run, "home")
    assert sorted(set(done)) == list(range(1, max(done) + 1))
    log = (laptop.home / "home" / "run.log").read_text()
    assert (log.count("a fresh start"), log.count("going on from step")) == (1, 2)
    assert_counted(box, laptop)
    assert leftovers(box) == []


def test_resume_does_not_wait_for_a_reclaimed_machine_that_is_still_shutting_down(box: Box, laptop: Laptop) -> None:
    """That may take minutes: the run goes on elsewhere meanwhile. fact: aws-slow-ends."""
    write_job(laptop)
    end_when_told(laptop)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until_shipped(box, run)
    box.set_states(pending_seconds=0, ending_seconds=3600)
    first = running(box)
    box.reclaim(first, notice_seconds=None)
    resume = laptop.start("resume", run, "--yes")
    wait_until(lambda: any(one["booted"] and one["instance_id"] != first for one in box.machines()), pause=0.3)
    assert states(box) == ["running", "shutting-down"]
    box.set_states(pending_seconds=0, ending_seconds=0)
    box.finish_states()
    tell_to_end(laptop)
    said, errors = resume.communicate(timeout=240)
    assert resume.returncode == 0, said + errors
    assert f"found: machine {run}-m1 is ending: aws took it away (Server.SpotInstanceTermination" in said
    assert states(box) == ["terminated", "terminated"]
    done = steps(laptop, run, "home")
    assert sorted(set(done)) == list(range(1, max(done) + 1))
    assert_counted(box, laptop, unseen=unseen_until_now)


def test_a_machine_that_somebody_ends_in_the_console_is_not_replaced(box: Box, laptop: Laptop) -> None:
    """`launch --recover` ends with it and says why; nothing is left, and the timer's command finds nothing to do."""
    write_job(laptop)
    launch, run = launch_to_recover(box, laptop)
    wait_until_shipped(box, run)
    box.client("ec2").terminate_instances(InstanceIds=[instances(box)[0]["InstanceId"]])
    said, errors = launch.communicate(timeout=120)
    assert launch.returncode == 1, said + errors
    assert "somebody ended it at aws (Client.UserInitiatedShutdown" in said + errors
    assert f"run {run} is closed" in said
    assert "No live run" in laptop.kedge("recover")
    assert len(instances(box)) == 1
    (status,) = laptop.json("status", "--all")
    assert (status["state"], status["stage"]) == ("stopped", "ended")
    assert leftovers(box) == []


def test_a_launch_that_fails_over_to_another_region_leaves_nothing_in_either(box: Box, laptop: Laptop) -> None:
    """The first region has no machine; the run trains in the second, and its resources in the first are removed."""
    write_job(laptop)
    end_when_told(laptop)
    box.fail_next("RunInstances", "InsufficientInstanceCapacity", times=None, region=REGION)
    launch = laptop.start("launch", "--region", f"{REGION},{ELSEWHERE}", "--yes")
    wait_until(lambda: any(one["booted"] for one in box.machines()), pause=0.3)
    tell_to_end(laptop)
    said, errors = launch.communicate(timeout=120)
    assert launch.returncode == 0, said + errors
    assert f"aws/{REGION}/{REGION}a g4dn.xlarge: " in said
    assert instances(box) == []
    (instance,) = instances(box, ELSEWHERE)
    assert instance["State"]["Name"] == "terminated"
    (status,) = laptop.json("status", "--all")
    assert (status["state"], status["stage"]) == ("succeeded", "ended")
    done = steps(laptop, status["run"], "home")
    assert done == list(range(1, len(done) + 1))
    assert_counted(box, laptop)
    assert leftovers(box) == leftovers(box, ELSEWHERE) == []
