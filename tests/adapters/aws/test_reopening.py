"""A laptop that has moved since its machines were opened to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.adapters.settings import read_settings
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine
from tests.adapters.aws.world import HOME, RUN, AwsWorld
from tests.adapters.remote.sshd import free_port, short_folder

M1 = f"{RUN}-m1"
AWAY = "198.51.100.9/32"


def open_to(aws: AwsWorld) -> list[str]:
    """List who may reach the run's machines."""
    groups = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag:kedge-run", "Values": [RUN]}])
    (group,) = groups["SecurityGroups"]
    return [each["CidrIp"] for rule in group["IpPermissions"] for each in rule["IpRanges"]]


def test_a_machine_is_opened_to_the_present_address_alone(aws: AwsWorld) -> None:
    """Two calls, and none the next time."""
    aws.provider().create(aws.order())
    aws.ssh_from = AWAY
    aws.api.reset_calls()
    assert aws.provider().reopen(M1)
    assert aws.actions() == Counter(["AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"])
    assert not aws.provider().reopen(M1)
    assert aws.actions().total() == 2
    assert open_to(aws) == [AWAY]


def test_an_address_that_has_not_changed_costs_no_call(aws: AwsWorld) -> None:
    """A machine that doesn't answer isn't always the firewall's fault."""
    aws.provider().create(aws.order())
    aws.api.reset_calls()
    assert not aws.provider().reopen(M1)
    assert aws.actions() == Counter()


def test_a_machine_of_another_laptop_is_not_opened_to_this_one(aws: AwsWorld) -> None:
    """Its host key isn't known here: there is nothing to reach."""
    aws.provider().create(aws.order())
    other = AwsWorld(api=aws.api, folder=aws.folder / "other", ssh_from=AWAY)
    assert not other.provider().reopen(M1)
    assert open_to(aws) == [HOME]


def test_a_machine_is_never_reopened_to_everybody(aws: AwsWorld) -> None:
    """The same addresses are refused as at its creation."""
    aws.provider().create(aws.order())
    aws.ssh_from = "0.0.0.0/0"
    with pytest.raises(BadRequestError, match="everybody"):
        aws.provider().reopen(M1)
    assert open_to(aws) == [HOME]


def test_a_firewall_that_is_gone_says_so(aws: AwsWorld) -> None:
    """What the laptop remembers of it isn't changed by a call that failed."""
    aws.provider().create(aws.order())
    aws.ssh_from = AWAY
    aws.api.fail_next("AuthorizeSecurityGroupIngress", "InvalidGroup.NotFound", status=400)
    with pytest.raises(KedgeError, match="can't be opened"):
        aws.provider().reopen(M1)
    assert aws.provider().reopen(M1)


@pytest.mark.parametrize("in_ledger", ["with its address", "without one, while it boots"])
def test_a_command_that_is_not_let_in_reopens_its_machine(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch, in_ledger: str
) -> None:
    """App and engine use the same way in: where nobody answers, the machine's firewall is looked after."""
    machine = aws.provider().create(aws.order())
    with short_folder() as runtime:
        app = _laptop(aws.folder, runtime, monkeypatch)
        reached = _at_a_closed_port(aws, machine)
        app.ledger.open_run(LaunchSpec(run_id=RUN, provider="aws", job=Job(name="digits")), datetime.now(UTC))
        app.ledger.put_machine(reached if "with its" in in_ledger else replace(reached, address=None))
        with pytest.raises(UnreachableError, match="doesn't answer"):
            app.remote(reached)
        app.ledger.close()
    assert open_to(aws) == [AWAY]


def _laptop(state: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """Start the next command, at another address."""
    monkeypatch.setenv("KEDGE_STATE_DIR", str(state))
    monkeypatch.setenv("KEDGE_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("KEDGE_SSH_FROM", AWAY)
    return App(read_settings())


def _at_a_closed_port(aws: AwsWorld, machine: Machine) -> Machine:
    """Put the machine where a firewall turns callers away: the box's own has none."""
    found = aws.provider().describe(machine.id)
    assert found is not None
    assert found.address is not None
    return replace(found, address=replace(found.address, host="127.0.0.1", port=free_port()))
