"""A job with two tasks, launched, lost and resumed."""

from __future__ import annotations

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.e2e.runs import kill_machine
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: pair
    workdir: .
    outputs: [results]
    envs: {WHO: nobody}
    supervisor: {kind: nohup, restarts: 0}
    tasks:
      fit:
        gpus: 0-6
        cpus: 1
        envs: {WHO: fit}
        run: mkdir -p results; echo $WHO $OMP_NUM_THREADS >> results/said.txt
      score:
        gpus: 7
        after: fit
        run: |
          mkdir -p results; echo $WHO >> results/said.txt
          [ -e go ] || exec sleep 1000
    deadline: 10m
"""


def test_a_task_that_has_succeeded_is_not_run_again_on_the_next_machine(laptop: Laptop) -> None:
    """The other one goes on there. Each has its results in a folder of its own, on the laptop too."""
    laptop.write_job(JOB)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    said = laptop.state / "machines" / f"{run}-m1" / "results" / "score" / "output" / "results" / "said.txt"
    wait_until(said.exists)
    assert "all tasks run already, or have succeeded" in laptop.kedge("start")
    store = Results(FolderBucket(laptop.state / "store"))
    wait_until(lambda: any(file.path.startswith("score/output") for file in store.manifest(run)))
    kill_machine(laptop, run)
    (laptop.home / "go").touch()
    shown = laptop.kedge("resume", run, "--yes")
    assert "go on with task score from the newest checkpoint: nohup" in shown
    assert "not started again, since they have succeeded: fit" in shown
    home = laptop.home / "kedge-results" / run
    assert (home / "fit" / "output" / "results" / "said.txt").read_text() == "fit 1\n"
    assert (home / "score" / "output" / "results" / "said.txt").read_text() == "nobody\nnobody\n"
    assert laptop.json("status", run)[0]["state"] == "succeeded"
