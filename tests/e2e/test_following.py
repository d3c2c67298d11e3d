"""While a launch follows its run: Ctrl-C, other terminals, and code that changes."""

from __future__ import annotations

import signal

from tests.e2e.runs import JOB, step
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until


def test_ctrl_c_twice_leaves_the_log_and_not_the_run(laptop: Laptop) -> None:
    """The first asks, the second leaves; the output has the resources, their cost, and the two commands to go on."""
    laptop.write_job(JOB % "nohup")
    launch = laptop.start("launch", "--yes", "--price", "1.99")
    assert launch.stdout is not None
    said = ""
    while "step 1 of" not in said:
        line = launch.stdout.readline()
        assert line, said
        said += line
    launch.send_signal(signal.SIGINT)
    while "Ctrl-C again" not in said:
        said += launch.stdout.readline()
    launch.send_signal(signal.SIGINT)
    rest, errors = launch.communicate(timeout=120)
    assert launch.returncode == 130
    assert "Traceback" not in errors
    assert "kedge resume toy-" in rest
    assert "kedge teardown toy-" in rest
    assert "$1.99/h" in rest
    assert laptop.json("status")[0]["state"] == "running"
    laptop.kedge("teardown", "--yes")
    assert laptop.processes() == []


def test_ctrl_c_before_the_command_runs_says_what_exists(laptop: Laptop) -> None:
    """An interrupt in the middle of a launch leaves a run that resume finishes."""
    laptop.write_job((JOB % "nohup").replace("100000", "3"))
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: (laptop.state / "machines").is_dir() and list((laptop.state / "machines").iterdir()))
    launch.send_signal(signal.SIGINT)
    said, errors = launch.communicate(timeout=120)
    assert launch.returncode == 130
    assert "Traceback" not in errors
    assert "kedge teardown toy-" in said
    laptop.kedge("resume", "--yes")
    assert laptop.processes() == []
    assert laptop.json("status", "--all")[0]["state"] == "succeeded"


def test_a_launch_goes_on_following_while_its_code_is_changed(laptop: Laptop) -> None:
    """sync-code --restart from another terminal: the launch follows the new code to its end, fetches and destroys."""
    laptop.write_job(JOB % "nohup")
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: step(laptop) > 2)
    script = (laptop.home / "train.py").read_text()
    changed = script.replace("step {step} of", "new step {step} of").replace("steps + 1)", "done + 21)")
    (laptop.home / "train.py").write_text(changed)
    laptop.kedge("sync-code", "--restart")
    said, errors = launch.communicate(timeout=120)
    assert launch.returncode == 0, errors
    assert said.count("new step") == 20
    assert "Results:" in said
    assert laptop.processes() == []


def test_status_and_cost_do_not_disturb_a_launch(laptop: Laptop) -> None:
    """Status and cost in a loop: no finding, no failed launch, no open entry."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 20"))
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: laptop.json("status"))
    while launch.poll() is None:
        findings = [finding for status in laptop.json("status") for finding in status["findings"]]
        assert [finding for finding in findings if "interrupted" in finding] == []
        laptop.kedge("cost")
    said, errors = launch.communicate(timeout=120)
    assert launch.returncode == 0, errors
    assert "Results:" in said


def test_a_teardown_from_another_terminal_ends_a_launch_quietly(laptop: Laptop) -> None:
    """The user asked for it: the launch prints that the run was stopped."""
    laptop.write_job(JOB % "nohup")
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: step(laptop) > 2)
    laptop.kedge("teardown", "--yes")
    said, errors = launch.communicate(timeout=120)
    assert (launch.returncode, errors) == (0, ""), errors
    assert "stopped" in said
    assert laptop.processes() == []
