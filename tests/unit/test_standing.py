"""Status says that a machine ends by itself only where it does."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.root import App
from orchestrator.cli.drawing import plans
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.task import Task
from orchestrator.engine.run_progress import RunProgress

RUN = "digits-1"
TOKENS = {"DIGITALOCEAN_ACCESS_TOKEN": "dop_v1_abc", "AMD_DEVCLOUD_TOKEN": "dop_v1_abc"}
DELETING = {"KEDGE_DIGITALOCEAN_DELETE_TOKEN": "dop_v1_def", "KEDGE_AMD_DELETE_TOKEN": "dop_v1_def"}

Say = Callable[[Console, App, LaunchSpec], None]


def stands(console: Console, app: App, spec: LaunchSpec) -> None:
    plans.print_remaining(console, app, spec)


def concludes(console: Console, app: App, spec: LaunchSpec) -> None:
    plans.print_conclusion(console, app, spec, RunProgress(), [])


def said(folder: Path, provider: str, environ: dict[str, str], say: Say) -> str:
    """Say how a run stands that has a machine with an hour left."""
    app = App(read_settings({"KEDGE_STATE_DIR": str(folder), "KEDGE_RUNTIME_DIR": str(folder / "run"), **environ}))
    spec = LaunchSpec(run_id=RUN, provider=provider, job=Job(name="digits", tasks=(Task(run="train"),)))
    now = app.clock.now()
    app.ledger.open_run(spec, now)
    machine = Machine(
        id=f"{RUN}-m1",
        run_id=RUN,
        provider=provider,
        provider_id="7",
        state=MachineState.READY,
        root="/opt/kedge",
        created_at=now,
        deadline_at=now + timedelta(hours=1),
        usd_per_hour=Decimal("1.99"),
    )
    app.ledger.put_machine(machine)
    console = Console(file=io.StringIO(), soft_wrap=True)
    with console.capture() as captured:
        say(console, app, spec)
    app.ledger.close()
    return captured.get()


@pytest.mark.parametrize("say", [stands, concludes])
@pytest.mark.parametrize("provider", ["do", "amd"])
def test_a_droplet_without_a_token_is_not_said_to_end_by_itself(tmp_path: Path, provider: str, say: Say) -> None:
    """It powers off and bills on: a user who reads otherwise closes the laptop."""
    text = said(tmp_path, provider, TOKENS, say)
    assert "gone by itself" not in text
    assert "powers off and bills on" in text


@pytest.mark.parametrize("say", [stands, concludes])
@pytest.mark.parametrize("provider", ["do", "amd", "aws"])
def test_a_machine_that_ends_by_itself_is_said_to(tmp_path: Path, provider: str, say: Say) -> None:
    """With a token that deletes it, or where powering off ends the bill."""
    assert re.search(r"gone by itself in (1h|59m)", said(tmp_path, provider, TOKENS | DELETING, say))
