"""Several machines as a user sees them, rehearsed on this computer."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.e2e.runs import kill_machine, shipped_step
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    num_nodes: 2
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, restart_after: 1s, grace: 5s}
"""


PART = (
    'mkdir -p ckpt/all results; for name in ckpt/all/part results/of; do echo "$NODE_RANK" > "$name$NODE_RANK"; done; '
)


def test_two_machines_are_planned_run_and_ended_together(laptop: Laptop) -> None:
    """One line and one price in the plan; both logs are followed; the results come home as one; nothing is left."""
    nodes = (
        'test "$SKYPILOT_NUM_NODES" = 2; echo "I am $NODE_RANK of $PET_NNODES at $MASTER_ADDR:$MASTER_PORT"; ' + PART
    )
    laptop.write_job(JOB.replace("run: ", f"run: {json.dumps(nodes + 'python train.py')} # "))
    said = laptop.kedge("launch", "--yes", "--price", "1.50", "--budget", "5")
    assert re.search(r"\+ create 2 machines, toy-\S+-m1 to toy-\S+-m2: local x 2 at \$3\.00/h, all or none", said)
    assert "~ send code: " in said
    assert "(each of 2 machines)" in said
    assert re.search(r"\$3\.00/h, expected unknown, worst case \$0\.50 \(budget \$5\.00\)", said)
    (folder,) = (laptop.home / "kedge-results").glob("toy-*")
    assert re.search(r"^node 0 \| \S+ I am 0 of 2 at 127\.0\.0\.1:\d+$", said, re.MULTILINE)
    assert re.search(r"^node 1 \| \S+ I am 1 of 2 at 127\.0\.0\.1:\d+$", said, re.MULTILINE)
    assert len(re.findall(r"^node [01] \| \S+ \[kedge\] succeeded$", said, re.MULTILINE)) == 2
    assert re.findall(r"^~ wait until it is ready: toy-\S+-m(\d)  ", said, re.MULTILINE) == ["1", "2"]
    assert re.search(r"the network of node 1 \(127\.0\.0\.1\): \S+ Gbit/s to the head", said)
    assert (folder / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    assert parts(folder) == ["0", "1"] * 2
    assert "I am 0 of 2" in (folder / "run.log").read_text()
    assert re.search(r"I am 1 of 2.*succeeded\n$", (folder / "nodes" / "1" / "run.log").read_text(), re.DOTALL)
    assert not (folder / "nodes" / "1" / "output").exists()
    assert re.search(
        r"verified, of 2 machines; \d+ of them, at the same path as another machine's, are in nodes/", said
    )
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    ledger = laptop.ledger()
    (record,) = ledger.runs()
    assert (record.stage, record.outcome) == ("ended", "succeeded")
    assert [rental.until is not None for rental in ledger.rentals(record.run_id)] == [True, True]
    assert ledger.open_intents(record.run_id) == ()
    ledger.close()


def test_two_machines_are_looked_after_together(laptop: Laptop) -> None:
    """Status, sync, stop, start and teardown are of both; a flag may ask for another number than the job file."""
    laptop.write_job(JOB.replace("num_nodes: 2", "envs: {STEPS: 1000, PAUSE: 0.1}"))
    laptop.kedge("launch", "--yes", "--detach", "--num-nodes", "2")
    run = laptop.json("status")[0]["run"]

    def states() -> dict[str, str]:
        (status,) = laptop.json("status", run)
        return {report["machine"]: report["command"]["state"] for report in status["reports"]}

    both = {f"{run}-m1", f"{run}-m2"}
    wait_until(lambda: states() == dict.fromkeys(both, "running"))

    nodes = laptop.json("status", run)[0]["nodes"]
    assert [(each["node"], each["machine"], each["state"]) for each in nodes] == [
        (rank, machine, "ready") for rank, machine in enumerate(sorted(both))
    ]
    shown = laptop.kedge("status", run)
    assert "local (2 ready)" in shown
    for rank, machine in enumerate(sorted(both)):
        assert re.search(
            rf"^{rank} +{machine} +ready +running +127\.0\.0\.1 +(\S+.* old|-) +(CPU \d+%|-)$", shown, re.MULTILINE
        )
    (laptop.home / "added.txt").write_text("new")
    laptop.kedge("sync-code")
    sent = [path.parent.parent.parent.name for path in laptop.state.glob("machines/*/releases/*/added.txt")]
    assert set(sent) == both
    laptop.kedge("stop")
    assert states() == dict.fromkeys(both, "stopped")
    laptop.kedge("start")
    wait_until(lambda: states() == dict.fromkeys(both, "running"))
    laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []


def test_the_results_of_a_lost_machine_are_fetched_from_the_store(laptop: Laptop) -> None:
    """The other one still answers; then both resume from the whole; later, everything comes from the store."""
    shown = 'echo "has $(cat "$KEDGE_CHECKPOINT"/part* | tr -d "\\n")."; sleep 1000'
    commands = f"resume: {json.dumps(shown)}\n    run: {json.dumps(PART + 'sleep 1000')} # "
    laptop.write_job(JOB.replace("run: ", commands))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    store = Results(FolderBucket(laptop.state / "store"))
    wait_until(lambda: "checkpoints/all/part1" in {file.path for file in store.manifest(run, rank=1)})
    kill_machine(laptop, run, 2)
    said = laptop.kedge("fetch", run, "--to", "here")
    assert re.search(rf"verified, of 2 machines; .*; {run}-m2's from the object store", " ".join(said.split())), said
    assert parts(laptop.home / "here") == ["0", "1"] * 2
    laptop.kedge("resume", run, "--yes", "--detach")
    logs = [laptop.state / "machines" / f"{run}-m{number}" / "results" / "run.log" for number in (1, 3)]
    wait_until(lambda: all(" has 01.\n" in log.read_text() for log in logs))
    laptop.kedge("teardown", run, "--yes")
    folder = laptop.home / "kedge-results" / run
    assert parts(folder) == ["0", "1"] * 2
    shutil.rmtree(folder)
    assert "from the object store" in laptop.kedge("fetch", run)
    assert parts(folder) == ["0", "1"] * 2
    assert {path.name for path in (folder / "nodes").iterdir()} == {"1"}


def parts(folder: Path) -> list[str]:
    """Read what each machine has written, into a checkpoint and into its results."""
    names = [f"{name}{rank}" for name in ("checkpoints/all/part", "output/results/of") for rank in (0, 1)]
    return [(folder / name).read_text().strip() for name in names]


MODES = """
    modes:
      validate:
        run: >-
          echo "validate $NODE_RANK of $NNODES"; mkdir -p ckpt/all; echo $NODE_RANK > ckpt/all/part$NODE_RANK;
          [ "$NODE_RANK" = 0 ] || sleep 1
      fast: {run: 'echo "fast $NODE_RANK of $NNODES, resume <$KEDGE_RESUME>"'}
      fails: {run: 'exit $((3 * NODE_RANK))'}
      alone: {tasks: {only: {run: "true", nodes: head}}}
"""


def test_several_machines_go_through_modes_together(laptop: Laptop) -> None:
    """Each mode starts fresh on all of them; after a failure of one, none begins the next mode."""
    laptop.write_job(JOB.replace("    run: python train.py\n", "") + MODES)
    laptop.kedge("plan", "--modes", "validate,alone", code=2)
    assert "mode alone has tasks on the head only" in laptop.errors
    said = laptop.kedge("launch", "--modes", "validate,fast,fails,validate", "--yes", "--price", "1", code=1)
    assert re.search(r"validate 0 of 2\n(.*\n)*.*fast 0 of 2, resume <>\n", said)
    (status,) = laptop.json("status", "--all")
    assert [(mode["mode"], mode["outcome"]) for mode in status["modes"]] == [
        ("validate", "succeeded"),
        ("fast", "succeeded"),
        ("fails", "failed"),
    ]
    (folder,) = (laptop.home / "kedge-results").glob("toy-*")
    assert (folder / "checkpoints/all/part1").read_text() == "1\n"
    assert "fast 1 of 2, resume <>" in (folder / "nodes/1/2-fast/run.log").read_text()
    assert not list(folder.rglob("4-validate"))
    assert laptop.processes() == []


def test_a_followed_run_replaces_only_the_machine_that_it_loses(laptop: Laptop) -> None:
    """The head stays, although its job allows no restart; all go on from the head's newest checkpoint, to the end."""
    runs = "run: STEPS=100000 python train.py\n    resume: STEPS=1 python train.py"
    laptop.write_job(JOB.replace("run: python train.py", f"{runs}\n    envs: {{SAVE_EVERY: 20, PAUSE: 0.1}}"))
    launch = laptop.start("launch", "--yes", "--recover")
    wait_until(lambda: laptop.json("status"))
    (run,) = (each["run"] for each in laptop.json("status"))
    wait_until(lambda: shipped_step(laptop, run) > 0)
    kill_machine(laptop, run, 2)
    said, _ = launch.communicate(timeout=180)
    assert launch.returncode == 0, said
    assert f"machine {run}-m2 is gone; the machine is replaced" in said
    assert f"+ create machine {run}-m3: local at $0.00/h, to complete {run}-m1" in said, said
    ledger = laptop.ledger()
    assert [(each.id, each.rank) for each in ledger.machines(run)] == [
        (f"{run}-m1", 0),
        (f"{run}-m2", 1),
        (f"{run}-m3", 1),
    ]
    (record,) = ledger.runs()
    assert (record.stage, record.outcome) == ("ended", "succeeded")
    ledger.close()
    log = (laptop.home / "kedge-results" / run / "run.log").read_text()
    assert "ending this attempt: lost a machine: the connection to node 1 (127.0.0.1) is lost" in log
    assert re.search(r"going on from step \d+", log)
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
