"""A laptop whose address has changed since its machines were opened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.root import App
from orchestrator.cli.terminal.openssh import run_in_terminal
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine
from tests.adapters.aws.world import HOME, RUN, AwsWorld
from tests.adapters.remote.sshd import short_folder
from tests.support.ports import free_port

M1 = f"{RUN}-m1"
AWAY = "198.51.100.9/32"


def open_to(aws: AwsWorld) -> list[str]:
    """List the addresses that may reach the run's machines."""
    groups = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag:kedge-run", "Values": [RUN]}])
    (group,) = groups["SecurityGroups"]
    return [each["CidrIp"] for rule in group["IpPermissions"] for each in rule["IpRanges"]]


def test_a_machine_is_opened_to_the_current_address_only(aws: AwsWorld) -> None:
    """It takes two calls, and none the next time."""
    aws.provider().create(aws.order())
    aws.api.reset_calls()
    assert aws.provider().reopen(M1, AWAY)
    assert aws.actions() == Counter(["AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"])
    assert not aws.provider().reopen(M1, AWAY)
    assert aws.actions().total() == 2
    assert open_to(aws) == [AWAY]


def test_a_machine_is_opened_to_an_ipv6_address(aws: AwsWorld) -> None:
    """EC2 lists IPv6 ranges separately, and checks their descriptions just as strictly."""
    aws.provider().create(aws.order())
    assert aws.provider().reopen(M1, "2001:db8::7/128")
    (group,) = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag:kedge-run", "Values": [RUN]}])[
        "SecurityGroups"
    ]
    assert [each["CidrIpv6"] for rule in group["IpPermissions"] for each in rule["Ipv6Ranges"]] == ["2001:db8::7/128"]
    assert open_to(aws) == []


def test_an_address_that_has_not_changed_costs_no_call(aws: AwsWorld) -> None:
    """The firewall is not the only reason why a machine may not answer."""
    aws.provider().create(aws.order())
    aws.api.reset_calls()
    assert not aws.provider().reopen(M1, HOME)
    assert aws.actions() == Counter()


def test_a_machine_of_another_laptop_is_not_opened_to_this_one(aws: AwsWorld) -> None:
    """This laptop does not have its host key, so it could not connect."""
    aws.provider().create(aws.order())
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    assert not other.provider().reopen(M1, AWAY)
    assert open_to(aws) == [HOME]


def test_a_range_of_several_addresses_stays_until_the_user_gives_another(aws: AwsWorld) -> None:
    """The user chose the range, so kedge does not even look up the computer's current address."""
    aws.provider().create(aws.order(ssh_from="198.51.100.0/24"))
    aws.api.reset_calls()
    assert not aws.provider().reopen(M1, "")
    assert aws.actions() == Counter()
    assert open_to(aws) == ["198.51.100.0/24"]
    assert aws.provider().reopen(M1, "203.0.113.0/28")
    assert open_to(aws) == ["203.0.113.0/28"]


def test_a_machine_is_never_reopened_to_everybody(aws: AwsWorld) -> None:
    """The same ranges are refused as at its creation."""
    aws.provider().create(aws.order())
    with pytest.raises(BadRequestError, match="everybody"):
        aws.provider().reopen(M1, "0.0.0.0/0")
    assert open_to(aws) == [HOME]


def test_a_deleted_firewall_is_reported(aws: AwsWorld) -> None:
    """A call that failed does not change the laptop's record."""
    aws.provider().create(aws.order())
    aws.api.fail_next("AuthorizeSecurityGroupIngress", "InvalidGroup.NotFound", status=400)
    with pytest.raises(KedgeError, match="can't be opened"):
        aws.provider().reopen(M1, AWAY)
    assert aws.provider().reopen(M1, AWAY)


@dataclass(frozen=True)
class Desk:
    """The next command of a laptop whose machine rejects connections."""

    app: App
    machine: Machine

    def record(self, machine: Machine, ssh_from: str = "") -> None:
        """Write the machine to the ledger, with a run that was launched for a range of addresses."""
        spec = LaunchSpec(run_id=RUN, provider="aws", job=Job(name="digits"), ssh_from=ssh_from)
        self.app.ledger.open_run(spec, datetime.now(UTC))
        self.app.ledger.put_machine(machine)

    def call(self) -> None:
        """Connect to the machine as every command does; expect that it does not answer."""
        with pytest.raises(UnreachableError, match="doesn't answer"):
            self.app.remote(self.machine)


@pytest.fixture
def desk(aws: AwsWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A command that runs at another address."""
    machine = aws.provider().create(aws.order())
    with short_folder() as runtime:
        monkeypatch.setenv("KEDGE_STATE_DIR", str(aws.folder))
        monkeypatch.setenv("KEDGE_RUNTIME_DIR", str(runtime))
        app = App(replace(read_settings(), ssh_from=AWAY))
        yield Desk(app=app, machine=_at_a_closed_port(aws, machine))
        app.ledger.close()


def _at_a_closed_port(aws: AwsWorld, machine: Machine) -> Machine:
    """Return the machine with a closed port, as a firewall would close it. The box has no firewall."""
    found = aws.provider().describe(machine.id)
    assert found is not None
    assert found.address is not None
    return replace(found, address=replace(found.address, host="127.0.0.1", port=free_port()))


@pytest.mark.parametrize("in_ledger", ["with its address", "without one, while it boots"])
def test_a_command_that_cannot_connect_reopens_its_machine(aws: AwsWorld, desk: Desk, in_ledger: str) -> None:
    """App and engine connect in the same way, which opens the firewall if the machine does not answer."""
    desk.record(desk.machine if "with its" in in_ledger else replace(desk.machine, address=None))
    desk.call()
    assert open_to(aws) == [AWAY]


def test_a_terminal_that_cannot_connect_reopens_its_machine(aws: AwsWorld, desk: Desk) -> None:
    """`ssh`, `exec` and `attach` hand over to the OpenSSH client, which knows nothing of firewalls."""
    desk.record(desk.machine)
    assert run_in_terminal(desk.app, desk.machine, ["true"], tty=False) == 255
    assert open_to(aws) == [AWAY]


def test_a_range_that_the_user_gave_is_remembered_and_a_later_one_wins(aws: AwsWorld, desk: Desk) -> None:
    """The run's range applies to every command that gives none."""
    desk.record(desk.machine, ssh_from="192.0.2.0/24")
    desk.call()
    assert open_to(aws) == [AWAY]
    desk.app.settings = replace(desk.app.settings, ssh_from="")
    desk.app.let_in(desk.app.named_run(RUN))
    assert open_to(aws) == ["192.0.2.0/24"]
