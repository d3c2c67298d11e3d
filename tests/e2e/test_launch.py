"""Launches as a user sees them: a folder with a script, a job file, and the program."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, restart_after: 1s, grace: 5s}
"""


def test_a_launch_trains_brings_results_home_and_leaves_nothing(laptop: Laptop) -> None:
    """One command from a plain script to its results; afterwards no process, machine or open ledger entry is left."""
    laptop.write_job(JOB)
    said = laptop.kedge("launch", "--yes", "--price", "1.99", "--budget", "5")
    assert "step 3 of 3" in said
    (folder,) = (laptop.home / "kedge-results").glob("toy-*")
    assert (folder / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    assert (folder / "checkpoints" / "step-00000003.txt").read_text() == "3"
    assert "step 2 of 3" in (folder / "run.log").read_text()
    assert "(prices: yours (--price), a rehearsal; " in said
    assert re.search(r"Cost: <?\$0\.\d\d, rehearsed\n  log:       kedge logs toy-", said)
    # Terms of clouds don't appear for this computer.
    assert not re.search("object store|boot", said)
    costs = laptop.kedge("cost")
    assert re.search(r"rehearsed\nTotal: \$0\.00\nRehearsed on this computer, and paid to nobody: <?\$0\.0\d\n", costs)
    assert laptop.json("cost")[0]["rehearsed"] is True
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    ledger = laptop.ledger()
    (record,) = ledger.runs()
    assert (record.stage, record.outcome) == ("ended", "succeeded")
    assert ledger.machines(live_only=True) == ()
    assert ledger.open_intents(record.run_id) == ()
    ledger.close()


def nameless(value: Any) -> Any:
    """Replace the run's name, which is new at each launch, and this computer's free disk space, which varies."""
    text = re.sub(r"toy-\d{4}-\w{4}", "RUN", json.dumps(value))
    return json.loads(re.sub(r'"disk_gib": \d+', '"disk_gib": 0', text))


def test_the_actions_of_a_dry_run_are_carried_out(laptop: Laptop) -> None:
    """The dry run is what happens: every field of every planned action equals the ledger's record.

    Closing the run at the end releases it, which isn't an action of the plan.
    """
    laptop.write_job(JOB)
    shown = [line[2:] for line in laptop.kedge("launch", "--dry-run").splitlines() if re.match(r"  [+~-] ", line)]
    plan = laptop.json("launch", "--dry-run")
    assert not list((laptop.state / "machines").glob("*"))
    said = laptop.kedge("launch", "--yes").splitlines()
    done = [re.sub(r"( \([^()]*\))?  \d+\.\d s$", "", line) for line in said if re.match(r"[+~-] .*  \d+\.\d s$", line)]
    assert nameless(done) == nameless([line.partition(": ")[0] for line in shown])
    ledger = laptop.ledger()
    intents = ledger.intents(ledger.runs()[0].run_id)
    ledger.close()
    acted = [{"kind": intent.kind, **json.loads(intent.payload)} for intent in intents]
    planned = [
        {key: value for key, value in action.items() if key not in ("sign", "says")}
        for action in plan["actions"]
        if action["kind"] != "FollowCommand"
    ]
    assert nameless(acted) == [*nameless(planned), {"kind": "ReleaseRun", "run_id": "RUN"}]


def test_a_failed_command_is_restarted_from_its_checkpoint(laptop: Laptop) -> None:
    """One failure, one restart that resumes, one success."""
    laptop.write_job(JOB.replace("restarts: 0", "restarts: 1"))
    said = laptop.kedge("launch", "--yes", "--env", "FAIL_AT=2")
    assert said.count("a fresh start") == 1
    assert "going on from step 2" in said
    assert "attempt 2 of 2" in said


def test_a_failing_command_exits_1_and_says_what_to_do_next(laptop: Laptop) -> None:
    """The exit code of the user's command is kept and shown; the machine is ended, so that it doesn't bill."""
    laptop.write_job("""
        name: broken
        run: "echo about to fail; exit 7"
        supervisor: {kind: nohup, restarts: 0}
    """)
    laptop.kedge("launch", "--yes", code=1)
    assert "kedge logs broken-" in laptop.errors
    assert "7" in laptop.errors
    assert laptop.processes() == []
    run = laptop.json("status", "--all")[0]
    assert (run["state"], run["stage"]) == ("failed", "ended")
    assert "about to fail" in laptop.kedge("logs", run["run"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["launch", "--no-such-flag"], 2, "kedge help launch"),
        (["lunch"], 2, "launch"),
        (["launch", "--mode", "fats"], 2, "fast"),
        (["launch", "--ttl", "90"], 2, "--ttl"),
        (["launch", "--yes", "--price", "2", "--ttl", "2h", "--budget", "3.99"], 4, "$4.00"),
        (["launch", "--yes", "--gpu", "mi300x:8"], 3, "mi300x:8"),
        (["launch", "--provider", "locla"], 2, "local"),
        (["plan", "--provider", "aws", "--ssh-from", "0.0.0.0/0"], 2, "closed by default"),
        (["launch"], 2, "--yes"),
        (["teardown", "nobody"], 2, "nobody"),
        (["status", "nobody"], 2, "nobody"),
        (["exec"], 2, "--"),
        (["launch", "--yes", "--", "train"], 2, "takes nothing after --"),
        (["ssh", "--", "ls"], 2, "kedge exec"),
        (["logs", "--lines", "abc"], 2, "abc"),
        (["job-schema", "--output", "/nonexistent/x"], 2, "/nonexistent/x"),
    ],
)
def test_bad_requests_have_their_own_exit_codes_and_change_nothing(
    laptop: Laptop, words: list[str], code: int, says: str
) -> None:
    """What, why and how to fix on standard error; no machine was created."""
    laptop.write_job(JOB + "    modes: {fast: {deadline: 5m}}\n")
    laptop.kedge(*words, code=code)
    assert laptop.errors.startswith("error: ")
    assert says in laptop.errors
    assert not list((laptop.state / "machines").glob("*"))


def test_plain_invoke_has_the_same_exit_codes_and_passes_arguments_through(laptop: Laptop) -> None:
    """`invoke` in the checkout runs the same program as `kedge`."""
    checkout = Path(__file__).parents[2]

    def invoke(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(laptop.program[0]).with_name("invoke")), *words],
            cwd=checkout,
            env=laptop.env,
            capture_output=True,
            text=True,
            check=False,
        )

    assert invoke("launch", "--no-such-flag").returncode == 2
    assert "sync-code" in invoke("--list").stdout
    refused = invoke("exec", "nobody", "--", "echo", "--flag")
    assert (refused.returncode, "nobody" in refused.stderr) == (2, True)
    refused = invoke("-R", "stop", "nobody", "--", "--complete")
    assert (refused.returncode, "takes nothing after --" in refused.stderr) == (2, True)
    assert "launch" in invoke("--complete", "--", "invoke lau").stdout


def test_without_a_job_a_plain_machine_with_a_deadline_is_opened(laptop: Laptop) -> None:
    """It runs nothing, is reached by ssh, and ends with teardown."""
    said = laptop.json("launch", "--yes", "--ttl", "5m")
    assert said["machines"][0]["address"]["host"] == "127.0.0.1"
    assert laptop.kedge("exec", "--", "echo", "hello").strip() == "hello"
    assert "OpenSSH" in laptop.kedge("ssh", "--", "-V") + laptop.errors
    forward = ("-L", "8081:localhost:8888")
    assert "localforward 8081 [localhost]:8888" in laptop.kedge("ssh", "--", "-G", *forward)
    laptop.kedge("teardown", "--yes")
    assert laptop.processes() == []


def test_a_machine_past_its_deadline_ends_itself_and_its_results_are_kept(laptop: Laptop) -> None:
    """Nobody is connected: the command is stopped, its results are uploaded, and the machine is gone."""
    laptop.write_job(JOB.replace("deadline: 10m", "deadline: 30s").replace("grace: 5s", "grace: 1s"))
    run = laptop.json("launch", "--yes", "--detach", "--env", "STEPS=100000")["run"]
    wait_until(lambda: not laptop.processes())
    status = laptop.json("status", run)[0]
    assert status["machines"] == []
    assert any("gone" in finding for finding in status["findings"])
    laptop.kedge("fetch", run)
    saved = sorted((laptop.home / "kedge-results" / run / "checkpoints").iterdir())
    assert int(saved[-1].read_text()) > 10
    laptop.kedge("teardown", run, "--yes")
    assert laptop.json("status", "--all")[0]["stage"] == "ended"


def test_a_launch_that_follows_a_command_to_its_deadline_ends_the_machine(laptop: Laptop) -> None:
    """A machine that only powers off may go on billing; the launch fetches the results and ends it."""
    laptop.write_job(JOB.replace("deadline: 10m", "deadline: 30s").replace("grace: 5s", "grace: 1s"))
    said = laptop.json("launch", "--yes", "--env", "STEPS=100000")
    assert (said["state"], said["finished"], said["machines"]) == ("stopped", True, [])
    assert laptop.processes() == []
    assert laptop.json("status", "--all")[0]["stage"] == "ended"
    assert sorted((laptop.home / "kedge-results" / said["run"] / "checkpoints").iterdir())


def test_help_explains_every_flag(laptop: Laptop) -> None:
    """The flag, its purpose, and an example."""
    said = laptop.kedge("--help", "launch")
    assert "the machine is ended after this time" in " ".join(said.split())
    assert "kedge launch --job digits" in said


def test_no_machine_is_rented_again_for_a_succeeded_run(laptop: Laptop) -> None:
    """Neither right after its launch nor from the store alone: resume only fetches."""
    laptop.write_job(JOB)
    laptop.kedge("launch", "--yes")
    plan = laptop.json("resume", "--dry-run")
    assert [action["kind"] for action in plan["actions"]] == ["FetchResults"]


def test_the_end_of_a_run_is_in_the_store_before_its_machine_is_destroyed(laptop: Laptop) -> None:
    """The launch's fetched results equal the store's: outcome, last file, last line of the log."""
    laptop.write_job(JOB)
    laptop.kedge("launch", "--yes")
    ledger = laptop.ledger()
    run = ledger.runs()[0].run_id
    ledger.close()
    store = Results(FolderBucket(laptop.state / "store"))
    last = store.last_upload(run)
    assert last is not None
    assert last.command.state == "succeeded"
    assert "output/results/model.txt" in {file.path for file in store.manifest(run)}
    assert b"[kedge] succeeded" in store.read_file(run, "run.log")


def test_reading_commands_leave_an_ended_run_ended(laptop: Laptop) -> None:
    """fetch, logs and status change nothing; a local copy that is newer than the store's is kept."""
    laptop.write_job(JOB)
    laptop.kedge("launch", "--yes")
    run = laptop.json("status", "--all")[0]["run"]
    log = laptop.home / "kedge-results" / run / "run.log"
    log.write_text("mine, and newer")
    laptop.kedge("fetch", run)
    assert log.read_text() == "mine, and newer"
    laptop.kedge("logs", run)
    assert laptop.json("status", "--all")[0]["stage"] == "ended"
    laptop.kedge("stop", code=2)


def test_a_detached_run_that_ended_its_machine_is_shown_with_its_outcome(laptop: Laptop) -> None:
    """Status reads the outcome from the store, closes the run, and counts no further cost."""
    laptop.write_job(JOB.replace("deadline: 10m", "deadline: 30s").replace("grace: 5s", "grace: 1s"))
    run = laptop.json("launch", "--yes", "--detach", "--price", "3600")["run"]
    wait_until(lambda: not laptop.processes())
    laptop.kedge("status")
    (status,) = laptop.json("status", run)
    assert (status["state"], status["stage"]) == ("succeeded", "ended")
    assert float(status["spent_usd"]) <= 30


def test_an_escape_sequence_in_the_log_does_not_reach_the_terminal(laptop: Laptop) -> None:
    """A command's output can neither clear the follower's screen nor rename the window."""
    laptop.write_job("""
        name: noisy
        run: printf 'a\\033[2Jb\\033]0;title\\007c\\n'
        supervisor: {kind: nohup, restarts: 0}
    """)
    said = laptop.kedge("launch", "--yes")
    assert "abc" in said
    assert "\x1b" not in said
