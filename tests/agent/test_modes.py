"""A run's modes on one machine: one follows the other by itself, each with its own results, or continues the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.config import write_run_config
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.parse import parse_run_config
from orchestrator.agent.run.start import enter_mode
from tests.agent.box import RUN, Box, wait_for
from tests.agent.places import Place
from tests.agent.several import UNTIL_TOLD, results, task
from tests.agent.trees import pack

MakeBox = Callable[..., Box]
TRAIN = (
    'echo "mode $MODE, resume <$KEDGE_RESUME>, from <$(basename "$KEDGE_CHECKPOINT")>, token <$TOKEN$KEY>"; '
    'echo "$MODE" > "$KEDGE_CHECKPOINT_DIR/$MODE-step$STEP.pt"; '
)


def mode(name: str, *tasks: dict[str, Any], sequence: int, step: int, **more: Any) -> dict[str, Any]:
    envs = {"MODE": name, "STEP": str(step), **more.pop("envs", {})}
    config = {"run": RUN, "job": "digits", "mode": name, "setup": "", "tasks": tasks or (task("", TRAIN),), **more}
    return {**config, "envs": envs, "sequence": sequence}


def start_modes(box: Box, first: dict[str, Any], *then: dict[str, Any]) -> dict[str, Any]:
    return dict(box.ask("start", stdin=json.dumps({**first, "then": then}).encode()))


def await_mode(box: Box, sequence: int, *states: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        report = box.report()
        return report if report["sequence"] == sequence and report["command"]["state"] in states else None

    return dict(wait_for(look))


def log(box: Box, key: str = "") -> str:
    return (results(box, key) / "run.log").read_text()


def names(box: Box, key: str = "") -> list[str]:
    return sorted(path.name for path in (results(box, key) / "checkpoints").iterdir())


def test_modes_follow_one_another_without_the_laptop(make_box: MakeBox, store: Place, tmp_path: Path) -> None:
    """Each begins fresh, with only its own secrets; `setup` runs once; the machine ends after the last, not before."""
    end = tmp_path / "ended"
    box = make_box(store_url=store.url, env=store.env, linger=0.2, end_command=["touch", str(end)])
    box.begin("watch")
    shared = {"setup": 'echo x >> "$KEDGE_TEST_SETUPS"'}
    setups = {"KEDGE_TEST_SETUPS": str(box.root / "setups")}
    first = mode("validate", sequence=0, step=1, envs=setups, secrets={"TOKEN": "quiet"}, **shared)
    second = mode("fast", sequence=1, step=2, envs=setups, **shared)
    third = mode(
        "full", task("", TRAIN + UNTIL_TOLD), sequence=2, step=3, envs=setups, secrets={"KEY": "l0ud4711"}, **shared
    )
    start_modes(box, first, second, third)
    report = await_mode(box, 2, "running")
    assert [(each["sequence"], each["mode"], each["command"]["state"]) for each in report["earlier"]] == [
        (0, "validate", "succeeded"),
        (1, "fast", "succeeded"),
    ]
    assert "mode validate, resume <>, from <>, token <quiet>" in log(box)
    assert "mode fast, resume <>, from <>, token <>" in log(box, "2-fast")
    wait_for(lambda: "mode full, resume <>, from <>, token <l0ud4711>" in log(box, "3-full"))
    assert (names(box), names(box, "2-fast")) == (["validate-step1.pt"], ["fast-step2.pt"])
    assert (box.root / "setups").read_text() == "x\n"
    holders = [path.name for path in box.root.rglob("*") if path.is_file() and b"l0ud4711" in path.read_bytes()]
    assert sorted(holders) == ["run.log", "secrets.json"]
    wait_for(lambda: _manifest(store).get("sequence") == 2)
    assert not end.exists()
    box.call("notice", "now")
    wait_for(end.exists)
    manifest = _manifest(store)
    assert (manifest["mode"], manifest["command"]["state"]) == ("full", "succeeded")
    assert [row["mode"] for row in manifest["earlier"]] == ["validate", "fast"]
    paths = {file["path"] for file in manifest["files"]}
    assert {"run.log", "2-fast/run.log", "3-full/checkpoints/full-step3.pt"} <= paths


@pytest.mark.parametrize(("command", "state"), [("exit 3", "failed"), ("sleep 1000", "stopped")])
def test_a_mode_that_has_not_succeeded_is_the_last(box: Box, command: str, state: str) -> None:
    """What follows isn't started, and the run is over."""
    box.begin("watch")
    start_modes(box, mode("validate", task("", command), sequence=0, step=1), mode("fast", sequence=1, step=2))
    if state == "stopped":
        await_mode(box, 0, "running")
        assert box.ask("stop")["state"] == "stopped"
    assert await_mode(box, 0, "failed", "stopped")["command"]["state"] == state
    assert not (box.root / "results/2-fast").exists()


def test_the_next_mode_waits_for_all_tasks_of_the_present_one(box: Box) -> None:
    """The run isn't over in between; a task of the next one may wait for another."""
    box.begin("watch")
    first = mode("validate", task("a", "true"), task("b", UNTIL_TOLD), sequence=0, step=1)
    then = mode("fast", task("a", "echo first"), task("b", "echo second", after="a"), sequence=1, step=2)
    start_modes(box, first, then)
    # A notice that comes before a command has begun isn't for it.
    wait_for(lambda: [box.report()["tasks"][name]["command"]["state"] for name in "ab"] == ["succeeded", "running"])
    wait_for(lambda: box.report()["tasks"]["b"]["command"]["state"] == "running")
    assert box.report()["sequence"] == 0
    box.call("notice", "now")
    report = await_mode(box, 1, "succeeded")
    assert {name: each["command"]["state"] for name, each in report["tasks"].items()} == {
        "a": "succeeded",
        "b": "succeeded",
    }
    assert " second\n" in log(box, "2-fast/b")


def test_a_run_between_two_modes_is_live(box: Box) -> None:
    """Without the watch, which starts the next one, it waits; an interrupted change of the mode is continued."""
    start_modes(box, mode("validate", sequence=0, step=1), mode("fast", sequence=1, step=2))
    waiting = await_mode(box, 0, "waiting")
    assert waiting["command"]["reason"] == "mode fast starts next"
    follower = box.begin("follow", "--until-over")
    assert follower.stdout is not None
    said = [follower.stdout.readline()]
    following = parse_run_config(json.dumps(mode("fast", sequence=1, step=2)).encode())
    enter_mode(Layout(box.root), following)
    assert box.report()["command"]["state"] == "waiting"
    box.begin("watch")
    await_mode(box, 1, "succeeded")
    with follower.stdout as rest:
        followed = b"".join([*said, *rest]).decode()
    assert follower.wait(timeout=60) == 0
    follower.stdout = None
    parts = ["mode validate, resume", "mode 2-fast begins; mode 1-validate has ended: succeeded", "mode fast, resume"]
    assert [followed.count(part) for part in parts] == [1, 1, 1]
    assert sorted(parts, key=followed.index) == parts


def test_a_kill_while_a_mode_begins_skips_none(tmp_path: Path) -> None:
    """At whichever of its files: then the same mode begins at the next try, and the one after it still follows."""
    argv = [sys.executable, "-m", "tests.agent.killed_modes", str(tmp_path)]
    entered = [
        line.split() for line in subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    ]
    assert len(entered) > 4
    assert [modes[-2:] for modes in entered] == [["fast", "slow"]] * len(entered)


def test_a_mode_continues_the_one_before(box: Box) -> None:
    """Its first attempt resumes from a copy of that one's newest checkpoint, which stays as it was."""
    start_modes(box, mode("validate", sequence=0, step=5))
    await_mode(box, 0, "succeeded")
    start_modes(box, mode("fast", sequence=1, step=9, continues=""))
    await_mode(box, 1, "succeeded")
    assert "mode fast, resume <1>, from <validate-step5.pt>" in log(box, "2-fast")
    assert names(box, "2-fast") == ["fast-step9.pt", "validate-step5.pt"]
    assert (results(box, "") / "checkpoints/validate-step5.pt").read_text() == "validate\n"
    start_modes(box, mode("full", sequence=2, step=12, continues="2-fast"))
    await_mode(box, 2, "succeeded")
    assert "mode full, resume <1>, from <fast-step9.pt>" in log(box, "3-full")
    start_modes(box, mode("again", sequence=3, step=1))
    await_mode(box, 3, "succeeded")
    assert "mode again, resume <>, from <>" in log(box, "4-again")


def test_a_mode_starts_with_the_code_and_what_setup_has_made(box: Box) -> None:
    """Not with what the mode before has written into its working folder, nor with its outputs."""
    assert box.send_code(pack("hash0001", {"a.txt": b"code"})).returncode == 0
    look = "ls; ls out ckpt; mkdir -p out ckpt; echo x > out/$MODE; echo x > ckpt/$MODE.pt; echo x > beside-$MODE.txt"
    shown = task("", look, outputs=["out"], checkpoints="ckpt")
    start_modes(box, mode("validate", shown, sequence=0, step=1, setup="echo x > built-validate.txt"))
    await_mode(box, 0, "succeeded")
    start_modes(box, mode("fast", shown, sequence=1, step=2, setup="echo x > built-fast.txt"))
    await_mode(box, 1, "succeeded")
    words = {line.split(" ")[-1] for line in log(box, "2-fast").splitlines()}
    assert {"a.txt", "built-fast.txt", "built-validate.txt"} <= words
    assert not {"beside-validate.txt", "validate", "validate.pt"} & words
    assert [path.name for path in (results(box, "2-fast") / "output/out").iterdir()] == ["fast"]
    assert [path.name for path in (results(box, "") / "output/out").iterdir()] == ["validate"]
    left = sorted(path.name for path in (results(box, "2-fast") / "left-behind").iterdir())
    assert "beside-fast.txt" in left
    assert "beside-validate.txt" not in left


def test_a_mode_without_anything_to_continue_fails(box: Box) -> None:
    """Rather than to train from scratch, which was not asked for."""
    start_modes(box, mode("validate", task("", "true"), sequence=0, step=1))
    await_mode(box, 0, "succeeded")
    start_modes(box, mode("fast", task("", TRAIN, restarts=0), sequence=1, step=2, continues=""))
    over = await_mode(box, 1, "failed")["command"]
    assert "no complete checkpoint to continue from" in over["reason"]


def test_a_next_machine_has_the_results_of_all_modes(make_box: MakeBox, store: Place) -> None:
    """It goes on with the present one, and knows those before it."""
    first = make_box(store_url=store.url, env=store.env)
    first.begin("watch")
    last = mode("fast", task("", TRAIN + UNTIL_TOLD), sequence=1, step=2)
    start_modes(first, mode("validate", sequence=0, step=1), last)
    await_mode(first, 1, "running")
    wait_for(lambda: "2-fast/checkpoints/fast-step2.pt" in {file["path"] for file in _manifest(store)["files"]})
    first.close()
    second = make_box(store_url=store.url, env=store.env, machine=f"{RUN}-m2")
    second.begin("watch")
    start_modes(second, last)
    report = await_mode(second, 1, "running")
    wait_for(lambda: "mode fast, resume <1>, from <fast-step2.pt>" in log(second, "2-fast"))
    assert [each["mode"] for each in report["earlier"]] == ["validate"]
    assert names(second) == ["validate-step1.pt"]


def test_a_mode_before_the_present_one_is_not_started_again(box: Box) -> None:
    """A command that was planned before the machine went on is refused."""
    start_modes(box, mode("fast", sequence=1, step=1))
    await_mode(box, 1, "succeeded")
    refused = box.call("start", stdin=json.dumps(mode("validate", sequence=0, step=1)).encode())
    assert (refused.returncode, b"in a later mode already: fast" in refused.stderr) == (2, True)


def test_a_mode_whose_supervisor_is_missing_fails(box: Box) -> None:
    """The machine isn't left waiting until its deadline."""
    box.begin("watch")
    start_modes(
        box,
        mode("validate", sequence=0, step=1),
        mode("fast", task("", TRAIN, supervisor="upstart"), sequence=1, step=2),
    )
    assert "no supervisor 'upstart'" in await_mode(box, 1, "failed")["command"]["reason"]


@pytest.mark.parametrize(
    "change",
    [
        {"continues": "../up"},
        {"continues": "2-a/b"},
        {"then": [mode("fast", sequence=0, step=1)]},
        {"then": [mode("fast", sequence=2, step=1), mode("full", sequence=1, step=1)]},
        {"then": [{**mode("fast", sequence=1, step=1), "run": "other"}]},
        {"then": [{**mode("fast", sequence=1, step=1), "mode": "../up"}]},
    ],
)
def test_bad_modes_are_refused(box: Box, change: dict[str, Any]) -> None:
    """Nothing is started then."""
    refused = box.call("start", stdin=json.dumps({**mode("validate", sequence=0, step=1), **change}).encode())
    assert refused.returncode == 2, refused.stderr
    assert not (box.root / "run.json").exists()


def test_run_json_has_no_secret_and_no_mode_that_follows(box: Box) -> None:
    """They are in files of their own; what is read again is what was written."""
    config = {**mode("validate", sequence=0, step=1, secrets={"TOKEN": "quiet"})}
    config["then"] = [mode("fast", sequence=1, step=2, secrets={"KEY": "l0ud4711"})]
    write_run_config(Layout(box.root), parse_run_config(json.dumps(config).encode()))
    for name in ("run.json", "later.json"):
        written = (box.root / name).read_text()
        assert ("quiet" in written, "l0ud4711" in written) == (False, False)
        assert (box.root / name).stat().st_mode & 0o777 == 0o600


def _manifest(store: Place) -> dict[str, Any]:
    return dict(json.loads(store.read("manifest.json") or b"{}"))


def test_the_end_of_a_mode_is_uploaded_at_once_with_all_of_its_results(make_box: MakeBox, store: Place) -> None:
    """Before the next mode begins, and long before an upload is due: else a next machine would repeat the mode."""
    box = make_box(store_url=store.url, env=store.env, ship_every=3600.0)
    box.begin("watch")
    start_modes(box, mode("validate", sequence=0, step=1), mode("fast", task("", UNTIL_TOLD), sequence=1, step=2))
    await_mode(box, 1, "running")
    wait_for(lambda: _manifest(store).get("sequence") == 1)
    assert [(each["mode"], each["command"]["state"]) for each in _manifest(store)["earlier"]] == [
        ("validate", "succeeded")
    ]
    assert {"run.log", "checkpoints/validate-step1.pt"} <= {file["path"] for file in _manifest(store)["files"]}
