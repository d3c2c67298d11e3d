"""Looking at a run of several machines: all logs in one, a shell on each, a command on all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.support.laptop import Laptop, clean_laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    num_nodes: 2
    run: |
      echo "node $NODE_RANK begins"
      until [ -e more ] || [ -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.05; done
      echo "node $NODE_RANK goes on"
      until [ -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.05; done
    deadline: 20m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """A run of two machines, for all tests here in their order; the last one ends a machine."""
    with clean_laptop(tmp_path_factory.mktemp("two")) as laptop:
        laptop.write_job(JOB)
        laptop.kedge("launch", "--yes", "--detach")
        wait_until(lambda: laptop.kedge("logs").count("begins") == 2)
        yield laptop


def lines(text: str, part: str) -> list[str]:
    """Return the lines with a text, without their timestamps."""
    return sorted(re.sub(r"\S+Z ", "", line) for line in text.splitlines() if part in line)


def test_logs_of_all_nodes_are_merged_by_time(two: Laptop) -> None:
    """Each line says whose it is; one node's log has no labels."""
    said = two.kedge("logs")
    assert lines(said, "begins") == ["node 0 | node 0 begins", "node 1 | node 1 begins"]
    times = re.findall(r"^node \d \| (\S+Z) ", said, re.MULTILINE)
    assert len(times) > 2
    assert times == sorted(times)
    assert lines(two.kedge("logs", "--node", "1"), "begins") == ["node 1 begins"]
    assert len(two.kedge("logs", "--lines", "1").splitlines()) == 1


@pytest.mark.parametrize("command", [("logs",), ("ssh",), ("attach",), ("exec", "--", "true")])
@pytest.mark.parametrize("node", ["2", "-1", "head"])
def test_a_wrong_node_is_refused_with_those_that_there_are(two: Laptop, command: tuple[str, ...], node: str) -> None:
    """Before anything is contacted."""
    first, *rest = command
    two.kedge(first, f"--node={node}", *rest, code=2)
    assert f"has no node '{node}'" in two.errors
    assert "its nodes: 0 to 1" in two.errors


def test_a_command_runs_on_one_node_or_on_all(two: Laptop) -> None:
    """On all: in parallel, with labels; the exit code is of the first that failed."""
    run = two.json("status")[0]["run"]
    assert two.kedge("exec", "--node", "1", "--", "sh", "-c", "pwd").count(f"{run}-m2") == 1
    said = two.kedge("exec", "--all-nodes", "--", "sh", "-c", "pwd; echo oops >&2")
    assert [line.split(" | ")[0] for line in sorted(said.splitlines())] == ["node 0", "node 1"]
    assert [f"{run}-m{number}" in line for number, line in enumerate(sorted(said.splitlines()), 1)] == [True, True]
    assert sorted(two.errors.splitlines()) == ["node 0 | oops", "node 1 | oops"]
    # Each waits for the other: one after the other would wait for ever.
    meet = f"touch {two.home}/met-$$; until [ $(ls {two.home} | grep -c met-) = 2 ]; do sleep 0.05; done"
    two.kedge("exec", "--all-nodes", "--", "sh", "-c", meet)
    two.kedge("exec", "--all-nodes", "--", "sh", "-c", 'case "$PWD" in *-m2/*) exit 7;; esac', code=7)
    two.kedge("exec", "--all-nodes", "--", "sh", "-c", 'case "$PWD" in *-m2/*) exit 7;; *) exit 5;; esac', code=5)
    two.kedge("exec", "--all-nodes", "--node", "1", "--", "true", code=2)
    assert "contradict" in two.errors


def test_a_command_on_all_nodes_ends_when_nobody_reads_it_any_more(two: Laptop) -> None:
    """As in `kedge exec --all-nodes -- yes | head`: no traceback, and nothing goes on."""
    read, write = os.pipe()
    errors = two.home / "errors"
    with errors.open("w") as file:
        words = [*two.program, "exec", "--all-nodes", "--", "yes"]
        reader = subprocess.Popen(words, cwd=two.home, env=two.env, stdout=write, stderr=file)
    os.close(write)
    assert os.read(read, 4) == b"node"
    os.close(read)
    assert reader.wait(timeout=60) == 0
    assert errors.read_text() == ""


def test_followed_logs_come_from_all_nodes(two: Laptop) -> None:
    """New lines of both, while the run goes on; Ctrl-C leaves."""
    follower = two.start("logs", "-f")
    assert follower.stdout is not None
    assert "node " in follower.stdout.readline()
    for number in (1, 2):
        (folder,) = two.state.glob(f"machines/*-m{number}")
        (folder / "code" / "more").touch()
    came: list[str] = []
    while len(came) < 2:
        line = follower.stdout.readline()
        assert line
        came += [line] if "goes on" in line else []
    assert lines("".join(came), "goes on") == ["node 0 | node 0 goes on", "node 1 | node 1 goes on"]
    follower.send_signal(signal.SIGINT)
    follower.wait(timeout=60)


def test_followed_logs_go_on_after_a_restart(two: Laptop) -> None:
    """Also those of the nodes besides the head."""
    follower = two.start("logs", "-f", "--lines", "1")
    assert follower.stdout is not None
    assert "node " in follower.stdout.readline()
    two.kedge("sync-code", "--restart")
    came: list[str] = []
    while len(came) < 2:
        line = follower.stdout.readline()
        assert line
        came += [line] if "begins" in line else []
    assert lines("".join(came), "begins") == ["node 0 | node 0 begins", "node 1 | node 1 begins"]
    follower.send_signal(signal.SIGINT)
    follower.wait(timeout=60)


def test_the_log_of_a_machine_that_is_gone_comes_from_the_store(two: Laptop) -> None:
    """Beside that of the one that is there; a shell on it is refused with the nodes that have a machine."""
    run = two.json("status")[0]["run"]
    store = Results(FolderBucket(two.state / "store"))
    wait_until(lambda: store.read_file(run, "run.log", rank=1).count(b"node 1 begins") == 2)
    two.provider().destroy(f"{run}-m2")
    begun = ["node 0 | node 0 begins"] * 2 + ["node 1 | node 1 begins"] * 2
    assert lines(two.kedge("logs"), "begins") == begun
    two.kedge("status", run)
    assert lines(two.kedge("logs"), "begins") == begun
    two.kedge("ssh", "--node", "1", code=1)
    assert "node 1" in two.errors
    assert "nodes with a machine: 0" in two.errors
