"""A plan shows everything a job takes from its user, before the user agrees."""

from __future__ import annotations

import io

from msgspec.structs import replace
from rich.console import Console

from orchestrator.cli.drawing import plans
from orchestrator.core.actions import AwaitMachine
from orchestrator.core.job import Job, LaunchSpec, Resources, VolumeSpec
from orchestrator.core.plan import Plan, plan_takes
from orchestrator.core.task import Task
from orchestrator.core.values.interpreter import JobPython, PythonOrigin
from orchestrator.core.values.site import Site

JOB = Job(
    name="toy",
    secrets=("HF_TOKEN",),
    inherited=("WANDB_API_KEY",),
    tasks=(Task(run="train", outputs=("out",), checkpoints="ckpt"),),
    resources=Resources(volumes=(VolumeSpec(name="sets", target="disk", size_gib=1500),)),
    sites=(("aws", Site(proxy_command="sh -c 'something'")), ("do", Site(jump_host="me@bastion"))),
)


PYTHON = JobPython(
    path="/home/me/.venv/bin/python", version="3.12.3", origin=PythonOrigin.ACTIVE, environment="/home/me/.venv"
)


def shown(provider: str, job: Job = JOB, python: JobPython | None = None) -> str:
    """Print a plan as people see it."""
    spec = LaunchSpec(run_id="toy-1", provider=provider, job=job, python=python)
    plan = Plan(run_id="toy-1", actions=(AwaitMachine(machine_id="toy-1-m1"),), takes=plan_takes(spec))
    file = io.StringIO()
    plans.print_plan(Console(file=file, width=200), spec, plan)
    return file.getvalue()


def test_a_plan_names_what_the_job_is_given() -> None:
    """Variables by name, volumes with what becomes of them, and the folders that come home."""
    text = shown("aws")
    assert "secrets: HF_TOKEN\n" in text
    assert "from this shell: WANDB_API_KEY\n" in text
    assert "volumes: sets at disk (1,500 GiB, keep)\n" in text
    assert "outputs: out, ckpt\n" in text


def test_a_plan_names_its_tasks() -> None:
    """With what each has of the machine, when it starts, and what it runs; a terminal's codes are removed."""
    tasks = (
        Task(name="fit", run="# all GPUs\ntorchrun fit.py", gpus=(0, 1, 2), outputs=("out",), checkpoints="ckpt"),
        Task(name="score", run="x\x1b[31m", gpus=(3,), cpus=1, after="fit"),
        Task(name="rest", run="a\nb\nc", gpus=(4, 6), cpus=4),
        Task(name="free", run="python free.py", envs=(("TOKEN", "hunter2"),)),
    )
    text = shown("aws", replace(JOB, tasks=tasks))
    assert "task fit (GPUs 0-2, results in out, ckpt): torchrun fit.py\n" in text
    assert "task score (GPU 3, 1 core, after fit): x\n" in text
    assert "task rest (GPUs 4,6, 4 cores): a, and 2 more lines\n" in text
    assert "task free: python free.py\n" in text
    assert "outputs: " not in text
    spec = LaunchSpec(run_id="toy-1", provider="aws", job=replace(JOB, tasks=tasks))
    takes = plans.plan_as_data(Plan(run_id="toy-1", actions=(), takes=plan_takes(spec)))["takes"]
    assert "hunter2" not in text + repr(takes)
    assert [(task["name"], task["gpus"], task["after"]) for task in takes["tasks"]] == [
        ("fit", (0, 1, 2), ""),
        ("score", (3,), "fit"),
        ("rest", (4, 6), ""),
        ("free", None, ""),
    ]


def test_a_plan_shows_what_setup_runs_and_which_python() -> None:
    """A long script by its first line and its length; on a cloud, what is known before the machine exists."""
    job = replace(
        JOB, setup="# once\npip install -r requirements.txt\n\nmake data\nmake\n", tasks=(Task(run="python train.py"),)
    )
    text = shown("local", job, PYTHON)
    assert "setup: pip install -r requirements.txt, and 2 more lines\n" in text
    assert "python: 3.12.3, an overlay on /home/me/.venv (active; only read)\n" in text
    assert "python: an overlay on the machine's own, the one whose torch sees the GPUs" in shown("aws", job)
    assert "python" not in shown("aws", replace(JOB, tasks=())), "nothing runs"


def test_the_json_of_a_plan_has_setup_and_python_too() -> None:
    """`setup` whole, and the Python as a text and in parts."""
    spec = LaunchSpec(
        run_id="toy-1", provider="local", job=replace(JOB, setup="a\nb", tasks=(Task(run="c"),)), python=PYTHON
    )
    takes = plans.plan_as_data(Plan(run_id="toy-1", actions=(), takes=plan_takes(spec)))["takes"]
    assert takes["setup"] == "a\nb"
    assert takes["python"] == PYTHON.describe()
    assert takes["overlaid"] == {
        "path": "/home/me/.venv/bin/python",
        "version": "3.12.3",
        "origin": "active",
        "environment": "/home/me/.venv",
        "has_torch": False,
    }


def test_a_plan_shows_what_this_computer_would_run() -> None:
    """A proxy command of a stranger's job file runs on the laptop, not on a machine."""
    assert "this computer runs, to reach it: sh -c 'something'\n" in shown("aws")
    assert "reached through: me@bastion\n" in shown("do")
    assert "reach" not in shown("local")


def test_a_plan_without_a_launch_takes_nothing() -> None:
    """A teardown gives nothing away."""
    assert plans.plan_as_data(Plan(run_id="toy-1", actions=()))["takes"] is None
