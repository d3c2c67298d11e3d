"""Acting on a run that is there: look, sync, stop, start, lose the machine, go on."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

from orchestrator.adapters.objects import FolderStore
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.adapters.settings import read_settings
from orchestrator.agent.layout import Layout
from orchestrator.app.launching import Changes, launch_plan, replaced_machine, resumed_spec
from orchestrator.app.root import App
from orchestrator.core.errors import ConflictError
from tests.laptop import Laptop
from tests.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000}
    deadline: 10m
    supervisor: {kind: %s, restarts: 0, grace: 10s}
"""


@pytest.fixture
def run(laptop: Laptop) -> str:
    """A run that goes on and on."""
    laptop.write_job(JOB % "nohup")
    return str(laptop.json("launch", "--yes", "--detach", "--price", "1.99")["run"])


SECONDS = timedelta(seconds=15)


def step(laptop: Laptop) -> int:
    """Read the step that the command has reached, from its machine."""
    lines = laptop.kedge("exec", "--", "cat", "results/steps.log", code=None).splitlines()
    return int(lines[-1].split()[0]) if lines else 0


def test_status_tells_what_machine_and_ledger_know(laptop: Laptop, run: str) -> None:
    """State, cost, load and deadline, for people and for scripts."""
    status = laptop.json("status")[0]
    assert (status["run"], status["state"], status["findings"]) == (run, "running", [])
    assert status["report"]["machine"] == f"{run}-m1"
    assert float(status["spent_usd"]) > 0
    assert "running" in laptop.kedge("status", run)
    assert re.search(rf"{run}.*running", laptop.kedge("cost"))


def test_what_follows_two_dashes_reaches_the_machine_as_it_is(laptop: Laptop, run: str) -> None:
    """Flags, spaces and quotes are the command's own, and so is its exit code."""
    assert (
        laptop.kedge("exec", run, "--", "printf", "%s|", "--json", "a b", "it's", "$HOME") == "--json|a b|it's|$HOME|"
    )
    laptop.kedge("exec", "--", "sh", "-c", "exit 9", code=9)


def test_shells_on_the_machine_find_the_python_of_the_run(laptop: Laptop) -> None:
    """`exec` and `ssh` as `setup` and `run` do, though a login shell's own files set another PATH."""
    show = "command -v python && command -v kedge-cost"
    laptop.write_job((JOB % "nohup").replace("python train.py", f"{show} && exec python train.py"))
    laptop.kedge("launch", "--yes", "--detach")
    wait_until(lambda: "step 1" in laptop.kedge("logs"))
    found = [line.split()[-1] for line in laptop.kedge("logs", "--lines", "1000").splitlines() if "/bin/" in line]
    assert len(found) == 2
    assert laptop.kedge("exec", "--", "sh", "-c", show).split() == found
    shell = subprocess.run(
        [*laptop.program, "ssh"],
        input=f"echo shown; {show}\n",
        env=laptop.env,
        cwd=laptop.home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout.partition("shown\n")[2].split() == found
    laptop.kedge("teardown", "--yes")


def test_plain_ssh_reaches_a_run_by_its_name(laptop: Laptop, run: str) -> None:
    """After `ssh-config --install`, the OpenSSH client needs nothing but the run's name."""
    laptop.kedge("ssh-config", "--install")
    done = subprocess.run(
        ["ssh", "-F", str(laptop.home / "ssh_config"), run, "echo", "there"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout == "there\n"


def test_kedge_cost_on_the_machine_counts_from_creation(laptop: Laptop, run: str) -> None:
    """The session line is printed by the machine itself."""
    assert laptop.kedge("exec", "--", "kedge-cost").startswith("Session: 0.0h elapsed, ~$0.0")


def test_logs_can_be_read_and_followed(laptop: Laptop, run: str) -> None:
    """`logs` prints the newest lines, `logs -f` goes on."""
    wait_until(lambda: "step 2" in laptop.kedge("logs"))
    assert len(laptop.kedge("logs", run, "-n", "2").splitlines()) == 2
    follower = laptop.start("logs", "-f", "--lines", "1")
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(4)]
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=20)
    numbers = [int(line.split("step ")[1].split()[0]) for line in seen if "step " in line]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_new_code_restarts_the_command_from_its_checkpoint(laptop: Laptop, run: str) -> None:
    """Deleted files vanish, changed files are there, the run goes on where it was; unchanged code isn't sent."""
    (laptop.home / "extra.py").write_text("x = 1")
    laptop.kedge("sync-code")
    assert laptop.kedge("exec", "--", "ls", "extra.py")
    wait_until(lambda: step(laptop) > 2)
    (laptop.home / "extra.py").unlink()
    script = (laptop.home / "train.py").read_text()
    (laptop.home / "train.py").write_text(script.replace("step {step} of", "new step {step} of"))
    laptop.kedge("sync-code", "--restart")
    laptop.kedge("exec", "--", "ls", "extra.py", code=2)
    wait_until(lambda: "new step" in laptop.kedge("logs", "--lines", "3"))
    log = laptop.kedge("logs", "--lines", "100000")
    assert log.count("a fresh start") == 1
    assert "going on from step" in log


def test_a_stopped_run_keeps_its_machine_and_starts_again(laptop: Laptop, run: str) -> None:
    """Stop -> stopped, whatever the exit code; start -> on from the checkpoint; stop --now needs a yes."""
    wait_until(lambda: step(laptop) > 1)
    said = laptop.kedge("stop")
    assert f"Run {run}: stopped" in said
    assert f"go on:     kedge start {run}" in said
    assert laptop.json("status")[0]["state"] == "stopped"
    laptop.kedge("start")
    assert laptop.json("status")[0]["state"] == "running"
    for rehearsed in (laptop.kedge("stop", "--now", "--dry-run"), laptop.kedge("stop", "--now", code=2)):
        assert "kill the command: at once, without a checkpoint" in rehearsed
        assert "it checkpoints" not in rehearsed
    assert laptop.json("status")[0]["state"] == "running"
    laptop.kedge("stop", "--now", "--yes")
    assert laptop.json("status", "--ledger")[0]["state"] == "stopped"
    assert laptop.json("status")[0]["state"] == "stopped"


def test_results_can_be_fetched_while_the_command_runs(laptop: Laptop, run: str) -> None:
    """A live run's files change under the copy: what is fetched is whole all the same."""
    wait_until(lambda: step(laptop) > 3)
    laptop.kedge("fetch", "--to", "here")
    lines = (laptop.home / "here" / "output" / "results" / "steps.log").read_text().splitlines()
    assert lines[0] == f"1 {run}"


def kill_machine(laptop: Laptop, run: str) -> None:
    """Lose a machine the hard way: every process at once, and its disk."""
    for _ in range(5):
        for process in laptop.processes(f"{run}-m1"):
            kill_if_there(process)
    shutil.rmtree(laptop.state / "machines" / f"{run}-m1", ignore_errors=True)
    wait_until(lambda: not laptop.processes(f"{run}-m1"))


def kill_if_there(process: psutil.Process) -> None:
    """SIGKILL a process that may be gone, or a zombie, by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def shipped_step(laptop: Laptop, run: str) -> int:
    """Read the newest step that is in the object store."""
    paths = [file.path for file in FolderStore(laptop.state / "store").manifest(run)]
    return max((int(path[-12:-4]) for path in paths if path.startswith("checkpoints/")), default=0)


def test_a_run_survives_its_machine(laptop: Laptop) -> None:
    """The machine and its disk are lost; resume makes another, and the run goes on from its last checkpoint."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.1"))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 0, seconds=60)
    kill_machine(laptop, run)
    shipped = shipped_step(laptop, run)
    status = laptop.json("status", run)[0]
    assert any("gone" in finding for finding in status["findings"])
    # The machine's end was in the ledger already: whoever resumes reads of it all the same.
    assert f"found: machine {run}-m1 is gone" in laptop.kedge("resume", run, "--yes", "--detach")
    assert laptop.json("status", run)[0]["machines"][0]["id"] == f"{run}-m2"
    wait_until(lambda: step(laptop) > shipped)
    assert f"going on from step {shipped}" in laptop.kedge("logs", "--lines", "100000")


def test_resuming_beside_a_lost_machine_that_is_seen_again_succeeds_and_keeps_the_run_at_work(
    laptop: Laptop, run: str
) -> None:
    """The provider shows the first machine again after the second was made: it is ended, and the run goes on."""
    kept = laptop.home.parent / "kept"
    (laptop.state / "machines" / f"{run}-m1").rename(kept)
    kill_machine(laptop, run)
    # As if that was long ago: nobody waits for the last upload of an agent that has been silent for a minute.
    Layout(kept).note("heartbeat").write_text('{"time": 1}')
    laptop.kedge("resume", run, "--yes", "--detach")
    kept.rename(laptop.state / "machines" / f"{run}-m1")
    said = laptop.kedge("resume", run, "--yes", "--detach")
    assert f"- destroy machine {run}-m1 (gone)" in said
    assert f"Machine {run}-m2 is running" in said
    (status,) = laptop.json("status", run)
    assert [machine["id"] for machine in status["machines"]] == [f"{run}-m2"]
    assert (status["stage"], status["state"]) == ("live", "running")


def test_resume_says_what_it_found_when_the_machine_dies_while_it_plans(
    laptop: Laptop, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled with its machine, planned without it: the plan for a new one says why there is to be one."""
    monkeypatch.chdir(laptop.home)
    app = App(read_settings(laptop.env))
    record = app.named_run(run)
    assert app.settle(record) == ()
    kill_machine(laptop, run)
    plan = launch_plan(app, resumed_spec(record, Changes(), app.clock.now()), follow=False)
    assert replaced_machine(app, record, plan) == (f"machine {run}-m1 is gone; it ended without a kedge command",)
    app.ledger.close()


def test_a_run_whose_machine_lost_its_init_gets_another_with_its_agent(laptop: Laptop) -> None:
    """The machine still answers, but nothing would start its agent again: resume replaces it, and leaves no process."""
    laptop.write_job((JOB % "tmux").replace("STEPS: 100000", "STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.1"))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 0, seconds=60)
    init = MachineFolder(laptop.state / "machines" / f"{run}-m1").init()
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    wait_until(lambda: not init.is_alive)
    old = laptop.processes()
    assert [machine["state"] for machine in laptop.json("status", run)[0]["machines"]] == ["unknown"]
    assert f"machine {run}-m1 is unknown" in laptop.kedge("resume", run, "--yes", "--detach")
    assert not [process for process in old if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    (status,) = laptop.json("status", run)
    assert [(machine["id"], machine["state"]) for machine in status["machines"]] == [(f"{run}-m2", "ready")]
    wait_until(lambda: laptop.json("status", run)[0]["report"]["heartbeat"] > status["report"]["created"])
    wait_until(lambda: re.search(r"going on from step \d+", laptop.kedge("logs", "--lines", "100000")))


def test_recover_gives_a_lost_run_another_machine_and_no_other(laptop: Laptop) -> None:
    """Only a run that was launched with --recover, and only when it needs one; its deadline stays what it was."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.1"))
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 0, seconds=60)
    assert f"{run} needs no other machine" in laptop.kedge("recover")
    (first,) = laptop.json("status", run)[0]["machines"]
    kill_machine(laptop, run)
    shipped = shipped_step(laptop, run)
    laptop.kedge("recover")
    (second,) = laptop.json("status", run)[0]["machines"]
    assert second["id"] == f"{run}-m2"
    # Both have the run's deadline: a replaced machine buys no more time.
    assert abs(datetime.fromisoformat(second["deadline_at"]) - datetime.fromisoformat(first["deadline_at"])) < SECONDS
    wait_until(lambda: step(laptop) > shipped)
    assert f"going on from step {shipped}" in laptop.kedge("logs", "--lines", "100000")


def test_recover_leaves_alone_what_somebody_stopped(laptop: Laptop) -> None:
    """A run that an operator stopped, or tore down, is not lost; nor is one that was never to be recovered."""
    laptop.write_job(JOB % "nohup")
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    laptop.kedge("stop")
    assert f"{run} needs no other machine" in laptop.kedge("recover")
    laptop.kedge("teardown", "--yes", "--no-fetch")
    assert "No live run" in laptop.kedge("recover")
    assert laptop.json("status") == []


def test_a_run_that_recovers_can_be_told_not_to(laptop: Laptop) -> None:
    """While its command is at work, where nothing else is to be done; `status` shows it."""
    laptop.write_job(JOB % "nohup")
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    assert laptop.json("status", run)[0]["recover"] is True
    assert "recovery: lost machines are replaced, until 20" in laptop.kedge("status", run)
    laptop.kedge("resume", "--recover", "--no-recover", "--detach", code=2)
    laptop.kedge("resume", "--no-recover", "--detach")
    assert laptop.json("status", run)[0]["recover"] is False
    assert "recovery: none" in laptop.kedge("status", run)
    kill_machine(laptop, run)
    assert "No live run" in laptop.kedge("recover")
    assert laptop.json("status", run)[0]["machines"] == []
    laptop.kedge("teardown", "--yes")


@pytest.mark.parametrize(
    ("words", "recovers"),
    [((), True), (("--no-recover",), False), (("--recover",), True)],
    ids=["no flag", "--no-recover", "--recover"],
)
def test_a_job_says_whether_its_runs_recover_unless_a_flag_does(
    laptop: Laptop, words: tuple[str, ...], recovers: bool
) -> None:
    """The plan's notes say which; so does the run, together with who may reach its machines."""
    laptop.write_job(JOB % "nohup" + "    recover: true\n")
    notes = " ".join(laptop.json("plan", *words)["notes"])
    assert ("a machine that is lost is replaced" in notes) is recovers
    run = laptop.json("launch", "--yes", "--detach", "--ssh-from", "198.51.100.0/24", *words)["run"]
    record = laptop.ledger().run(run)
    assert record is not None
    assert (record.spec.recover, record.spec.ssh_from) == (recovers, "198.51.100.0/24")
    laptop.kedge("teardown", "--yes", "--no-fetch")


@pytest.mark.parametrize("words", [("stop",), ("teardown", "--yes", "--no-fetch")], ids=["stop", "teardown"])
def test_only_who_follows_a_run_replaces_its_machine(laptop: Laptop, words: tuple[str, ...]) -> None:
    """Another command that comes upon the loss rents nothing, though the run was launched with --recover."""
    laptop.write_job(JOB % "nohup")
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    kill_machine(laptop, run)
    laptop.kedge(*words, code=None)
    assert [machine.id for machine in laptop.ledger().machines(run)] == [f"{run}-m1"]
    laptop.kedge("teardown", "--yes", "--no-fetch")


def test_ctrl_c_twice_leaves_the_log_and_not_the_run(laptop: Laptop) -> None:
    """The first asks, the second leaves; what exists, what it costs, and the two commands are printed."""
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
    rest, errors = launch.communicate(timeout=20)
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
    said, errors = launch.communicate(timeout=30)
    assert launch.returncode == 130
    assert "Traceback" not in errors
    assert "kedge teardown toy-" in said
    laptop.kedge("resume", "--yes")
    assert laptop.processes() == []
    assert laptop.json("status", "--all")[0]["state"] == "succeeded"


def test_two_live_runs_must_be_named(laptop: Laptop, run: str) -> None:
    """A command never guesses which run it acts on; the beginning of a name is enough."""
    other = laptop.json("launch", "--yes", "--detach")["run"]
    laptop.kedge("stop", code=2)
    assert run in laptop.errors
    assert other in laptop.errors
    laptop.kedge("teardown", other[:-1], "--yes")
    laptop.kedge("stop")


def test_data_goes_to_the_machine(laptop: Laptop) -> None:
    """A data folder is where the command looks for it, and sync-data brings what was added."""
    (laptop.home / "images").mkdir()
    (laptop.home / "images" / "one two.txt").write_text("1")
    laptop.write_job((JOB % "nohup") + "    data: [{source: images, target: input/images}]\n")
    laptop.json("launch", "--yes", "--detach")
    assert laptop.kedge("exec", "--", "cat", "input/images/one two.txt") == "1"
    (laptop.home / "images" / "two").write_text("2")
    laptop.kedge("sync-data")
    assert laptop.kedge("exec", "--", "cat", "input/images/two") == "2"


def test_secrets_reach_the_command_and_nothing_else(laptop: Laptop) -> None:
    """The value is in the command's environment, and in no file of the ledger's, plan's or log's."""
    laptop.extra_env["TOKEN"] = "hunter2-very-secret"
    laptop.write_job("""
        name: secretive
        run: test "${#TOKEN}" = 19 && echo got it
        secrets: {TOKEN: null}
        supervisor: {kind: nohup, restarts: 0}
    """)
    said = laptop.kedge("launch", "--yes", "--keep")
    assert "got it" in said
    assert "hunter2" not in said + laptop.errors
    holding = [path for path in laptop.state.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert [path.name for path in holding] == ["secrets.json"]
    assert Path(holding[0]).stat().st_mode & 0o077 == 0


def test_a_launch_goes_on_following_while_its_code_is_changed(laptop: Laptop) -> None:
    """sync-code --restart from another terminal: the launch sees the new code to its end, fetches and destroys."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 200"))
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: step(laptop) > 2)
    script = (laptop.home / "train.py").read_text()
    (laptop.home / "train.py").write_text(script.replace("step {step} of", "new step {step} of"))
    laptop.kedge("sync-code", "--restart")
    said, errors = launch.communicate(timeout=60)
    assert launch.returncode == 0, errors
    assert "new step 200 of 200" in said
    assert "Results:" in said
    assert laptop.processes() == []


def test_looking_at_a_launch_disturbs_nothing(laptop: Laptop) -> None:
    """Status and cost in a loop: no finding, no failed launch, no open entry."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 40"))
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: laptop.json("status"))
    while launch.poll() is None:
        findings = [finding for status in laptop.json("status") for finding in status["findings"]]
        assert [finding for finding in findings if "interrupted" in finding] == []
        laptop.kedge("cost")
    said, errors = launch.communicate(timeout=60)
    assert launch.returncode == 0, errors
    assert "Results:" in said


def test_a_teardown_from_another_terminal_ends_a_launch_quietly(laptop: Laptop) -> None:
    """The user asked for it: what follows the log says that the run was stopped."""
    laptop.write_job(JOB % "nohup")
    launch = laptop.start("launch", "--yes")
    wait_until(lambda: step(laptop) > 2)
    laptop.kedge("teardown", "--yes")
    said, errors = launch.communicate(timeout=60)
    assert (launch.returncode, errors) == (0, ""), errors
    assert "stopped" in said
    assert laptop.processes() == []


def test_a_torn_down_run_goes_on_from_the_checkpoint_of_its_stop(laptop: Laptop) -> None:
    """What the command wrote on SIGTERM is in the store before the machine is destroyed, fetched or not."""
    laptop.write_job("""
        name: saver
        run: |
          test -f "$KEDGE_CHECKPOINT_DIR/last" && echo "found $(cat "$KEDGE_CHECKPOINT_DIR/last")"
          trap 'echo final > "$KEDGE_CHECKPOINT_DIR/last"; exit 0' TERM
          echo ready
          while true; do sleep 0.1; done
        supervisor: {kind: nohup, restarts: 0, grace: 10s}
    """)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: "ready" in laptop.kedge("logs"))
    laptop.kedge("teardown", "--yes", "--no-fetch")
    laptop.kedge("resume", run, "--yes", "--detach")
    wait_until(lambda: "found final" in laptop.kedge("logs", run))


def test_a_plan_that_was_overtaken_is_not_carried_out(laptop: Laptop, run: str) -> None:
    """Two resumes are planned for a lost machine; the second one to be confirmed rents nothing."""
    kill_machine(laptop, run)
    app = App(replace(read_settings(laptop.env), cwd=laptop.home))
    record = app.choose_run(run)
    app.settle(record)
    spec = resumed_spec(record, Changes(), app.clock.now())
    plan = launch_plan(app, spec, follow=False)
    laptop.kedge("resume", run, "--yes", "--detach")
    with pytest.raises(ConflictError, match="since this plan was made"):
        app.apply(spec, plan, lambda _event: None)
    assert len(laptop.provider().machines()) == 1


def test_a_command_that_cannot_be_stopped_does_not_keep_its_machine(laptop: Laptop, run: str) -> None:
    """The agent is broken: teardown says so, and ends the machine all the same."""
    agent = laptop.state / "machines" / f"{run}-m1" / "agent" / "kedge_agent" / "control.py"
    agent.write_text("raise OSError(28, 'No space left on device')")
    said = laptop.kedge("teardown", "--yes")
    assert "No space left" in said
    assert laptop.processes() == []
    assert laptop.json("status", "--all")[0]["stage"] == "ended"


def test_another_folder_s_run_is_never_taken(laptop: Laptop, run: str) -> None:
    """A teardown in the wrong folder names what lives elsewhere, and ends nothing."""
    elsewhere = laptop.home.parent / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [*laptop.program, "teardown", "--yes"],
        cwd=elsewhere,
        env=laptop.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert run in done.stderr
    assert laptop.json("status")[0]["state"] == "running"


def test_a_machine_that_the_ledger_has_lost_is_found_and_ended(laptop: Laptop, run: str) -> None:
    """The ledger is gone: status names the machine, and teardown ends it by the run's name."""
    for path in laptop.state.glob("ledger.db*"):
        path.unlink()
    (stray,) = laptop.json("status")
    assert (stray["run"], stray["stage"]) == (run, "stray")
    laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert laptop.json("status") == []


def test_a_live_machine_keeps_its_deadline(laptop: Laptop, run: str) -> None:
    """A flag that can't be carried out is refused, not ignored; without it resume has nothing to do."""
    laptop.kedge("resume", run, "--yes", "--detach", "--ttl", "4h", code=2)
    assert "deadline that it was born with" in laptop.errors
    assert laptop.json("resume", run, "--yes", "--detach")["state"] in ("setting-up", "running")


def test_a_changed_job_file_is_told(laptop: Laptop, run: str) -> None:
    """A run keeps the job that it began with; whoever edits the file is not left to wonder."""
    laptop.write_job((JOB % "nohup") + "    setup: echo new\n")
    assert "has changed since the launch" in laptop.kedge("start")
