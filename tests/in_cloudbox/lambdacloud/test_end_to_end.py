"""Whole runs on Lambda in the box: the real program, instances that boot, a meter; no bucket unless noted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime

import boto3
import pytest

from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.rates import LAUNCH
from tests.in_cloudbox.deadlines import bring_deadline_near, timers
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {{STEPS: {steps}, PAUSE: 0.2, SAVE_EVERY: 10}}
    deadline: {deadline}
    budget: 5
    resources: {{infra: lambda, instance_type: cpu_4x_general}}
    supervisor: {{kind: tmux, restarts: 0, grace: 5s}}
"""
WHOSE = "127.0.0.1/32"


@pytest.fixture
def laptop(lambda_box: LambdaBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with a Lambda account, where nothing may bill when the test ends."""
    laptop.extra_env |= {**lambda_box.environ, "KEDGE_PROVIDER": "lambda", "KEDGE_SSH_FROM": WHOSE}
    shutil.copy(TRAIN, laptop.home / "train.py")
    yield laptop
    assert lambda_box.meter.billing() == [], "something is left billing"


@pytest.fixture
def bucket(moto: str) -> dict[str, str]:
    """The variables of a bucket in an S3-compatible store, for which moto's S3 stands in."""
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    session.client("s3", endpoint_url=moto).create_bucket(Bucket="kedge-lambda")
    return {
        "KEDGE_STORE_BUCKET": "kedge-lambda",
        "KEDGE_STORE_ENDPOINT": moto,
        "KEDGE_STORE_REGION": "us-east-1",
        "KEDGE_STORE_ACCESS_KEY_ID": "KEDGEBOX",
        "KEDGE_STORE_SECRET_ACCESS_KEY": "c2VjcmV0IG9mIHRoZSBib3g",
    }


def write_job(laptop: Laptop, *, steps: int = 100_000, deadline: str = "10m") -> None:
    """Write the user's job."""
    laptop.write_job(JOB.format(steps=steps, deadline=deadline))


def launch(laptop: Laptop, *words: str) -> str:
    """Launch without a reaper, and return the output."""
    return laptop.kedge("launch", "--yes", "--without-reaper", *words)


def is_uploaded(laptop: Laptop, run: str) -> bool:
    """Return whether the command has succeeded, and its results are in the bucket."""
    report = laptop.json("status", run)[0].get("report") or {}
    command, upload = report.get("command") or {}, report.get("shipped") or {}
    return command.get("state") == "succeeded" and upload.get("time", 0) >= command["since"]


def test_a_launch_trains_and_leaves_nothing(lambda_box: LambdaBox, laptop: Laptop) -> None:
    """Code, data and the command go to the machine over SSH, once it shows its own host key; results come home.

    No API key is left on this computer, and none is on the machine.
    """
    write_job(laptop, steps=5)
    (laptop.home / "numbers").mkdir()
    (laptop.home / "numbers" / "one.txt").write_text("1")
    with (laptop.home / "kedge.yaml").open("a") as job:
        job.write("data: {numbers: ./numbers}\n")
    said = launch(laptop)
    assert "results end with the machine" in said
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    assert (results / "output" / "results" / "model.txt").read_text() == "trained for 5 steps"
    assert lambda_box.instances() == []
    assert unsettled(laptop) == []
    kept = [path for path in laptop.state.rglob("*") if path.is_file()]
    assert not [path for path in kept if any(secret.encode() in path.read_bytes() for secret in lambda_box.secrets())]


def test_a_machine_closes_itself_before_anybody_else_gets_in(lambda_box: LambdaBox, laptop: Laptop) -> None:
    """At every boot, before sshd accepts kedge's users; the network is the plan's."""
    write_job(laptop)
    run = laptop.json("launch", "--yes", "--without-reaper", "--detach")["run"]
    read = ("exec", run, "--admin", "--", "sh", "-c")
    rules = laptop.kedge(*read, "sudo cat /var/log/nft.rules; systemctl show ssh -P ExecMainStartTimestampMonotonic")
    assert f"ip saddr {WHOSE} tcp dport 22 accept" in rules
    assert "policy drop" in rules
    closed_at = float(next(line for line in rules.splitlines() if line.startswith("at ")).split()[1])
    sshd_at = int(rules.split()[-1]) / 1e6
    assert closed_at <= sshd_at
    laptop.kedge("resume", run, "--ssh-from", "198.51.100.0/24", "--yes", code=2)
    assert f"kedge teardown {run}" in laptop.errors
    laptop.kedge("teardown", run, "--yes", "--no-fetch")
    assert unsettled(laptop) == []


def test_a_forgotten_machine_bills_until_a_reaper_ends_it(lambda_box: LambdaBox, laptop: Laptop) -> None:
    """It powers itself off at its deadline, which was moved, and still bills; `kedge reap` ends it, without the ledger.

    fact: lambda-tags-at-launch-only.
    """
    write_job(laptop)
    started = laptop.start("launch", "--yes", "--without-reaper")
    wait_until(lambda: "step 1 of" in laptop.kedge("logs", code=None), seconds=240)
    started.kill()
    started.wait()
    said = laptop.kedge("extend", "30m", "--yes")
    assert "keep the old deadline, because Lambda lets nobody change them" in " ".join(said.split())
    timer, agent = timers(laptop)
    ((machine,),) = [each["machines"] for each in laptop.json("status")]
    assert timer - agent == 30
    assert 0 <= datetime.fromisoformat(machine["deadline_at"]).timestamp() - timer <= 30
    bring_deadline_near(laptop, seconds=10)
    (instance,) = lambda_box.instances()
    wait_until(lambda: not instance.powered, seconds=120)
    assert [bill.kind for bill in lambda_box.meter.billing()] == ["instance"]
    shutil.rmtree(laptop.state)
    done = laptop.drive("reaping_later.py", "3600", "lambda", "--all")
    assert done.returncode == 0, done.stderr
    assert lambda_box.instances() == []


def test_after_its_command_a_machine_that_nobody_follows_is_ended_by_reap(
    lambda_box: LambdaBox, laptop: Laptop, bucket: dict[str, str]
) -> None:
    """Its results are in the bucket, whose keys the timer doesn't have; a machine at Lambda can't end itself."""
    laptop.extra_env |= bucket
    write_job(laptop, steps=3, deadline="30m")
    run = laptop.json("launch", "--yes", "--without-reaper", "--detach")["run"]
    wait_until(lambda: is_uploaded(laptop, run), seconds=240)
    for name in bucket:
        del laptop.extra_env[name]
    assert "Nothing bills except live runs" in laptop.kedge("reap", "--yes", "--provider", "lambda")
    assert len(lambda_box.instances()) == 1, "its follower has some minutes to fetch"
    done = laptop.drive("reaping_later.py", "360", "lambda")
    assert done.returncode == 0, done.stderr
    assert "its command has succeeded" in " ".join(done.stdout.split())
    assert lambda_box.instances() == []
    laptop.extra_env |= bucket
    laptop.kedge("fetch", run, "--to", "home")
    assert (laptop.home / "home" / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    assert laptop.json("status", run)[0]["stage"] == "ended"
    assert unsettled(laptop) == []


def test_a_launch_whose_answer_is_lost_finds_its_machine(lambda_box: LambdaBox, laptop: Laptop) -> None:
    """Its tags identify it, and it shows the host key that it was given. fact: lambda-no-idempotency."""
    lambda_box.faults.drop_next(*LAUNCH)
    write_job(laptop, steps=3)
    assert "succeeded" in launch(laptop)
    assert len([bill for bill in lambda_box.meter.bills() if bill.kind == "instance"]) == 1
