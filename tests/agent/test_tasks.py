"""Several tasks on one machine: each has its own state, log, results and part of the machine, and ends by itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base import state
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.state import together
from orchestrator.agent.base.wire import Command
from tests.agent.box import RUN, Box, wait_for
from tests.agent.places import Place
from tests.agent.several import UNTIL_TOLD, await_states, results, start, states, task
from tests.agent.test_follow import follow
from tests.agent.trees import pack

MakeBox = Callable[..., Box]
DUMP = 'env -0 > "$KEDGE_OUTPUT_DIR/env"; pwd > "$KEDGE_OUTPUT_DIR/pwd"'


def environment(box: Box, name: str) -> dict[str, str]:
    words = (results(box, name) / "output/env").read_bytes().split(b"\0")
    return dict(word.decode().split("=", 1) for word in words if word)


def test_each_task_has_its_own_part_of_everything(box: Box) -> None:
    """GPUs, port, variables, folders and log; `setup` runs once, and the machine is over when both are."""
    write = 'mkdir -p ckpt out; echo "$SEED" > ckpt/1.pt; echo "$SEED" > out/a; echo "$SEED" > beside.txt; '
    start(
        box,
        task("pcdiff", write + DUMP, gpus=[0, 2], envs={"SEED": "one"}, checkpoints="ckpt", outputs=["out"]),
        task("voxel", write + DUMP, gpus=[7], envs={"SEED": "two"}, checkpoints="ckpt", outputs=["out"], cpus=1),
        setup='echo x >> "$KEDGE_TEST_SETUPS"; echo built > built.txt',
        envs={"KEDGE_TEST_SETUPS": str(box.root / "setups")},
        gpus_per_node=8,
    )
    assert box.await_state("succeeded")["attempt"] == 1
    assert (box.root / "setups").read_text() == "x\n"
    first, second = environment(box, "pcdiff"), environment(box, "voxel")
    assert (first["KEDGE_TASK"], second["KEDGE_TASK"]) == ("pcdiff", "voxel")
    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("0,2", "7")
    assert (first["KEDGE_GPUS_PER_NODE"], second["KEDGE_GPUS_PER_NODE"]) == ("2", "1")
    assert first["KEDGE_PORT"] == first["MASTER_PORT"] != second["MASTER_PORT"] == second["KEDGE_PORT"]
    assert [first[f"{which}_TASK_ID"] for which in ("KEDGE", "SKYPILOT")] == [f"{RUN}-pcdiff"] * 2
    assert (second["KEDGE_TASK_ID"], second["KEDGE_TASKS_DIR"]) == (f"{RUN}-voxel", str(box.root / "results"))
    assert second["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in first or first["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS")
    folders = {(results(box, name) / "output/pwd").read_text() for name in ("pcdiff", "voxel")}
    assert len(folders) == 2
    for name, seed in (("pcdiff", "one\n"), ("voxel", "two\n")):
        assert (results(box, name) / "checkpoints/1.pt").read_text() == seed
        assert (results(box, name) / "output/out/a").read_text() == seed
        assert (results(box, name) / "left-behind/beside.txt").read_text() == seed
        assert "succeeded" in (results(box, name) / "run.log").read_text()
    assert not (box.root / "results/output").exists()


def test_a_repeated_setup_s_files_are_in_every_task_s_folder(box: Box) -> None:
    """Although the code, and so the tasks' folders of an earlier start, are the same."""
    for flavour in ("vanilla", "mint"):
        start(
            box,
            *(task(name, "cat built.txt") for name in "ab"),
            setup='echo "$FLAVOUR" > built.txt',
            envs={"FLAVOUR": flavour},
        )
        box.await_state("succeeded")
        for name in "ab":
            assert f" {flavour}\n" in (results(box, name) / "run.log").read_text()


def test_a_task_alone_is_stopped_started_and_killed(box: Box) -> None:
    """The others go on, and keep their state."""
    both = [task(name, f"echo began; {UNTIL_TOLD}; sleep 1000") for name in ("a", "b")]
    start(box, *both)
    await_states(box, a="running", b="running")
    assert box.ask("stop", "--task", "a", "--reason", "lunch")["state"] == "stopped"
    assert states(box) == {"a": "stopped", "b": "running"}
    assert box.command()["state"] == "running"
    start(box, *both, options=("--task", "a"))
    await_states(box, a="running", b="running")
    assert [(results(box, name) / "run.log").read_text().count(" began\n") for name in "ab"] == [2, 1]
    box.call("notice", "--task", "b", "now")
    assert [(box.root / "tasks" / name / "notice").exists() for name in "ab"] == [False, True]
    assert box.ask("kill", "--task", "b")["reason"] == "killed"
    assert states(box) == {"a": "running", "b": "stopped"}
    assert box.ask("stop")["state"] == "stopped"
    unknown = box.call("stop", "--task", "c")
    assert (unknown.returncode, b"no task 'c'" in unknown.stderr) == (2, True)


def test_a_task_starts_after_another_has_succeeded(box: Box) -> None:
    """Not before; if that one fails, the task fails, too, and so does what comes after it."""
    box.begin("watch")
    tasks = [task("c", "echo c", after="b"), task("b", "exit 3", after="a"), task("a", UNTIL_TOLD), task("d", "true")]
    start(box, *tasks)
    await_states(box, a="running", b="waiting", c="waiting", d="succeeded")
    assert box.report()["tasks"]["b"]["command"]["reason"] == "starts after a"
    box.call("notice", "--task", "a", "now")
    over = box.await_state("failed")
    assert states(box) == {"a": "succeeded", "b": "failed", "c": "failed", "d": "succeeded"}
    assert over["exit_code"] in (3, None)
    assert box.report()["tasks"]["c"]["command"]["reason"] == "b has failed"
    # Only what did not succeed is started again, in the same order.
    start(box, *tasks[:1], {**tasks[1], "command": "echo b"}, *tasks[2:], options=("--task", "b", "--task", "c"))
    box.await_state("succeeded")
    logs = [(results(box, name) / "run.log").read_text() for name in "abc"]
    assert [log.count("started, attempt") for log in logs] == [1, 2, 1]


def test_the_watch_replaces_the_runner_of_the_task_that_lost_it(box: Box) -> None:
    """The other task's runner isn't touched."""
    box.begin("watch")
    start(box, *(task(name, f"echo began; {UNTIL_TOLD}", restarts=1) for name in ("a", "b")))
    await_states(box, a="running", b="running")
    first, second = (state.load(Layout(box.root).task(name)) for name in ("a", "b"))
    os.kill(first.runner, signal.SIGKILL)
    wait_for(lambda: (results(box, "a") / "run.log").read_text().count(" began\n") == 2)
    box.call("notice", "now")
    await_states(box, a="succeeded", b="succeeded")
    assert state.load(Layout(box.root).task("b")).runner == second.runner
    assert {name: each["command"]["attempt"] for name, each in box.report()["tasks"].items()} == {"a": 2, "b": 1}


def test_the_machine_ends_when_all_tasks_have_ended_and_a_next_one_continues(
    make_box: MakeBox, store: Place, tmp_path: Path
) -> None:
    """It uploads each task's results; the next machine restores them, and starts only what has not succeeded."""
    end = tmp_path / "ended"
    train = (
        'ls "$KEDGE_CHECKPOINT_DIR"; echo "$KEDGE_TASK" >> "$KEDGE_CHECKPOINT_DIR/1.pt"; echo resumed "$KEDGE_RESUME"; '
    )
    tasks = [task("a", train), task("b", train + UNTIL_TOLD, grace=0.5), task("c", "echo c", after="a")]
    first = make_box(store_url=store.url, env=store.env)
    first.begin("watch")
    start(first, *tasks)
    await_states(first, a="succeeded", b="running", c="succeeded")
    wait_for(lambda: _uploaded(store, "c/run.log") and _uploaded(store, "b/checkpoints/1.pt"))
    wait_for(lambda: _manifest(store)["tasks"]["c"]["command"]["state"] == "succeeded")
    first.close()

    second = make_box(
        store_url=store.url, env=store.env, machine=f"{RUN}-m2", linger=0.2, end_command=["touch", str(end)]
    )
    second.begin("watch")
    start(second, *tasks, done=["a", "c"])
    await_states(second, a="succeeded", b="running", c="succeeded")
    assert second.report()["tasks"]["a"]["command"]["reason"] == "on an earlier machine"
    # A command that runs may not have printed yet.
    wait_for(lambda: " resumed 1\n" in (results(second, "b") / "run.log").read_text())
    assert (results(second, "b") / "run.log").read_text().count(" 1.pt\n") == 1
    assert (results(second, "a") / "checkpoints/1.pt").read_text() == "a\n"
    assert not end.exists()
    second.call("notice", "now")
    wait_for(end.exists)
    assert _manifest(store)["command"]["state"] == "succeeded"


def _manifest(store: Place) -> dict[str, Any]:
    return dict(json.loads(store.read("manifest.json") or b"{}"))


def _uploaded(store: Place, path: str) -> bool:
    return path in [file["path"] for file in _manifest(store).get("files", ())]


def test_logs_of_several_tasks_are_followed_in_one_stream(box: Box) -> None:
    """Each line says whose it is, and each log has its own offset."""
    start(box, *(task(name, f"echo hello from {name}; echo bye from {name}") for name in ("a", "b")))
    box.await_state("succeeded")
    events = [event for event in follow(box, "--until-over") if event.line is not None]
    words = {(event.task, event.line.split(" ", 1)[1]) for event in events if event.line}
    assert {("a", "hello from a"), ("b", "bye from b")} <= words
    assert not {("a", "hello from b"), ("b", "hello from a")} & words
    [hello] = [event for event in events if event.line and event.line.endswith("hello from b")]
    rest = [
        event for event in follow(box, "--task", "b", "--offset", f"b={hello.offset}", "--until-over") if event.line
    ]
    assert rest == [event for event in events if event.task == "b" and event.offset > hello.offset]
    assert box.call("follow", "--offset", "b=x").returncode == 2


@pytest.mark.parametrize("supervisor", ["tmux", "screen"])
def test_each_task_has_a_window_of_its_own(box: Box, supervisor: str) -> None:
    """One that ends leaves the other's open; attaching needs a name."""
    start(box, *(task(name, UNTIL_TOLD, supervisor=supervisor) for name in ("a", "b")))
    await_states(box, a="running", b="running")
    windows = _windows(box, supervisor)
    assert [any(name in window for window in windows) for name in ("a", "b")] == [True, True]
    box.call("notice", "--task", "a", "now")
    await_states(box, a="succeeded", b="running")
    unnamed = box.call("attach")
    assert (unnamed.returncode, b"name one with --task: a, b" in unnamed.stderr) == (2, True)
    gone = wait_for(lambda: done if (done := box.call("attach", "--task", "a")).returncode == 2 else None)
    assert b"the command is over" in gone.stderr
    box.ask("stop")


def _windows(box: Box, supervisor: str) -> list[str]:
    import subprocess

    if supervisor == "tmux":
        argv = ["tmux", "-S", str(box.sockets / "tmux"), "list-windows", "-t", "kedge", "-F", "#{window_name}"]
    else:
        argv = ["env", f"SCREENDIR={box.sockets / 'screen'}", "screen", "-ls"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line if supervisor == "tmux" else line.partition(".kedge-")[2][:1] for line in said]


def test_new_code_gets_new_folders_and_the_old_ones_of_tasks_at_work_stay(box: Box) -> None:
    """A task works in its copy until it starts again; later the copies of pruned releases go with them."""
    for number, text in enumerate((b"one", b"two", b"three", b"four")):
        assert box.send_code(pack(f"hash000{number}", {"a.txt": text})).returncode == 0
        if not number:
            start(box, task("a", f"{UNTIL_TOLD}; cat a.txt"), task("b", "cat a.txt"))
            await_states(box, a="running", b="succeeded")
    kept = ["hash0000", "hash0000@a", "hash0000@b", "hash0002", "hash0003"]
    wait_for(lambda: sorted(path.name for path in (box.root / "releases").glob("hash*")) == kept)
    box.call("notice", "now")
    await_states(box, a="succeeded")
    assert " one\n" in (results(box, "a") / "run.log").read_text()


def test_a_later_mode_leaves_the_results_of_the_first_alone(box: Box) -> None:
    """It has folders and a log of its own, starts fresh, and isn't started beside a live command of another mode."""
    box.begin("watch")
    look = 'echo "id: $KEDGE_TASK_ID"; ls "$KEDGE_CHECKPOINT_DIR"; echo "$MODE" > "$KEDGE_CHECKPOINT_DIR/$MODE.pt"; '
    start(box, task("", look + UNTIL_TOLD), mode="validate", envs={"MODE": "validate"})
    box.await_state("running")
    config = {"run": RUN, "job": "digits", "mode": "fast", "setup": "", "sequence": 1, "envs": {"MODE": "fast"}}
    raw = json.dumps({**config, "tasks": [task("", look)]}).encode()
    refused = box.call("start", stdin=raw)
    assert (refused.returncode, b"another mode is still running" in refused.stderr) == (2, True)
    box.call("notice", "now")
    box.await_state("succeeded")
    box.ask("start", stdin=raw)
    box.await_state("succeeded")
    later = box.root / "results/2-fast"
    assert [path.name for path in (later / "checkpoints").iterdir()] == ["fast.pt"]
    assert "validate.pt" not in (later / "run.log").read_text()
    assert f"id: {RUN}-2-fast\n" in (later / "run.log").read_text()
    assert [path.name for path in (box.root / "results/checkpoints").iterdir()] == ["validate.pt"]
    assert "fast" not in (box.root / "results/run.log").read_text()
    assert box.report()["log_bytes"] == (later / "run.log").stat().st_size


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ([], b"tasks"),
        ([task("a", "true"), task("a", "true")], b"tasks"),
        ([task("output", "true"), task("b", "true")], b"tasks"),
        ([task("../up", "true"), task("b", "true")], b"tasks"),
        ([task("", "true"), task("b", "true")], b"tasks"),
        ([task("a", "true", after="c"), task("b", "true")], b"after"),
        ([task("a", "true", gpus=[-1]), task("b", "true")], b"gpus"),
        ([task("a", "true", cpus=0), task("b", "true")], b"cpus"),
    ],
)
def test_bad_tasks_are_refused(box: Box, tasks: list[dict[str, Any]], told: bytes) -> None:
    """Nothing is started then."""
    config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "tasks": tasks}
    refused = box.call("start", stdin=json.dumps(config).encode())
    assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr
    assert not (box.root / "run.json").exists()


def test_several_states_make_one() -> None:
    """Live while one is live; then failed if one failed, since the last one ended."""
    said = together([Command("failed", since=5.0, exit_code=3), Command("running", since=2.0, started=1.0)])
    assert (said.state, said.since, said.started) == ("running", 2.0, 1.0)
    said = together([Command("failed", since=5.0, exit_code=3), Command("succeeded", since=9.0, exit_code=0)])
    assert (said.state, said.since, said.exit_code) == ("failed", 9.0, 3)
    assert together([Command("stopped"), Command("succeeded")]).state == "stopped"
    assert together([Command("waiting"), Command("failed")]).state == "waiting"
    assert together([Command("idle"), Command("succeeded")]).state == "succeeded"
    # A run that is reclaimed goes on elsewhere, and so do its tasks that have failed.
    said = together([Command("failed", since=5.0), Command("stopped", reason="spot notice", since=4.0)])
    assert (said.state, said.reason) == ("stopped", "spot notice")
