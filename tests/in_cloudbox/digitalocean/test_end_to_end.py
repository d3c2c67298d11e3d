"""Whole runs on DigitalOcean in the box: the real program, droplets that boot, a meter; no bucket unless noted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.rest.meter import Bill
from tests.in_cloudbox.deadlines import bring_deadline_near
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {{STEPS: {steps}, PAUSE: 0.2, SAVE_EVERY: 10}}
    deadline: 10m
    budget: 5
    resources: {{infra: do, instance_type: s-2vcpu-4gb}}
    supervisor: {{kind: {supervisor}, restarts: 0, grace: 5s}}
"""


@pytest.fixture
def laptop(do_box: DigitalOceanBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with a DigitalOcean account, where nothing may bill when the test ends."""
    laptop.extra_env |= {**do_box.environ, "KEDGE_PROVIDER": "do", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    yield laptop
    assert do_box.meter.billing() == [], "something is left billing"


def write_job(laptop: Laptop, *, steps: int = 100_000, supervisor: str = "tmux") -> None:
    """Write the user's job."""
    laptop.write_job(JOB.format(steps=steps, supervisor=supervisor))


def state(laptop: Laptop, run: str) -> str:
    """Read the command's state from the machine's report; empty if it doesn't answer."""
    report = laptop.json("status", run)[0].get("report") or {}
    return str((report.get("command") or {}).get("state", ""))


@pytest.mark.parametrize("supervisor", ["systemd", "tmux"])
def test_a_launch_trains_and_leaves_nothing(do_box: DigitalOceanBox, laptop: Laptop, supervisor: str) -> None:
    """Code, data and the command go to the droplet over SSH; results come home; the droplet is deleted.

    Files that the script wrote outside its outputs come home, too, without a store; files that it wrote into its data
    don't.
    """
    write_job(laptop, steps=5, supervisor=supervisor)
    with (laptop.home / "train.py").open("a") as script:
        script.write('for name in ("beside.pt", "numbers/two.txt"): pathlib.Path(name).write_text("weights")\n')
    (laptop.home / "numbers").mkdir()
    (laptop.home / "numbers" / "one.txt").write_text("1")
    with (laptop.home / "kedge.yaml").open("a") as job:
        job.write("data: {numbers: ./numbers}\n")
    said = laptop.kedge("launch", "--yes")
    assert "results end with the machine" in said
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    assert (results / "output" / "results" / "model.txt").read_text() == "trained for 5 steps"
    assert {path.name for path in (results / "left-behind").iterdir()} == {"beside.pt"}
    assert "beside.pt (7 B)" in said
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def test_a_run_is_watched_fetched_from_and_torn_down(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """`status` shows state and step during the training; the results so far come home; teardown ends the run."""
    write_job(laptop)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: "step 3 of" in laptop.kedge("logs", run), seconds=240)
    wait_until(lambda: state(laptop, run) == "running")
    laptop.kedge("fetch", run, "--to", "so-far")
    assert "1 toy-" in (laptop.home / "so-far" / "output" / "results" / "steps.log").read_text()
    laptop.kedge("teardown", run, "--yes")
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def test_results_wait_on_the_machine_for_a_fetch(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """Without a bucket, a finished run keeps its droplet, and reap leaves it until its deadline."""
    write_job(laptop, steps=2)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: state(laptop, run) == "succeeded", seconds=240)
    assert "Nothing bills" in laptop.kedge("reap", "--yes", "--provider", "do")
    assert len(do_box.droplets()) == 1
    laptop.kedge("fetch", run, "--to", "home")
    assert (laptop.home / "home" / "output" / "results" / "model.txt").read_text() == "trained for 2 steps"
    laptop.kedge("teardown", run, "--yes", "--no-fetch")


def test_a_droplet_deletes_itself_at_its_deadline_when_the_laptop_is_gone(
    do_box: DigitalOceanBox, laptop: Laptop
) -> None:
    """It has a token of its own that can delete droplets; the launch was killed, and its computer lost."""
    laptop.extra_env["KEDGE_DIGITALOCEAN_DELETE_TOKEN"] = do_box.make_token(*SCOPES)
    write_job(laptop)
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: "step 1 of" in laptop.kedge("logs", code=None), seconds=240)
    launch.kill()
    launch.wait()
    bring_deadline_near(laptop, seconds=10)
    shutil.rmtree(laptop.state)
    wait_until(lambda: do_box.droplets() == [], seconds=240)


def test_after_a_creation_that_fails_late_the_next_offer_is_used(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """The launch says so, trains on a droplet in another region, and no two droplets ever bill at once.

    fact: do-creation-errored
    """
    do_box.faults.give_up_next(1)
    write_job(laptop, steps=3)
    said = " ".join(laptop.kedge("launch", "--yes").split())
    assert "do failed to create s-2vcpu-4gb" in said
    assert "succeeded" in said
    failed, trained = sorted((bill for bill in do_box.meter.bills() if bill.kind == "droplet"), key=_since)
    assert failed.until is not None
    assert failed.until <= trained.since
    assert failed.region != trained.region


@pytest.mark.parametrize("waits", [True, False], ids=["fails while it is waited for", "has failed already"])
def test_resume_uses_the_next_offer_if_a_killed_launch_s_creation_failed(
    do_box: DigitalOceanBox, laptop: Laptop, *, waits: bool
) -> None:
    """The droplet never boots: `resume` ends it, waits for no boot, and trains on a droplet in another region.

    The launch dies after the API's 202, while it waits for the creation's action. fact: do-creation-errored
    """
    do_box.faults.give_up_next(10)
    write_job(laptop, steps=3)
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: any(call.path.startswith("/v2/actions/") for call in do_box.calls.find("GET")))
    launch.kill()
    launch.wait()
    (droplet,) = do_box.droplets()
    run = next(tag.removeprefix("kedge-run:") for tag in droplet.tags if tag.startswith("kedge-run:"))
    if not waits:
        wait_until(lambda: "ending" in laptop.kedge("status", run))
    said = " ".join(laptop.kedge("resume", run, "--yes").split())
    assert "succeeded" in said
    failed, trained = sorted((bill for bill in do_box.meter.bills() if bill.kind == "droplet"), key=_since)
    assert failed.until is not None
    assert failed.until <= trained.since
    assert failed.region != trained.region
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def _since(bill: Bill) -> float:
    return bill.since
