"""Checks an account as a fresh laptop does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import Context, open_probes
from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from orchestrator.core.checkup import Check, Verdict, run_probes
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.operators import make_operator, operator_policy
from tests.cloudbox.digitalocean.box import DigitalOceanBox

T4 = Resources(accelerators=Accelerators(name="T4"), regions=(REGION,))
H100 = Resources(accelerators=Accelerators(name="H100"))
MI300X = Resources(accelerators=Accelerators(name="MI300X"))


Checks = Mapping[str, Check]


def check_up(folder: Path, provider: str, environ: Mapping[str, str], wish: Resources, **changes: object) -> Checks:
    """Check an account, as a fresh laptop does; each line with a problem has its fix."""
    context = Context(
        state_dir=folder, runtime_dir=folder, clock=SystemClock(), key_file=folder / "key", environ=dict(environ)
    )
    probes = open_probes(provider, replace(context, **changes), wish)  # type: ignore[arg-type]
    checks = {check.name: check for check in run_probes(probes)}
    assert [name for name, check in checks.items() if check.verdict is not Verdict.OK and not check.fix] == []
    return checks


def verdicts(checks: Checks) -> dict[str, str]:
    """Return the problems."""
    return {name: str(check.verdict) for name, check in checks.items() if check.verdict is not Verdict.OK}


def work_as(api: Box, monkeypatch: pytest.MonkeyPatch, without: str = "") -> None:
    for name, value in {**api.env, **make_operator(api, operator_policy(without=without))}.items():
        monkeypatch.setenv(name, value)
    api.enforce_iam()


DO_SCOPES = (
    *("account:read", "actions:read", "regions:read", "sizes:read", "image:read"),
    *(f"{kind}:{verb}" for kind in ("droplet", "ssh_key", "tag", "firewall") for verb in ("read", "create", "delete")),
)


def do_environ(do: DigitalOceanBox, *, without: str = "") -> dict[str, str]:
    """Return the variables of a user whose token has the documented scopes, except one."""
    token = do.make_token(*(scope for scope in DO_SCOPES if scope != without))
    return {
        **do.environ,
        "DIGITALOCEAN_ACCESS_TOKEN": token,
        "KEDGE_DIGITALOCEAN_DELETE_TOKEN": do.make_token(*SCOPES),
    }
