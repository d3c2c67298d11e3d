"""A machine sets itself up: code and command from the bucket, and a sentinel that reports the outcome."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.agent.boots import order, outcomes, put_code, readiness, sha256_of
from tests.agent.box import RUN, Box
from tests.agent.configs import encode
from tests.agent.places import Place
from tests.agent.several import await_states, states, task
from tests.agent.trees import FIRST, pack, tree_of

MakeBox = Callable[..., Box]


def put_start(store: Place, config: dict[str, Any]) -> str:
    raw = encode(config)
    store.write("start.json", raw)
    return sha256_of(raw)


def test_code_is_pulled_from_the_store(make_box: MakeBox, store: Place) -> None:
    """The result is the same as if it had been sent; a second pull downloads nothing, and needs no SHA-256."""
    sha256 = put_code(store)
    box = make_box(store_url=store.url, env=store.env)
    assert box.call("pull-code", "hash0001").returncode == 2
    assert box.call("pull-code", "--sha256", sha256, "hash0001").returncode == 0
    assert tree_of(box) == FIRST
    assert box.call("code-hash").stdout == b"hash0001\n"
    store.write(f"code/{sha256}.tar.gz", b"not fetched again")
    assert box.call("pull-code", "hash0001").returncode == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, b"the store has no code hash0002"),
        (b"", b"was truncated"),
        (gzip.compress(pack("hash0002", FIRST))[:-200], b"was truncated"),
        (gzip.compress(pack("hash0003", FIRST)), b"hash0002 was requested"),
    ],
    ids=["missing", "empty", "cut", "another"],
)
def test_code_with_another_hash_changes_nothing(
    make_box: MakeBox, store: Place, content: bytes | None, told: bytes
) -> None:
    """The old tree stays, and the reason is reported."""
    box = make_box(store_url=store.url, env=store.env)
    box.call("pull-code", "--sha256", put_code(store), "hash0001")
    sha256 = sha256_of(content or b"")
    if content is not None:
        store.write(f"code/{sha256}.tar.gz", content)
    done = box.call("pull-code", "--sha256", sha256, "hash0002")
    assert (done.returncode, told in done.stderr, b"Traceback" in done.stderr) == (1, True, False), done.stderr
    assert box.call("code-hash").stdout == b"hash0001\n"
    assert tree_of(box) == FIRST


def test_a_machine_without_a_store_pulls_nothing(box: Box) -> None:
    """Exit code 2, as for every request that can't be carried out; the same for an invalid hash."""
    assert box.call("pull-code", "hash0001").returncode == 2
    assert box.call("pull-code", "../../hash").returncode == 2


def test_a_machine_boots_pulls_and_starts(make_box: MakeBox, store: Place) -> None:
    """Each phase is reported when it ends; the command runs in its code, with the run's restored files."""
    box = make_box(store_url=store.url, env=store.env)
    start = put_start(store, box.config("cat a.py; echo ran"))
    order(box, code="hash0001", code_sha256=put_code(store), start_sha256=start)
    assert box.call("boot").returncode == 0
    assert outcomes(box.root) == [("agent", True), ("code", True), ("start", True)]
    lines = [json.loads(line) for line in (box.root / "boot.jsonl").read_text().splitlines()]
    assert lines == readiness(box.root)["phases"]
    assert all(line["began"] <= line["ended"] and line["error"] == "" for line in lines)
    box.await_state("succeeded")
    assert " print(1)\n" in box.log()


def test_a_command_that_has_ended_is_not_started_by_the_next_boot(make_box: MakeBox, store: Place) -> None:
    """`boot` runs at every boot of the machine."""
    box = make_box(store_url=store.url, env=store.env)
    order(box, start_sha256=put_start(store, box.config('echo x >> "$KEDGE_OUTPUT_DIR/runs"')))
    assert box.call("boot").returncode == 0
    box.await_state("succeeded")
    assert box.call("boot").returncode == 0
    assert box.command()["state"] == "succeeded"
    assert (box.root / "results/output/runs").read_text() == "x\n"
    assert outcomes(box.root) == [("agent", True), ("code", True), ("start", True)]


# A start that ends before it has called a supervisor.
_CUT_OFF = """
import os, signal, sys
from pathlib import Path
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.parse import parse_run_config
from orchestrator.agent.run.start import start
sys.addaudithook(lambda event, _: event == "subprocess.Popen" and os.kill(os.getpid(), signal.SIGKILL))
start(Layout(Path(sys.argv[1])), parse_run_config(sys.stdin.buffer.read()))
"""


def test_a_start_that_a_reboot_has_cut_off_is_continued(make_box: MakeBox, store: Place) -> None:
    """Nobody else would start the first task, for which the other one waits."""
    box = make_box(store_url=store.url, env=store.env)
    tasks = [task("a", "true"), task("b", "true", after="a")]
    config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "tasks": tasks}
    start = json.dumps(config).encode()
    store.write("start.json", start)
    order(box, start_sha256=sha256_of(start))
    assert subprocess.run([sys.executable, "-c", _CUT_OFF, str(box.root)], input=start, check=False).returncode < 0
    assert states(box) == {"a": "idle", "b": "waiting"}
    box.begin("watch")
    assert box.call("boot").returncode == 0
    await_states(box, a="succeeded", b="succeeded")


def test_code_that_was_sent_since_is_not_replaced_by_the_next_boot(make_box: MakeBox, store: Place) -> None:
    """The boot order is for a machine that has no code yet: later code from `sync-code` wins."""
    box = make_box(store_url=store.url, env=store.env)
    order(box, code="hash0001", code_sha256=put_code(store))
    assert box.call("boot").returncode == 0
    newer = {**FIRST, "b.py": b"newer\n"}
    assert box.send_code(pack("hash0002", newer)).returncode == 0
    assert box.call("boot").returncode == 0
    assert box.call("code-hash").stdout == b"hash0002\n"
    assert tree_of(box) == newer
    assert outcomes(box.root) == [("agent", True), ("code", True), ("start", True)]


@pytest.mark.parametrize(
    ("fields", "failed", "told"),
    [
        ({"code": "hash0009", "code_sha256": "0" * 64, "start_sha256": "0" * 64}, "code", "no code hash0009"),
        ({"start_sha256": "0" * 64}, "start", "start.json"),
        ({"code": 3}, "agent", "wrong type"),
        ({"code": "../x"}, "agent", "is invalid"),
        ({"code": "hash0009", "code_sha256": "../x"}, "agent", "is invalid"),
        ({"start_sha256": "../x"}, "agent", "is invalid"),
    ],
)
def test_a_boot_that_fails_says_so_in_the_sentinel(
    make_box: MakeBox, store: Place, fields: dict[str, Any], failed: str, told: str
) -> None:
    """The phases after the failed one are skipped."""
    box = make_box(store_url=store.url, env=store.env)
    order(box, **fields)
    assert box.call("boot").returncode == 1
    ready = readiness(box.root)
    assert (ready["ok"], ready["phases"][-1]["phase"], ready["phases"][-1]["ok"]) == (False, failed, False)
    assert told in ready["phases"][-1]["error"]
    assert "\n" not in ready["phases"][-1]["error"]


def test_a_machine_without_orders_is_ready_and_waits(box: Box) -> None:
    """The laptop sends them."""
    assert box.call("boot").returncode == 0
    assert readiness(box.root)["ok"]
    assert box.command()["state"] == "idle"
