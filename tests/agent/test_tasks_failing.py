"""What a task's failure, or its removal from the job, means for the others."""

from __future__ import annotations

import json

from tests.agent.box import RUN, Box, wait_for
from tests.agent.several import UNTIL_TOLD, await_states, start, states, task


def test_all_are_stopped_when_one_fails_if_the_job_says_so(box: Box) -> None:
    """Those that wait as well; by default, the others go on."""
    box.begin("watch")
    start(
        box,
        task("a", "sleep 1000"),
        task("b", "sleep 0.2; exit 3"),
        task("c", "true", after="a"),
        on_failure="stop-all",
    )
    box.await_state("failed")
    assert states(box) == {"a": "stopped", "b": "failed", "c": "stopped"}
    assert box.report()["tasks"]["a"]["command"]["reason"] == "b has failed"


def test_a_task_can_be_started_again_alone_after_the_failure_that_has_stopped_it(box: Box) -> None:
    """What has failed before doesn't stop it again; what fails from then on does."""
    box.begin("watch")
    tasks = task("a", f"{UNTIL_TOLD}; sleep 1000"), task("b", "exit 3")
    start(box, *tasks, on_failure="stop-all")
    box.await_state("failed")
    start(box, *tasks, options=("--task", "a"), on_failure="stop-all")
    await_states(box, a="running")
    # The watch takes at least one look at it.
    beat = box.report()["heartbeat"]
    wait_for(lambda: box.report()["heartbeat"] > beat + 2)
    assert states(box) == {"a": "running", "b": "failed"}
    start(box, *tasks, options=("--task", "b"), on_failure="stop-all")
    await_states(box, a="stopped", b="failed")


def test_no_task_that_runs_is_left_behind_by_another_configuration(box: Box) -> None:
    """Nobody could stop it any more, and its own runner wouldn't know it."""
    start(box, task("a", UNTIL_TOLD), task("b", "true"))
    await_states(box, a="running", b="succeeded")
    config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "tasks": [task("c", "true")]}
    refused = box.call("start", stdin=json.dumps(config).encode())
    assert (refused.returncode, b"no longer has runs: a" in refused.stderr) == (2, True), refused.stderr
    box.call("notice", "now", "--task", "a")
    await_states(box, a="succeeded")
    box.ask("start", stdin=json.dumps(config).encode())
    wait_for(lambda: states(box) == {"c": "succeeded"})
