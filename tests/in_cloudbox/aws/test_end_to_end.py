"""Whole runs on AWS in the box: the real program, machines that boot, an S3, a meter."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.leftovers import leftovers
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


def instances(box: Box, region: str = REGION) -> list[dict[str, Any]]:
    """List all instances of a region, ended ones included."""
    answer = box.client("ec2", region).describe_instances()
    return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]


def steps(laptop: Laptop, run: str, folder: str) -> list[int]:
    """Fetch the results, and read which steps were done, in order."""
    laptop.kedge("fetch", run, "--to", folder)
    lines = (laptop.home / folder / "output" / "results" / "steps.log").read_text().splitlines()
    assert {line.split()[1] for line in lines} == {run}
    return [int(line.split()[0]) for line in lines]


def shipped_step(laptop: Laptop, run: str) -> int:
    """Return the newest step whose checkpoint is in the bucket, 0 for none."""
    seen = laptop.json("status", run)[0].get("report") or {}
    newest = (seen.get("shipped") or {}).get("checkpoint") or ""
    digits = "".join(letter for letter in Path(newest).name if letter.isdigit())
    return int(digits or 0)


def assert_counted(box: Box, laptop: Laptop, *, unseen_usd: Decimal = Decimal()) -> None:
    """Check `cost` against the meter, within 1 % or two seconds for each machine: AWS's times are whole seconds.

    Args:
        box: AWS.
        laptop: where the run was launched.
        unseen_usd: the cost of a reclaimed machine until kedge noticed its end; `cost` may include it.
    """
    metered = box.meter()
    counted = sum(Decimal(run["spent_usd"]) for run in laptop.json("cost"))
    slack = max(metered.usd / 100, 2 * sum((bill.usd_per_hour for bill in metered.bills), Decimal()) / 3600)
    assert -slack <= counted - metered.usd <= slack + unseen_usd, (counted, metered.usd)


def unseen_usd(box: Box, *, to_the_end: bool = False) -> Decimal:
    """Return what the first machine would have cost from its end until the next one was created, or has ended."""
    first, second = sorted((bill for bill in box.meter().bills if bill.kind == "instance"), key=lambda bill: bill.since)
    assert first.until is not None
    seen = second.until if to_the_end else second.since
    assert seen is not None
    return Decimal(seen - first.until) * first.usd_per_hour / 3600


def test_a_spot_launch_trains_by_itself_and_leaves_nothing(box: Box, laptop: Laptop) -> None:
    """Its user-data pulls the code from S3; results come home; the meter agrees with `cost`.

    No machine of the box has GPUs that the real torch would find: its burn-in is left out.
    """
    laptop.kedge(
        *("launch", "--provider", "aws", "--gpu", "t4", "--spot", "--job", "digits", "--mode", "validate"),
        *("--supervisor", "systemd", "--env", "EPOCHS=2", "--env", "OMP_NUM_THREADS=1"),
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
    """It trains, uploads, and ends its machine; results can be fetched although the machine is gone.

    Files that the script wrote outside its outputs are among them.
    """
    write_job(laptop, steps=3)
    with (laptop.home / "train.py").open("a") as script:
        script.write('pathlib.Path("beside.pt").write_text("weights")\n')
    # The ledger's writes: open_run, intent of the staging, its outcome, intent of the creation, then the machine.
    done = laptop.drive("crashing_launch.py", "before", "5")
    assert done.returncode == -9, done.stderr
    assert len(instances(box)) == 1
    wait_until(lambda: instances(box)[0]["State"]["Name"] == "terminated", seconds=240)
    assert instances(box)[0]["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    (status,) = laptop.json("status", "--all")
    run = status["run"]
    assert (status["state"], status["stage"]) == ("succeeded", "ended")
    assert steps(laptop, run, "home") == [1, 2, 3]
    left_behind = laptop.home / "home" / "left-behind"
    assert {path.name: path.read_text() for path in left_behind.iterdir()} == {"beside.pt": "weights"}
    assert leftovers(box) == []


def test_a_run_on_demand_under_tmux_with_a_data_volume(box: Box, laptop: Laptop) -> None:
    """Started over SSH; the volume is formatted once, keeps its data across machines, and is kept at the end."""
    write_job(laptop, start="ssh", spot=False, supervisor="tmux")
    with (laptop.home / "kedge.yaml").open("a") as job:
        job.write("volumes: {keep/here: {name: numbers, size: 1}}\n")
    run = laptop.json("launch", "--yes", "--detach")["run"]
    (instance,) = instances(box)
    assert "InstanceLifecycle" not in instance
    laptop.kedge("exec", "--", "sh", "-c", "findmnt -T keep/here -no FSTYPE && echo 42 > keep/here/answer")
    wait_until(lambda: shipped_step(laptop, run) > 1, seconds=240)
    laptop.kedge("teardown", "--yes", "--no-fetch")
    volumes = box.client("ec2").describe_volumes()["Volumes"]
    assert [(volume["State"], volume["Size"]) for volume in volumes] == [("available", 1)]
    laptop.kedge("resume", run, "--yes", "--detach")
    assert laptop.kedge("exec", "--", "cat", "keep/here/answer") == "42\n"
    laptop.kedge("teardown", "--yes", "--no-fetch")
    box.client("ec2").delete_volume(VolumeId=volumes[0]["VolumeId"])


@pytest.mark.parametrize("notice_seconds", [20, None])
def test_a_reclaimed_run_is_recovered_on_another_machine(box: Box, laptop: Laptop, notice_seconds: int | None) -> None:
    """`launch --recover` replaces the machine; the run resumes from its last complete checkpoint."""
    write_job(laptop, steps=300)
    launch = laptop.start("launch", "--recover", "--yes")
    wait_until(lambda: any(one["booted"] for one in box.machines()), seconds=240)
    run = laptop.json("status", "--ledger")[0]["run"]
    wait_until(lambda: shipped_step(laptop, run) > 1, seconds=240)
    box.reclaim(instances(box)[0]["InstanceId"], notice_seconds=notice_seconds)
    said, errors = launch.communicate(timeout=300)
    assert launch.returncode == 0, said + errors
    assert "is replaced" in said
    assert len(instances(box)) == 2
    done = steps(laptop, run, "home")
    assert sorted(set(done)) == list(range(1, 301))
    # With a notice the last save is uploaded; without one, the steps after the last upload are done again.
    assert len(done) - len(set(done)) <= (20 if notice_seconds else 250)
    assert_counted(box, laptop)
    assert leftovers(box) == []


@pytest.mark.parametrize(("ending_seconds", "stage"), [(0, "gone"), (3600, "ending")])
def test_a_reclaimed_run_can_be_resumed_by_hand(box: Box, laptop: Laptop, ending_seconds: int, stage: str) -> None:
    """`kedge resume` finds that the machine was reclaimed, and resumes from the checkpoint on another.

    It doesn't wait for a machine that is still shutting down, which may take minutes. fact: aws-slow-ends
    """
    write_job(laptop, steps=150)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 1, seconds=240)
    box.set_states(pending_seconds=0, ending_seconds=ending_seconds)
    first = instances(box)[0]["InstanceId"]
    box.reclaim(first, notice_seconds=None)
    resume = laptop.start("resume", run, "--yes")
    wait_until(lambda: any(one["booted"] and one["instance_id"] != first for one in box.machines()), seconds=240)
    assert (instances(box)[0]["State"]["Name"] == "shutting-down") == (stage == "ending")
    box.set_states(pending_seconds=0, ending_seconds=0)
    box.finish_states()
    said, errors = resume.communicate(timeout=300)
    assert resume.returncode == 0, said + errors
    assert f"found: machine {run}-m1 is {stage}: aws took it away (Server.SpotInstanceTermination" in said
    assert [one["State"]["Name"] for one in instances(box)] == ["terminated", "terminated"]
    assert sorted(set(steps(laptop, run, "home"))) == list(range(1, 151))
    # The log belongs to the run: it includes the first machine's lines.
    log = (laptop.home / "home" / "run.log").read_text()
    assert (log.count("a fresh start"), log.count("going on from step")) == (1, 1)
    assert_counted(box, laptop, unseen_usd=unseen_usd(box, to_the_end=stage == "ending"))
    assert leftovers(box) == []


def test_a_machine_that_somebody_ends_in_the_console_is_not_replaced(box: Box, laptop: Laptop) -> None:
    """`launch --recover` ends with it and says why; nothing is left, and the timer's command finds nothing to do."""
    write_job(laptop)
    launch = laptop.start("launch", "--recover", "--yes")
    wait_until(lambda: any(one["booted"] for one in box.machines()), seconds=240)
    run = laptop.json("status", "--ledger")[0]["run"]
    wait_until(lambda: shipped_step(laptop, run) > 1, seconds=240)
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
    write_job(laptop, steps=3)
    box.fail_next("RunInstances", "InsufficientInstanceCapacity", times=None, region=REGION)
    said = laptop.kedge("launch", "--region", f"{REGION},{ELSEWHERE}", "--yes")
    assert f"aws/{REGION}/{REGION}a g4dn.xlarge: " in said
    assert instances(box) == []
    (instance,) = instances(box, ELSEWHERE)
    assert instance["State"]["Name"] == "terminated"
    (status,) = laptop.json("status", "--all")
    assert (status["state"], status["stage"]) == ("succeeded", "ended")
    assert steps(laptop, status["run"], "home") == [1, 2, 3]
    assert_counted(box, laptop)
    assert leftovers(box) == leftovers(box, ELSEWHERE) == []


def test_new_code_reaches_a_machine_through_s3(box: Box, laptop: Laptop) -> None:
    """`sync-code --restart` resumes from the checkpoint, on the new code; unchanged code isn't sent."""
    write_job(laptop, start="ssh")
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 1, seconds=240)
    script = laptop.home / "train.py"
    script.write_text(script.read_text().replace("of {steps}", "of the {steps}"))
    laptop.kedge("sync-code", "--restart")
    wait_until(lambda: " of the " in laptop.kedge("logs"), seconds=240)
    box.reset_calls()
    assert "in place already" in laptop.kedge("sync-code")
    assert [seen for seen in box.calls("s3") if seen.action == "PutObject" and "code/" in str(seen.params)] == []
    laptop.kedge("teardown", "--yes", "--no-fetch")
