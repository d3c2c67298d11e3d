"""What a job takes of its user stands in its plan before anybody says yes."""

from __future__ import annotations

import io

from rich.console import Console

from orchestrator.cli import plans
from orchestrator.core.actions import AwaitMachine
from orchestrator.core.job import Job, LaunchSpec, Resources, VolumeSpec
from orchestrator.core.plan import Plan, plan_takes
from orchestrator.core.site import Site

JOB = Job(
    name="toy",
    secrets=("HF_TOKEN",),
    inherited=("WANDB_API_KEY",),
    outputs=("out",),
    checkpoints="ckpt",
    resources=Resources(volumes=(VolumeSpec(name="sets", target="disk", size_gib=1500),)),
    sites=(("aws", Site(proxy_command="sh -c 'something'")), ("do", Site(jump_host="me@bastion"))),
)


def shown(provider: str) -> str:
    """Print a plan as people see it."""
    spec = LaunchSpec(run_id="toy-1", provider=provider, job=JOB)
    plan = Plan(run_id="toy-1", actions=(AwaitMachine(machine_id="toy-1-m1"),), takes=plan_takes(spec))
    file = io.StringIO()
    plans.plan(Console(file=file, width=200), spec, plan)
    return file.getvalue()


def test_a_plan_names_what_the_job_is_given() -> None:
    """Variables by name, volumes with what becomes of them, and the folders that come home."""
    text = shown("aws")
    assert "secrets: HF_TOKEN\n" in text
    assert "from this shell: WANDB_API_KEY\n" in text
    assert "volumes: sets at disk (1,500 GiB, keep)\n" in text
    assert "outputs: out, ckpt\n" in text


def test_a_plan_shows_what_this_computer_would_run() -> None:
    """A proxy command of a stranger's job file runs on the laptop, not on a machine."""
    assert "this computer runs, to reach it: sh -c 'something'\n" in shown("aws")
    assert "reached through: me@bastion\n" in shown("do")
    assert "reach" not in shown("local")


def test_a_plan_without_a_launch_takes_nothing() -> None:
    """A teardown gives nothing away."""
    assert plans.plan_as_data(Plan(run_id="toy-1", actions=()))["takes"] is None
