"""Several modes of a job on one machine: one setup, results of each in folders of their own, one run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.core.job import Job
from tests.e2e.runs import kill_machine
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: fresnel
    workdir: .
    setup: echo x >> "$SETUPS"
    run: |
      echo "mode $MODE, epochs $EPOCHS, resume <$KEDGE_RESUME>, from <$(basename "$KEDGE_CHECKPOINT")>"
      echo "$MODE" > "$KEDGE_OUTPUT_DIR/model.txt"
      echo "$EPOCHS" > "$KEDGE_CHECKPOINT_DIR/epoch$EPOCHS.pt"
      until [ -e "$KEDGE_NOTICE_FILE" ] || [ "$WAITS" = no ]; do sleep 0.05; done
    envs: {MODE: none, EPOCHS: 1, WAITS: "no", SETUPS: "%s"}
    deadline: 20m
    supervisor: {kind: nohup, restarts: 0, grace: 1s}
    modes:
      validate: {envs: {MODE: validate}, expect: {duration: 1m}}
      fast: {envs: {MODE: fast, EPOCHS: 5}, expect: {duration: 2m}}
      full: {envs: {MODE: full, EPOCHS: 99, WAITS: "yes"}}
      huge: {envs: {MODE: huge}, expect: {duration: 3h}}
      gpus: {resources: {accelerators: "H100:8"}}
      fails: {run: exit 3}
      idle: {run: ""}
"""


@pytest.fixture
def setups(laptop: Laptop, tmp_path: Path) -> Path:
    path = tmp_path / "setups"
    laptop.write_job(JOB % path)
    return path


def machine(laptop: Laptop) -> Path:
    (found,) = (laptop.state / "machines").glob("*-m?")
    return found


def state(laptop: Laptop, key: str) -> str:
    try:
        written = json.loads((machine(laptop) / "tasks" / key / "state.json").read_text())
    except FileNotFoundError:
        return ""
    return str(written["command"]["state"])


def await_state(laptop: Laptop, key: str, wanted: str) -> None:
    wait_until(lambda: state(laptop, key) == wanted)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def text(path: Path) -> str:
    return path.read_text().strip()


def refused(laptop: Laptop, *words: str) -> str:
    laptop.kedge(*words, code=2)
    return laptop.errors


def modes(laptop: Laptop, run: str) -> list[dict[str, Any]]:
    (status,) = laptop.json("status", run)
    return list(status["modes"])


def test_one_machine_and_one_setup_for_several_modes(laptop: Laptop, setups: Path) -> None:
    """Fresnel's flow: launch --mode validate --keep, start --mode fast, fetch, teardown."""
    run = str(laptop.json("launch", "--mode", "validate", "--keep", "--yes", "--price", "1.99")["run"])
    shown = laptop.kedge("start", "--mode", "fast", "--dry-run")
    assert "start the command: nohup, results in 2-fast/" in shown
    assert "mode fast starts fresh; its results are in 2-fast/" in shown
    assert "variables: MODE (changed), EPOCHS (changed)" in shown
    assert "expected 2m" in shown
    laptop.kedge("start", "--mode", "fast")
    await_state(laptop, "2-fast", "succeeded")
    again = laptop.kedge("start", "--mode", "fast", "--env", "EPOCHS=50", "--continue")
    assert "variables: EPOCHS (changed)" in again
    await_state(laptop, "3-fast", "succeeded")
    assert text(setups) == "x"
    fetched = Path(laptop.json("fetch")["results"])
    assert [text(fetched / key / "output/model.txt") for key in ("", "2-fast", "3-fast")] == [
        "validate",
        "fast",
        "fast",
    ]
    names = [
        sorted(path.name for path in (fetched / key / "checkpoints").iterdir()) for key in ("", "2-fast", "3-fast")
    ]
    assert names == [["epoch1.pt"], ["epoch5.pt"], ["epoch5.pt", "epoch50.pt"]]
    assert "epochs 50, resume <1>, from <epoch5.pt>" in laptop.kedge("logs")
    assert "epochs 1, resume <>, from <>" in laptop.kedge("logs", "--mode", "validate")
    assert "epochs 5, resume <>, from <>" in laptop.kedge("logs", "--mode", "2-fast")
    only = laptop.home / "only"
    laptop.kedge("fetch", "--mode", "2-fast", "--to", str(only))
    assert [path.name for path in only.iterdir() if not path.name.startswith(".")] == ["2-fast"]
    first = laptop.home / "first"
    laptop.kedge("fetch", "--mode", "validate", "--to", str(first))
    assert {"run.log", "output", "checkpoints"} <= {path.name for path in first.iterdir()}
    assert not list(first.glob("*-fast"))
    found = modes(laptop, run)
    assert [(mode["mode"], mode["outcome"]) for mode in found] == [
        ("validate", "succeeded"),
        ("fast", "succeeded"),
        ("fast", "succeeded"),
    ]
    assert all(float(mode["usd"]) > 0 for mode in found)
    said = laptop.kedge("cost", run)
    assert said.index("1-validate") < said.index("2-fast") < said.index("3-fast")
    assert "mode 1-validate: succeeded" in laptop.kedge("status", run)
    assert "[kedge] mode 3-fast begins; mode 2-fast has ended: succeeded" in laptop.kedge("logs")
    ledger = laptop.ledger()
    took = [ledger.usual_durations(Job(name="fresnel", mode=mode)) for mode in ("validate", "fast", "full")]
    ledger.close()
    assert [list(each) for each in took] == [["local"], ["local"], []]
    laptop.kedge("teardown", "--yes")
    assert not laptop.processes(run)


def test_what_a_mode_may_not_be(laptop: Laptop, setups: Path) -> None:
    """Nothing is changed: too long for the machine, another machine, unknown, or already there."""
    laptop.json("launch", "--mode", "full", "--detach", "--yes")
    run = machine(laptop).name.removesuffix("-m1")
    wait_until((machine(laptop) / "results/output/model.txt").exists)
    long = refused(laptop, "start", "--mode", "huge", "--yes")
    assert "is expected to take 3h, but its machine is gone in" in long
    assert f"`kedge extend {run} " in long
    assert "needs another machine" in refused(laptop, "start", "--mode", "gpus", "--yes")
    assert "nope" in refused(laptop, "start", "--mode", "nope", "--yes")
    assert "mode idle has no command" in refused(laptop, "start", "--mode", "idle", "--yes")
    assert "no mode 'fast'" in refused(laptop, "logs", "--mode", "fast")
    assert "contradict" in refused(laptop, "start", "--mode", "fast", "--reread")
    assert "no mode is named" in refused(laptop, "start", "--continue")
    assert "contradict" in refused(laptop, "launch", "--mode", "fast", "--modes", "fast")
    same = laptop.kedge("start", "--mode", "full")
    assert "is in mode full with these variables already" in same
    # What runs is only stopped after a yes.
    assert "~ stop the command" in laptop.kedge("start", "--mode", "fast", "--dry-run")
    refused(laptop, "start", "--mode", "fast")
    assert not (machine(laptop) / "results/2-fast").exists()
    laptop.kedge("start", "--mode", "fast", "--yes")
    await_state(laptop, "2-fast", "succeeded")
    assert [mode["outcome"] for mode in modes(laptop, run)] == ["stopped", "succeeded"]
    assert text(setups) == "x"
    laptop.kedge("teardown", "--yes")


def test_modes_follow_one_another_on_one_machine(laptop: Laptop, setups: Path) -> None:
    """In their order, while nobody follows; the plan has the time and the cost of each, and of all together."""
    plan = laptop.json("plan", "--modes", "validate,fast", "--price", "60")
    assert [(each["mode"], each["expected_seconds"], each["usd"], each["total_usd"]) for each in plan["modes"]] == [
        ("validate", 60, "1", "1"),
        ("fast", 120, "2", "3"),
    ]
    shown = laptop.kedge("plan", "--modes", "validate,fast", "--price", "60")
    assert "fast      2m" in shown
    long = refused(laptop, "plan", "--modes", "validate,huge")
    assert "fresnel in modes validate, huge is expected to take 3h 1m" in long
    launched = laptop.json("launch", "--modes", "validate,fast,full", "--detach", "--yes", "--price", "60")
    run = str(launched["run"])
    await_state(laptop, "3-full", "running")
    found = modes(laptop, run)
    assert [(mode["mode"], mode["outcome"]) for mode in found] == [
        ("validate", "succeeded"),
        ("fast", "succeeded"),
        ("full", "running"),
    ]
    assert "mode 3 of 3" in laptop.kedge("status", run)
    store = Results(FolderBucket(laptop.state / "store"))
    wait_until(lambda: "3-full/checkpoints/epoch99.pt" in {file.path for file in store.manifest(run)})
    kill_machine(laptop, run)
    laptop.kedge("resume", run, "--yes", "--detach")
    results = laptop.state / "machines" / f"{run}-m2" / "results"
    wait_until(lambda: "epochs 99, resume <1>, from <epoch99.pt>" in read(results / "3-full/run.log"))
    assert text(results / "output/model.txt") == "validate"
    assert text(results / "2-fast/output/model.txt") == "fast"
    laptop.kedge("teardown", "--yes")


def test_a_run_whose_machine_is_gone_goes_on_in_another_mode(laptop: Laptop, setups: Path) -> None:
    """Its results are restored, so that the mode can continue; other variables alone go on in the same folders."""
    del setups
    run = str(laptop.json("launch", "--mode", "validate", "--yes")["run"])
    plan = laptop.kedge("resume", run, "--mode", "full", "--continue", "--dry-run")
    assert "start the command from the newest checkpoint of the mode before: nohup, results in 2-full/" in plan
    laptop.kedge("resume", run, "--mode", "full", "--continue", "--detach", "--yes")
    results = laptop.state / "machines" / f"{run}-m2" / "results"
    wait_until(lambda: "mode full, epochs 99, resume <1>, from <epoch1.pt>" in read(results / "2-full/run.log"))
    assert text(results / "output/model.txt") == "validate"
    laptop.kedge("stop")
    resumed = laptop.kedge("resume", "--env", "EPOCHS=7", "--detach", "--yes")
    assert "the present mode goes on in the same folders, from its newest checkpoint" in resumed
    wait_until(lambda: "epochs 7, resume <1>, from <epoch99.pt>" in read(results / "2-full/run.log"))
    assert [mode["folder"] for mode in modes(laptop, run)] == ["", "2-full"]
    laptop.kedge("teardown", "--yes")
    # The machine is gone: from the store.
    laptop.kedge("fetch", run, "--mode", "validate", "--to", str(laptop.home / "first"))
    assert "mode validate" in (laptop.home / "first" / "run.log").read_text()
    assert not (laptop.home / "first" / "2-full").exists()
    home = laptop.home / "kedge-results" / run
    assert [text(home / key / "output/model.txt") for key in ("", "2-full")] == ["validate", "full"]


def test_a_mode_that_fails_is_the_last(laptop: Laptop, setups: Path) -> None:
    """The launch follows all of them to the end, and ends the machine."""
    del setups
    said = laptop.kedge("launch", "--modes", "validate,fails,fast", "--yes", code=1)
    assert "exit code 3" in said
    assert "mode fast" not in said
    assert re.search(r"^error: the command of mode 2-fails of \S+ failed$", laptop.errors, re.MULTILINE)
    assert re.search(r"^  why: .*; not started: fast$", laptop.errors, re.MULTILINE)
    (status,) = laptop.json("status", "--all")
    assert [(mode["mode"], mode["outcome"]) for mode in status["modes"]] == [
        ("validate", "succeeded"),
        ("fails", "failed"),
    ]
    assert not list((laptop.state / "machines").glob("*-m?"))
    assert "mode 3-fast: not started" in laptop.kedge("status", str(status["run"]))


def test_commands_know_the_mode_in_which_a_machine_is_by_itself(laptop: Laptop) -> None:
    """Nobody followed it there, and `status` hasn't been asked: its tasks are those of the second mode."""
    laptop.write_job("""
        name: stages
        supervisor: {kind: nohup, restarts: 0, grace: 1s}
        deadline: 20m
        modes:
          first: {tasks: {a: {run: "true"}}}
          second: {tasks: {b: {run: "echo in b; until [ -e $KEDGE_NOTICE_FILE ]; do sleep 0.05; done"}}}
    """)
    run = str(laptop.json("launch", "--modes", "first,second", "--detach", "--yes")["run"])
    await_state(laptop, "2-second/b", "running")
    ledger = laptop.ledger()
    launched = ledger.run(run)
    assert launched is not None
    assert launched.spec.sequence == 0

    def knows_it(*words: str) -> None:
        ledger.open_run(launched.spec, launched.created_at)
        laptop.kedge(*words)

    knows_it("exec", "--task", "b", "--", "true")
    knows_it("fetch", "--mode", "second", "--to", str(laptop.home / "second"))
    assert "in b" in (laptop.home / "second/2-second/b/run.log").read_text()
    knows_it("status", "--task", "b")
    knows_it("stop")
    await_state(laptop, "2-second/b", "stopped")
    ledger.close()
    laptop.kedge("teardown", "--yes")


def test_modes_that_follow_one_another_agree_on_their_data_and_their_machine(laptop: Laptop) -> None:
    """Otherwise the data of one would silently be that of the other, and a mode could be interrupted that may not."""
    for name in ("small", "big"):
        (laptop.home / name).mkdir()
    laptop.write_job("""
        name: agree
        run: "true"
        modes:
          small: {data: {faces: small}}
          big: {data: {faces: big}}
          within: {data: {faces/more: big}}
          writes: {outputs: [faces]}
          other: {data: {more: big}, outputs: [results]}
          spot: {resources: {use_spot: true}}
          idle: {run: ""}
    """)
    assert "two modes have different data in faces" in refused(laptop, "plan", "--modes", "small,big")
    assert "faces/more and faces, of different modes, overlap" in refused(laptop, "plan", "--modes", "within,small")
    assert "of different modes, overlap" in refused(laptop, "plan", "--modes", "small,writes")
    assert "it differs in use_spot" in refused(laptop, "plan", "--modes", "small,spot")
    for modes_ in ("small,idle", "idle,small"):
        assert "mode idle has no command" in refused(laptop, "plan", "--modes", modes_)
    shown = laptop.kedge("plan", "--modes", "small,other,small")
    assert "send data to faces" in shown
    assert "send data to more" in shown
