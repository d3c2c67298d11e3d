"""A job's `check` runs on this computer: only by a launch, only after a yes that showed it, with nothing secret."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.laptop import Laptop
from tests.support.terminals import on_terminal
from tests.support.waiting import wait_until
from trainer.generators import generate_data

JOB = """
    name: toy
    run: sleep 1000
    deadline: 10m
    supervisor: nohup
    envs: {SIZE: 8, WHERE: some data}
    check: %s
"""
SCRIPT = """
    echo "$@" >> ran.txt
    env > env.txt
    wc -c > input.txt
    echo checked, and found wanting
"""
FOREIGN = "sh check.sh $SIZE '$WHERE'"
OF_SH = {"PWD", "OLDPWD", "SHLVL", "_"}


@pytest.fixture
def project(laptop: Laptop) -> Laptop:
    """A project whose check writes down that it ran, and with which environment; it fails."""
    (laptop.home / "check.sh").write_text(f"{SCRIPT}\nexit 7\n")
    laptop.write_job(JOB % FOREIGN)
    return laptop


def ran(laptop: Laptop) -> list[str]:
    path = laptop.home / "ran.txt"
    return path.read_text().splitlines() if path.exists() else []


def assert_nothing_was_created(laptop: Laptop) -> None:
    assert not list((laptop.state / "machines").glob("*"))
    assert laptop.json("status", "--all") == []


def answer(laptop: Laptop, words: str, text: bytes) -> tuple[int, str]:
    return on_terminal([*laptop.program, *words.split()], cwd=laptop.home, env=laptop.env, answer=text)


@pytest.mark.parametrize("words", ["plan", "launch --dry-run", "launch --dry-run --yes", "plan --allow-check"])
def test_a_plan_shows_the_check_and_never_runs_it(project: Laptop, words: str) -> None:
    """The line that is shown is the whole command; --json has the argv that a launch would execute."""
    shown = project.kedge(*words.split())
    home = project.home
    assert (
        "this computer runs first, after your yes: sh check.sh 8 'some data' "
        f"(chosen by the job file; it runs as you, in {home})" in shown
    )
    command = ["sh", "check.sh", "8", "some data"]
    assert project.json(*words.split())["checks"] == [
        {"command": command, "runs": command, "folder": str(home), "bundled": False}
    ]
    assert ran(project) == []


def test_a_no_runs_nothing(project: Laptop) -> None:
    """Nor does a launch that can't ask."""
    code, shown = answer(project, "launch", b"n\n")
    assert (code, ran(project)) == (2, [])
    assert "sh check.sh 8 'some data'" in shown.split("Go ahead?")[0]
    project.kedge("launch", code=2)
    assert ran(project) == []


def test_a_check_that_fails_ends_the_launch_with_nothing_created(project: Laptop) -> None:
    """Its output stays, the exit code is 2, and what it was given holds nothing secret and no input."""
    secrets = {"AWS_SECRET_ACCESS_KEY": "k1", "DIGITALOCEAN_ACCESS_TOKEN": "k2", "HF_TOKEN": "k3", "PASSWORD": "k4"}
    project.extra_env |= {**secrets, "LC_TIME": "C.UTF-8"}
    code, shown = answer(project, "launch", b"y\n")
    assert code == 2, shown
    after = shown.split("Go ahead?")[1]
    assert "checked, and found wanting" in after
    assert "the check of the data has failed: sh check.sh 8 'some data'" in after
    assert "it exited with 7; nothing was created" in after
    assert ran(project) == ["8 some data"]
    given = dict(line.partition("=")[::2] for line in (project.home / "env.txt").read_text().splitlines())
    assert given["LC_TIME"] == "C.UTF-8"
    assert given["PATH"] == os.environ["PATH"]
    allowed = {"PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "PYTHONUNBUFFERED"}
    assert {name for name in given if not name.startswith("LC_")} <= allowed | OF_SH
    assert not any(value in secrets.values() for value in given.values())
    assert (project.home / "input.txt").read_text().strip() == "0"
    assert_nothing_was_created(project)


def test_a_program_that_is_not_there_ends_the_launch(project: Laptop) -> None:
    """As a check that fails."""
    project.write_job(JOB % "no-such-program --x")
    project.kedge("launch", "--yes", "--allow-check", code=2)
    assert "can't be started: no-such-program --x" in project.errors
    assert_nothing_was_created(project)


def test_with_yes_only_kedges_own_checks_run(project: Laptop) -> None:
    """A job file with a stranger's repository would choose what runs here: nobody has seen the plan."""
    project.kedge("launch", "--yes", "--detach", code=2)
    assert "with --yes a job file can't choose a command for your computer: sh check.sh 8 'some data'" in project.errors
    assert "--allow-check" in project.errors
    assert ran(project) == []
    assert_nothing_was_created(project)


def test_an_allowed_check_runs_once_and_the_launch_goes_on(project: Laptop) -> None:
    """Neither a resume nor another start runs it again; its output doesn't disturb the JSON document."""
    (project.home / "check.sh").write_text(SCRIPT)
    launched = project.json("launch", "--yes", "--detach", "--allow-check")
    assert "checked, and found wanting" in project.errors
    assert ran(project) == ["8 some data"]
    assert launched["machines"]
    assert project.json("resume", "--dry-run")["checks"] == []
    project.kedge("stop", "--now", "--yes")
    project.kedge("resume", "--yes", "--detach")
    project.kedge("start", "--yes", "--env", "SIZE=9")
    assert ran(project) == ["8 some data"]


def test_kedges_own_check_is_run_by_kedges_python_and_not_by_what_lies_in_the_project(laptop: Laptop) -> None:
    """A `python` on PATH, or a `trainer` beside the job file, would be a stranger's; `nothing` is no check's name."""
    program, module = laptop.home / "bin" / "python", laptop.home / "trainer" / "__main__.py"
    for path, text in ((program, "#!/bin/sh\necho path >> ran.txt\n"), (module, "open('ran.txt', 'w').write('mod')\n")):
        path.parent.mkdir()
        path.write_text(text)
    (laptop.home / "kedge_trainer.py").write_text("open('ran.txt', 'w').write('mod')\n")
    program.chmod(0o755)
    laptop.extra_env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    laptop.write_job(JOB % "python -m trainer check nothing --data . --batch-size $SIZE")
    (check,) = laptop.json("plan")["checks"]
    assert check["bundled"]
    assert check["command"] == ["python", "-m", "trainer", "check", "nothing", "--data", ".", "--batch-size", "8"]
    assert check["runs"][0] == sys.executable
    laptop.kedge("launch", "--yes", code=2)
    assert "the check of the data has failed: python -m trainer check nothing" in laptop.errors
    assert ran(laptop) == []
    assert_nothing_was_created(laptop)


def test_a_trainer_of_the_jobs_own_code_is_not_kedges(laptop: Laptop) -> None:
    """On the machine `-m trainer` means that one, too; it needs a yes."""
    (laptop.home / "trainer.py").write_text("")
    laptop.write_job(JOB % "python -m trainer check nothing" + "    workdir: .\n")
    laptop.kedge("launch", "--yes", code=2)
    assert "can't choose a command for your computer" in laptop.errors
    assert [check["bundled"] for check in laptop.json("plan")["checks"]] == [False]


def test_with_yes_kedges_own_checks_run_and_the_launch_goes_on(laptop: Laptop) -> None:
    """Both of a list; a check of the user's own among them is refused before any runs."""
    for name, size in (("cubes", 2), ("clouds", 3)):
        generate_data("gaussian", laptop.home / name, count=size)
    checks = [f"python -m trainer check gaussian --data {name}" for name in ("cubes", "clouds")]
    laptop.write_job(JOB % f"[{', '.join([*checks, 'sh check.sh'])}]")
    laptop.kedge("launch", "--yes", "--detach", code=2)
    assert "with --yes a job file can't choose a command for your computer: sh check.sh" in laptop.errors
    assert_nothing_was_created(laptop)
    laptop.write_job(JOB % f"[{', '.join(checks)}]")
    assert [check["bundled"] for check in laptop.json("plan")["checks"]] == [True, True]
    launched = laptop.json("launch", "--yes", "--detach")
    assert laptop.errors.count("Nothing is wrong with it.") == 2
    assert launched["machines"]


def test_all_checks_of_a_list_run_and_all_that_have_failed_are_named(project: Laptop) -> None:
    """In their order, each below its command; nothing is created."""
    project.write_job(JOB % "[sh check.sh 1, sh -c true, no-such-program, sh check.sh 2]")
    shown = project.kedge("plan")
    places = [shown.index(f"after your yes: {check} (") for check in ("sh check.sh 1", "sh -c true", "sh check.sh 2")]
    assert places == sorted(places)
    project.kedge("launch", "--yes", "--allow-check", code=2)
    assert ran(project) == ["1", "2"]
    assert "3 of 4 checks of the data have failed" in project.errors
    assert "the check of the data has failed: sh check.sh 1: it exited with 7" in project.errors
    assert "the check of the data can't be started: no-such-program: " in project.errors
    assert "the check of the data has failed: sh check.sh 2: it exited with 7" in project.errors
    assert_nothing_was_created(project)


def test_ctrl_c_ends_the_check_and_all_that_it_has_started(project: Laptop) -> None:
    """Nothing is created afterwards, and nothing of it goes on."""
    (project.home / "check.sh").write_text("trap '' INT\nsleep 987 & echo $$ $! > pids.txt; wait; sleep 987\n")
    command = project.start("launch", "--yes", "--allow-check")
    pids = project.home / "pids.txt"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130
    left = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(_lives(pid) for pid in left))
    assert_nothing_was_created(project)


def test_a_check_that_leaves_a_program_behind_does_not_hold_up_the_launch(project: Laptop) -> None:
    """It has the pipe of the output open; it is ended."""
    (project.home / "check.sh").write_text("sleep 986 & echo $! > pids.txt; exit 1\n")
    project.kedge("launch", "--yes", "--allow-check", code=2)
    wait_until(lambda: not _lives(int(Path(project.home / "pids.txt").read_text())))


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
