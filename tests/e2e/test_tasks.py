"""A run with several tasks on one machine: what a user types, and what is left when the machine is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.runs import kill_machine
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: skull
    workdir: .
    outputs: [results]
    checkpoints: ckpt
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 10s}
    tasks:
      pcdiff: {gpus: 0-6, run: python train.py, envs: {STEPS: %s, PAUSE: 0.02, SAVE_EVERY: %s}}
      voxel: {gpus: [7], cpus: 1, run: python train.py, envs: {STEPS: 100000, PAUSE: 0.1, SAVE_EVERY: 20}}
      score: {after: pcdiff, run: "test $KEDGE_TASK = score && echo scored > results/score.txt"}
"""
SECRET = "TOY_TOKEN"


def states(laptop: Laptop) -> dict[str, str]:
    """Read the states of the tasks from the newest machine's disk."""
    return {name: _state(laptop, name) for name in ("pcdiff", "voxel", "score")}


def _state(laptop: Laptop, name: str) -> str:
    files = sorted((laptop.state / "machines").glob(f"*/tasks/{name}/state.json"))
    return str(json.loads(files[-1].read_text())["command"]["state"]) if files else ""


def await_states(laptop: Laptop, expected: Mapping[str, str]) -> None:
    wait_until(lambda: {name: state for name, state in states(laptop).items() if name in expected} == expected)


def tasks(laptop: Laptop, *words: str) -> dict[str, Any]:
    (status,) = laptop.json("status", *words)
    return {task["task"]: task for task in status["tasks"]}


def labels(said: str) -> set[str]:
    return {line.partition("|")[0].strip() if " | " in line else "" for line in said.splitlines()}


def test_tasks_are_watched_stopped_started_and_fetched_by_name(laptop: Laptop) -> None:
    """Each on its own, while the others go on; one run is shared by all that is asked of it."""
    laptop.extra_env[SECRET] = "a-secret"
    laptop.write_job((JOB % (100_000, 20)).replace("deadline: 10m", f"deadline: 10m\n    secrets: [{SECRET}]"))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    await_states(laptop, {"pcdiff": "running", "voxel": "running", "score": "waiting"})
    unknown_names_are_refused(laptop, run)
    status_has_a_row_for_each_task(laptop, run)
    logs_have_labels_unless_one_is_named(laptop)
    exec_enters_the_task(laptop)
    one_is_stopped_and_started_alone(laptop, run)
    one_is_fetched_alone(laptop, run)
    laptop.kedge("stop", "--task", "pcdiff", "--task", "voxel", "--now", "--yes")
    await_states(laptop, {"pcdiff": "stopped", "voxel": "stopped"})
    laptop.kedge("teardown", "--yes")
    assert laptop.processes() == []


def unknown_names_are_refused(laptop: Laptop, run: str) -> None:
    for command in ("stop", "logs", "status", "start", "fetch", "attach", "exec"):
        laptop.kedge(command, run, "--task", "fit", *(["--", "true"] if command == "exec" else []), code=2)
        assert "has no task 'fit'" in laptop.errors
        assert "its tasks: pcdiff, voxel, score" in laptop.errors
    laptop.kedge("attach", code=2)
    assert "name one with --task: pcdiff, voxel, score" in laptop.errors


def status_has_a_row_for_each_task(laptop: Laptop, run: str) -> None:
    assert "2 running, 1 waiting" in laptop.kedge("status")
    said = laptop.kedge("status", run)
    assert re.search(r"^ +pcdiff +running +1 ", said, re.MULTILINE)
    assert "starts after pcdiff" in said
    only = laptop.kedge("status", "--task", "voxel")
    # The newest checkpoint that is copied off the machine may be the other's, and the line names it.
    assert re.findall(r"^ +(\w+) +(?:running|waiting) ", only, re.MULTILINE) == ["voxel"]
    assert {name: (task["state"], task["gpus"]) for name, task in tasks(laptop, run).items()} == {
        "pcdiff": ("running", [0, 1, 2, 3, 4, 5, 6]),
        "voxel": ("running", [7]),
        "score": ("waiting", None),
    }


def logs_have_labels_unless_one_is_named(laptop: Laptop) -> None:
    wait_until(lambda: {"pcdiff", "voxel"} <= labels(laptop.kedge("logs", "--lines", "1000")))
    times = [line.partition("| ")[2][:20] for line in laptop.kedge("logs", "--lines", "1000").splitlines()]
    assert times == sorted(times)
    assert labels(laptop.kedge("logs", "--task", "voxel")) == {""}
    assert len(laptop.kedge("logs", "--lines", "7").splitlines()) == 7
    assert "voxel   | " in laptop.kedge("logs", "--raw", "--lines", "1000")


def exec_enters_the_task(laptop: Laptop) -> None:
    """Its folder and variables; secrets aren't written there."""
    shown = laptop.kedge("exec", "--task", "voxel", "--", "sh", "-c", "pwd; env; ls").splitlines()
    assert shown[0].endswith("@voxel")
    assert {"KEDGE_TASK=voxel", "OMP_NUM_THREADS=1", "STEPS=100000", "train.py"} <= set(shown)
    assert "a-secret" not in _shell_of(laptop, "voxel")
    laptop.kedge("exec", "--task", "score", "--", "true", code=1)
    assert "has not started" in laptop.errors


def one_is_stopped_and_started_alone(laptop: Laptop, run: str) -> None:
    """Who follows its log sees its end; the run is still running."""
    follower = laptop.start("logs", "-f", run, "--task", "voxel", "--lines", "0")
    assert follower.stdout is not None
    assert labels(follower.stdout.readline()) == {""}
    assert "voxel: stopped (an operator's stop)" in laptop.kedge("stop", "--task", "voxel")
    followed, errors = follower.communicate(timeout=60)
    assert (follower.returncode, errors) == (0, "")
    assert "stopped: an operator's stop" in followed
    await_states(laptop, {"pcdiff": "running", "voxel": "stopped"})
    assert _outcome(laptop, run) == "running"
    assert "task voxel" in laptop.kedge("start", "--task", "voxel")
    await_states(laptop, {"pcdiff": "running", "voxel": "running"})
    assert "at work already" in laptop.kedge("start", "--task", "voxel")


def one_is_fetched_alone(laptop: Laptop, run: str) -> None:
    """To the same place as with all others."""
    assert "fetch results of task voxel" in laptop.kedge("fetch", "--task", "voxel")
    assert [path.name for path in (laptop.home / "kedge-results" / run).iterdir()] == ["voxel"]
    laptop.kedge("fetch", "--to", "whole")
    assert {"pcdiff", "voxel", "score"} <= {path.name for path in (laptop.home / "whole").iterdir()}


def _shell_of(laptop: Laptop, name: str) -> str:
    (file,) = (laptop.state / "machines").glob(f"*/tasks/{name}/shell.sh")
    assert file.stat().st_mode & 0o077 == 0
    return file.read_text()


def _outcome(laptop: Laptop, run: str) -> str:
    ledger = laptop.ledger()
    record = ledger.run(run)
    ledger.close()
    return record.outcome if record else ""


def test_a_launch_follows_all_tasks_and_says_how_each_ended(laptop: Laptop) -> None:
    """Lines with labels; the machine ends by itself; one that failed makes the run's exit code 1, and is named."""
    laptop.write_job((JOB % (3, 1)).replace("STEPS: 100000, PAUSE: 0.1", "STEPS: 30, FAIL_AT: 2"))
    said = laptop.kedge("launch", "--yes", code=1)
    run = _run_of(said)
    assert re.search(r"^pcdiff  \| .*step 3 of 3", said, re.MULTILINE)
    assert re.search(r"^voxel   \| .*step 2 of 30", said, re.MULTILINE)
    assert re.search(r"^score   \| .*succeeded", said, re.MULTILINE)
    assert f"Run {run}: failed\n  pcdiff: succeeded\n  voxel: failed (exit code 7, attempt 1 of 1)\n" in said
    assert f"task voxel of {run} failed" in laptop.errors
    assert f"kedge logs {run} --task voxel" in laptop.errors
    home = laptop.home / "kedge-results" / run
    assert (home / "score" / "output" / "results" / "score.txt").read_text() == "scored\n"
    assert (home / "pcdiff" / "output" / "results" / "model.txt").exists()
    assert "Nothing was written to ckpt" in said.partition("Task score:")[2]
    assert laptop.processes() == []
    # From the store, when the machine is gone.
    assert tasks(laptop, run)["voxel"]["state"] == "failed"
    assert re.search(r"^ +voxel +failed +1 ", laptop.kedge("status", run), re.MULTILINE)
    assert labels(laptop.kedge("logs", run, "--lines", "1000")) == {"pcdiff", "voxel", "score"}
    assert "voxel: failed" in laptop.kedge("logs", "-f", run) + laptop.errors
    laptop.kedge("fetch", run, "--task", "score", "--to", "some")
    assert [path.name for path in (laptop.home / "some").iterdir() if path.is_dir()] == ["score"]


def _run_of(said: str) -> str:
    found = re.search(r"^Run (skull-\S+)", said, re.MULTILINE)
    assert found is not None
    return found[1]


def test_a_next_machine_gets_only_what_has_not_succeeded(laptop: Laptop) -> None:
    """The machine is lost while one task is at work: that one goes on from its checkpoint, the others are done."""
    laptop.write_job(JOB % (3, 1))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    await_states(laptop, {"pcdiff": "succeeded", "voxel": "running", "score": "succeeded"})
    wait_until(lambda: _is_uploaded(laptop, run), seconds=120)
    kill_machine(laptop, run)
    planned = laptop.json("resume", run, "--dry-run")
    (start,) = (action for action in planned["actions"] if action["kind"] == "StartCommand")
    assert (start["tasks"], sorted(start["done"])) == (["voxel"], ["pcdiff", "score"])
    laptop.kedge("resume", run, "--yes", "--detach")
    await_states(laptop, {"pcdiff": "succeeded", "voxel": "running", "score": "succeeded"})
    assert laptop.json("status", run)[0]["machines"][0]["id"] == f"{run}-m2"
    wait_until(lambda: "going on from step" in laptop.kedge("logs", "--task", "voxel", "--lines", "1000"))
    assert laptop.kedge("logs", "--task", "pcdiff", "--lines", "1000").count("a fresh start") == 1
    assert tasks(laptop, run)["pcdiff"]["reason"] == "on an earlier machine"
    laptop.kedge("stop", "--task", "voxel")
    laptop.kedge("teardown", "--yes")
    home = laptop.home / "kedge-results" / run
    assert (home / "score" / "output" / "results" / "score.txt").exists()
    assert laptop.processes() == []


def _is_uploaded(laptop: Laptop, run: str) -> bool:
    path: Path = laptop.state / "store" / run / "manifest.json"
    if not path.exists():
        return False
    manifest = json.loads(path.read_text())
    done = all(
        manifest["tasks"].get(name, {}).get("command", {}).get("state") == "succeeded" for name in ("pcdiff", "score")
    )
    return done and any(file["path"].startswith("voxel/checkpoints/") for file in manifest["files"])


def test_a_command_without_a_name_has_no_tasks_to_name(laptop: Laptop, run: str) -> None:
    """Nothing is stopped then, and its log has no labels."""
    for command in ("stop", "start", "logs", "fetch", "status", "attach"):
        laptop.kedge(command, run, "--task", "train", code=2)
        assert "it has one command, without a name" in laptop.errors
    assert tasks(laptop, run)[""]["state"] == "running"
    assert labels(laptop.kedge("logs", run)) == {""}
