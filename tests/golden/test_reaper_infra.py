"""The files that run the reaper on a schedule are valid, and what they call exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.cli.command_line import flags_of
from orchestrator.cli.program import namespace

FREE_MINUTES = 2000
UNITS = ("kedge-reap.service", "kedge-reap.timer")


def workflow() -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    return dict(yaml.safe_load(resource("infra", "reaper", "github-workflow.yaml").read_text()))


def commands() -> list[str]:
    """Return the command line of each way to run the reaper."""
    (job,) = workflow()["jobs"].values()
    service = resource("infra", "reaper", "kedge-reap.service").read_text()
    cron = resource("infra", "reaper", "crontab").read_text().splitlines()
    return [
        *(step["run"] for step in job["steps"] if "kedge reap" in step.get("run", "")),
        *(line.removeprefix("ExecStart=") for line in service.splitlines() if line.startswith("ExecStart=")),
        *(line.rpartition("exec ")[2] for line in cron if "kedge reap" in line),
    ]


@pytest.mark.parametrize("number", range(3))
def test_the_command_of_each_schedule_is_one_that_kedge_knows(number: int) -> None:
    """Every flag is a flag of `reap`; it doesn't ask, ends other computers' machines, and insists on answers."""
    program, task, *words = shlex.split(commands()[number])
    assert program.rpartition("/")[2] == "kedge"
    flags = set(flags_of(namespace[task]).flags)
    assert {"--all", "--yes", "--provider"} <= {word for word in words if word.startswith("--")} <= flags


def test_each_schedule_names_its_providers_in_one_variable() -> None:
    """Without a default, which would leave out the others; `kedge reap` refuses to name none."""
    words = [shlex.split(command)[-1] for command in commands()]
    assert words == ["$PROVIDERS", "${KEDGE_REAP_PROVIDERS}", "$KEDGE_REAP_PROVIDERS"]
    (job,) = workflow()["jobs"].values()
    assert job["steps"][-1]["env"]["PROVIDERS"] == "${{ vars.KEDGE_REAP_PROVIDERS }}"


def test_every_provider_that_needs_a_reaper_has_its_token_in_each_schedule() -> None:
    """And in the page that says how to set it up."""
    billing = {name: entry.sign_in for name, entry in PROVIDERS.items() if entry.bills_when_off and entry.sign_in}
    assert {"do", "amd", "lambda"} <= set(billing)
    (job,) = workflow()["jobs"].values()
    service = resource("infra", "reaper", "kedge-reap.service").read_text()
    page = (resource("infra", "reaper").parents[1] / "docs" / "reaper.md").read_text()
    for name, sign_in in billing.items():
        token = sign_in.variables[0]
        assert job["steps"][-1]["env"][token] == f"${{{{ secrets.{token} }}}}"
        assert f"{token}=..." in service
        assert f"| `{name}` | `{token}` |" in page


def test_the_workflow_runs_hourly_with_tokens_from_secrets() -> None:
    """It may read the repository, and nothing else of it; no token stands in the file."""
    read = workflow()
    assert rounds_a_day() == 24
    (job,) = read["jobs"].values()
    assert (read["permissions"], job["permissions"]) == ({}, {"contents": "read"})
    env = job["steps"][-1]["env"]
    tokens = [value for name, value in env.items() if name.endswith(("TOKEN", "KEY"))]
    assert len(tokens) == 3
    assert all(value.startswith("${{ secrets.") for value in tokens)


def test_what_the_workflow_runs_beside_the_tokens_is_pinned() -> None:
    """Actions by commit, packages by hash and without building any; tokens are in the last step alone."""
    (job,) = workflow()["jobs"].values()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in used), used
    *before, last = job["steps"]
    assert "secrets." not in str((before, {**job, "steps": []}))
    assert "pip" not in last["run"]
    installs = [line for step in before for line in step.get("run", "").splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert {"--require-hashes", "--only-binary", "locks/kedge.txt"} <= set(installs[0].split())
    assert {"--no-deps", "--no-build-isolation"} <= set(installs[1].split())
    assert (resource("infra").parent / "locks" / "kedge.txt").is_file()


def test_a_month_of_rounds_fits_into_githubs_free_minutes() -> None:
    """Each counts as a minute at least, and a private repository has 2,000 a month: the page says what is used.

    fact: github-free-minutes
    """
    minutes = rounds_a_day() * 30
    assert minutes <= FREE_MINUTES / 2
    page = (resource("infra", "reaper").parents[1] / "docs" / "reaper.md").read_text()
    assert f"take {minutes} of them" in page
    assert f"{FREE_MINUTES:,} free minutes" in page
    assert f"{4 * minutes:,}" in page
    assert "the smallest droplet (`s-1vcpu-512mb-10gb`" in " ".join(page.split())


def rounds_a_day() -> int:
    """Count the rounds of the workflow's schedule, which names one minute of each hour."""
    (entry,) = workflow()[True]["schedule"]  # type: ignore[index]
    minute, *rest = entry["cron"].split()
    assert rest == ["*"] * 4
    assert 0 < int(minute) < 60
    return 24


def test_systemd_accepts_the_reapers_units(tmp_path: Path) -> None:
    """Checked by `systemd-analyze verify`, with a program where kedge is to be installed."""
    for name in UNITS:
        text = resource("infra", "reaper", name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/kedge-reaper/bin/kedge", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
