"""Whole runs on DigitalOcean in the box: the real program, droplets that boot, a meter; no bucket unless noted."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.rest.meter import Bill
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
    deadline: 10m
    budget: 5
    resources: {{infra: do, instance_type: s-2vcpu-4gb}}
    supervisor: {{kind: {supervisor}, restarts: 0, grace: 5s}}
"""
TASKS = """
    tasks:
      pcdiff: {run: python3 train.py, envs: {STEPS: 2}}
      voxel: {run: python3 train.py}
"""

MODES = """
    setup: echo once >> "$KEDGE_OUTPUT_DIR/setups.txt"
    modes:
      validate: {envs: {SAVE_EVERY: 1, PAUSE: 0.01}}
      fast: {envs: {SAVE_EVERY: 1, PAUSE: 0.01, STEPS: 100}}
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


def modes(laptop: Laptop, run: str) -> list[dict[str, Any]]:
    """Read the modes of the run, and how each has ended."""
    (status,) = laptop.json("status", run)
    return list(status["modes"])


def task_states(laptop: Laptop, run: str) -> dict[str, str]:
    """Read the states of the tasks."""
    return {task["task"]: task["state"] for task in laptop.json("status", run)[0]["tasks"]}


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


def test_tasks_are_watched_fetched_from_and_torn_down(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """`status` shows each task's state; the results so far come home; teardown ends the run.

    Each task has its own unit of systemd. After a reset and a reboot, the one at work goes on. What is over or stopped
    stays so.
    """
    job = JOB.format(steps=100_000, supervisor="systemd").replace("    run: python3 train.py\n", "")
    laptop.write_job(job.replace("restarts: 0", "restarts: 2") + TASKS)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: task_states(laptop, run) == {"pcdiff": "succeeded", "voxel": "running"}, seconds=240)
    wait_until(lambda: "step 3 of" in laptop.kedge("logs", run, "--task", "voxel"))
    units = laptop.kedge("exec", "--", "systemctl", "list-units", "--no-legend", "kedge-run@*")
    assert ("kedge-run@voxel.service" in units, "kedge-run@pcdiff.service" in units) == (True, False)
    laptop.kedge("fetch", run, "--task", "voxel", "--to", "so-far")
    assert "1 toy-" in (laptop.home / "so-far" / "voxel" / "output" / "results" / "steps.log").read_text()

    wait_until(lambda: "step 11 of" in laptop.kedge("logs", run, "--task", "voxel"))
    for number, how in enumerate((("-ff",), ()), 1):
        laptop.kedge("exec", "--admin", "--", "sudo", "systemctl", "reboot", *how, code=None)
        wait_until(partial(_goes_on, laptop, run, number), seconds=240)
        wait_until(lambda: task_states(laptop, run) == {"pcdiff": "succeeded", "voxel": "running"}, seconds=240)
    assert laptop.kedge("logs", run, "--task", "pcdiff").count("started, attempt") == 1
    assert "asked to stop: SIGTERM" in laptop.kedge("logs", run, "--task", "voxel", "--lines", "100000")
    laptop.kedge("stop", run)
    boot, _ = _last_exit(laptop)
    laptop.kedge("exec", "--admin", "--", "sudo", "systemctl", "reboot", code=None)
    # The unit has started and ended in the next boot.
    wait_until(lambda: _last_exit(laptop)[0] not in ("", boot) and int(_last_exit(laptop)[1]), seconds=240)
    assert task_states(laptop, run) == {"pcdiff": "succeeded", "voxel": "stopped"}
    laptop.kedge("teardown", run, "--yes")
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def _last_exit(laptop: Laptop) -> tuple[str, str]:
    """Return the machine's boot, and when the unit of voxel has ended in it, 0 for not yet; empty without an answer."""
    unit = "systemctl show kedge-run@voxel.service -P ExecMainExitTimestampMonotonic"
    said = laptop.kedge("exec", "--", "sh", "-c", f"cat /proc/sys/kernel/random/boot_id; {unit}", code=None).split()
    return (said[0], said[1]) if len(said) == 2 else ("", "0")


def _goes_on(laptop: Laptop, run: str, times: int) -> bool:
    log = laptop.kedge("logs", run, "--task", "voxel", "--lines", "100000", code=None)
    return log.count("going on from step") == times


def test_modes_follow_on_one_droplet_whose_results_wait_for_a_fetch(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """Fresnel's flow: validate, then fast on the same machine with the same setup, fetch, teardown; without a bucket.

    Reap leaves the finished run's droplet until its deadline.
    """
    write_job(laptop, steps=2)
    with (laptop.home / "kedge.yaml").open("a") as job:
        job.write(textwrap.dedent(MODES))
    run = laptop.json("launch", "--mode", "validate", "--keep", "--yes", "--detach")["run"]
    wait_until(lambda: state(laptop, run) == "succeeded", seconds=240)
    assert "Nothing bills" in laptop.kedge("reap", "--yes", "--provider", "do")
    shown = laptop.kedge("start", "--mode", "fast", "--env", "STEPS=5", "--yes")
    assert "mode fast starts fresh; its results are in 2-fast/" in shown
    wait_until(lambda: [mode["outcome"] for mode in modes(laptop, run)] == ["succeeded", "succeeded"])
    assert len([bill for bill in do_box.meter.bills() if bill.kind == "droplet"]) == 1
    laptop.kedge("fetch", run, "--to", "home")
    first, second = (laptop.home / "home" / key for key in ("", "2-fast"))
    trained = [(each / "output" / "results" / "model.txt").read_text() for each in (first, second)]
    assert trained == ["trained for 2 steps", "trained for 5 steps"]
    assert ["a fresh start" in (each / "run.log").read_text() for each in (first, second)] == [True, True]
    steps = [sorted(path.name for path in (each / "checkpoints").iterdir()) for each in (first, second)]
    assert steps == [[f"step-{step:08}.txt" for step in range(1, last + 1)] for last in (2, 5)]
    assert (first / "output" / "setups.txt").read_text() == "once\n"
    assert not (second / "output" / "setups.txt").exists()
    laptop.kedge("fetch", run, "--mode", "validate", "--to", "only")
    assert "a fresh start" in (laptop.home / "only" / "run.log").read_text()
    assert not (laptop.home / "only" / "2-fast").exists()
    laptop.kedge("teardown", run, "--yes", "--no-fetch")
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def test_a_droplet_deletes_itself_at_its_deadline_when_the_laptop_is_gone(
    do_box: DigitalOceanBox, laptop: Laptop
) -> None:
    """It has a token of its own that can delete droplets; the launch was killed, and its computer lost.

    Before that its deadline was moved, while the launch followed it: its timers and its tag have the new one.
    """
    laptop.extra_env["KEDGE_DIGITALOCEAN_DELETE_TOKEN"] = do_box.make_token(*SCOPES)
    write_job(laptop)
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: "step 1 of" in laptop.kedge("logs", code=None), seconds=240)
    ((machine,),) = [each["machines"] for each in laptop.json("status")]
    laptop.json("extend", "2h", "--yes")
    after = datetime.fromisoformat(machine["deadline_at"]).timestamp() + 7200
    timer, agent = timers(laptop)
    assert after - 30 <= timer <= after
    assert agent == timer - 30
    (droplet,) = do_box.droplets()
    (order,) = [tag for tag in droplet.tags if tag.startswith("kedge-order:")]
    assert order.split(":")[2] == "7800"
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
