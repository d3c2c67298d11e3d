"""Jobs with several tasks, as far as plans go: what is shown, what is refused before anything begins."""

from __future__ import annotations

import msgspec

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.pythons import find_job_python
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.job import LaunchSpec
from tests.support.laptop import Laptop

JOB = """
    name: pair
    tasks:
      fit:
        gpus: 0-6
        run: python fit.py
        cpus: {cpus}
      score: {{gpus: 7, after: fit, run: python score.py}}
    deadline: 10m
"""
RUN = "pair-1121-aaaa"


def record_run(laptop: Laptop) -> None:
    """Record a live run without a machine, as a launch that was killed early leaves it."""
    path = laptop.home / "kedge.yaml"
    job = read_job(path, mode=None, overrides=Overrides(), environ={}, providers=("local",))
    ledger = SqliteLedger(laptop.state, SystemClock())
    results = str(laptop.home / "kedge-results" / RUN)
    python = find_job_python(job, laptop.env)
    spec = LaunchSpec(run_id=RUN, provider="local", job=job, folder=str(laptop.home), results=results, python=python)
    ledger.open_run(spec, SystemClock().now())
    ledger.close()


def test_what_does_not_fit_on_the_machine_is_refused_with_its_line(laptop: Laptop) -> None:
    """A plan needs the offer for that; no machine is made."""
    laptop.write_job(JOB.format(cpus=1))
    said = laptop.kedge("plan")
    assert "start tasks fit, score: tmux" in said
    assert "task fit (GPUs 0-6, 1 core): python fit.py" in said
    assert "task score (GPU 7, after fit): python score.py" in said
    assert [task["name"] for task in laptop.json("plan")["takes"]["tasks"]] == ["fit", "score"]
    laptop.write_job(JOB.format(cpus=1000))
    for words in (("plan",), ("launch", "--yes")):
        laptop.kedge(*words, code=2)
        assert "kedge.yaml:7: `tasks.fit.cpus`: the tasks that run at the same time" in laptop.errors
    assert laptop.json("status") == []


def test_each_task_of_a_run_can_be_given_its_new_command(laptop: Laptop) -> None:
    """From the job file. `--command` would be that of one task, and tasks that the run doesn't have are refused."""
    laptop.write_job(JOB.format(cpus=1))
    record_run(laptop)
    laptop.kedge("resume", RUN, "--command", "x", "--dry-run", code=2)
    assert "has several tasks: fit, score" in laptop.errors
    laptop.write_job(JOB.format(cpus=1).replace("python fit.py", "python fast.py"))
    said = laptop.kedge("resume", RUN, "--reread", "--dry-run")
    assert "task fit: the command is changed from `python fit.py` to `python fast.py`" in said
    assert "score: the command" not in said
    laptop.write_job(JOB.format(cpus=1).replace("fit", "train"))
    laptop.kedge("resume", RUN, "--reread", "--dry-run", code=2)
    assert "has other tasks than run" in laptop.errors
    assert "train, score instead of fit, score" in laptop.errors
    laptop.write_job("{name: pair, run: x}")
    laptop.kedge("resume", RUN, "--reread", "--dry-run", code=2)
    assert "`run` instead of fit, score" in laptop.errors
    recorded = SqliteLedger(laptop.state, SystemClock())
    record = recorded.run(RUN)
    recorded.close()
    assert record is not None
    assert [task.run for task in record.spec.job.tasks] == ["python fit.py", "python score.py"]
    assert msgspec.json.decode(msgspec.json.encode(record.spec), type=LaunchSpec) == record.spec
