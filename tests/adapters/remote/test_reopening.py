"""When kedge asks the provider to open the firewall for this computer again, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import pytest

from orchestrator.adapters.ssh.failures import unanswered, wrong_host_key
from orchestrator.adapters.ssh.reopening import ReopeningConnector
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Remote
from tests.support.clocks import FakeClock

ADDRESS = SshAddress(host="203.0.113.5", port=22, user="kedge", host_key="ssh-ed25519 A", key_file="/k")
OTHER = SshAddress(host="203.0.113.6", port=22, user="kedge", host_key="ssh-ed25519 B", key_file="/k")
CONNECTION = cast("Remote", object())


@dataclass
class FakeConnector:
    """Connects if the firewall is open."""

    firewall: Firewall
    error: UnreachableError = field(default_factory=lambda: unanswered(ADDRESS, "timed out"))
    calls: int = 0

    def connect(self, address: SshAddress) -> Remote:
        assert address.port == 22
        self.calls += 1
        if not self.firewall.is_open:
            raise self.error
        return CONNECTION

    def reaches(self, address: SshAddress) -> bool:
        assert address.port == 22
        return self.firewall.is_open

    def opened(self, address: SshAddress) -> Remote | None:
        raise AssertionError(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        return ["ssh", *options, address.host]

    def forget(self, address: SshAddress) -> None:
        raise AssertionError(address)

    def close(self) -> None:
        raise AssertionError


@dataclass
class Firewall:
    """A provider's firewall, which counts how often it is asked to open."""

    is_open: bool = False
    opens: bool = False
    error: KedgeError | None = None
    asked: int = 0

    def reopen(self, address: SshAddress) -> bool:
        assert address in (ADDRESS, OTHER)
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.is_open = self.is_open or self.opens
        return self.opens


def make(firewall: Firewall) -> tuple[ReopeningConnector, FakeConnector, FakeClock]:
    inner, clock = FakeConnector(firewall), FakeClock()
    return ReopeningConnector(inner, firewall.reopen, clock), inner, clock


def test_a_computer_with_a_new_address_is_let_in_and_tries_again() -> None:
    """One request to the provider, one more attempt."""
    firewall = Firewall(opens=True)
    connector, inner, _ = make(firewall)
    assert connector.connect(ADDRESS) is CONNECTION
    assert (firewall.asked, inner.calls) == (1, 2)


def test_the_provider_is_not_asked_if_the_machine_answers() -> None:
    """A command that gets in doesn't touch the firewall."""
    firewall = Firewall(is_open=True)
    connector, inner, _ = make(firewall)
    assert connector.connect(ADDRESS) is CONNECTION
    assert (firewall.asked, inner.calls) == (0, 1)


def test_nothing_is_retried_if_nothing_has_changed() -> None:
    """A machine that is down stays down."""
    firewall = Firewall()
    connector, inner, _ = make(firewall)
    with pytest.raises(UnreachableError, match="doesn't answer"):
        connector.connect(ADDRESS)
    assert (firewall.asked, inner.calls) == (1, 1)


def test_the_provider_is_asked_once_a_minute_about_a_booting_machine() -> None:
    """It is tried every few seconds. Another machine has its own minute."""
    firewall = Firewall()
    connector, _, clock = make(firewall)
    for _ in range(40):
        with pytest.raises(UnreachableError):
            connector.connect(ADDRESS)
        clock.sleep(timedelta(seconds=3))
    assert firewall.asked == 2
    with pytest.raises(UnreachableError):
        connector.connect(OTHER)
    assert firewall.asked == 3


def test_a_wrong_host_key_does_not_open_the_firewall() -> None:
    """A wrong host key is an answer, so the firewall is open already."""
    firewall = Firewall(opens=True)
    connector, inner, _ = make(firewall)
    inner.error = wrong_host_key(ADDRESS)
    with pytest.raises(UnreachableError, match="host key"):
        connector.connect(ADDRESS)
    assert firewall.asked == 0


def test_an_error_while_opening_does_not_hide_the_first_error() -> None:
    """The user is told that the machine doesn't answer."""
    firewall = Firewall(error=KedgeError("the address can't be found out"))
    connector, _, _ = make(firewall)
    with pytest.raises(UnreachableError, match=r"203\.0\.113\.5:22 doesn't answer"):
        connector.connect(ADDRESS)


def test_the_argv_of_clients_within_a_command_is_unchanged() -> None:
    """They use a connection that is open already."""
    firewall = Firewall()
    connector, _, _ = make(firewall)
    assert connector.ssh_argv(ADDRESS, "-t") == ["ssh", "-t", "203.0.113.5"]
    assert firewall.asked == 0


@pytest.mark.parametrize(
    ("is_open", "opens", "asked"),
    [(False, True, 1), (False, False, 1), (True, False, 0)],
    ids=["it lets this computer in", "nothing has changed", "it is open"],
)
def test_a_terminal_is_let_in_before_its_client_connects(is_open: bool, opens: bool, asked: int) -> None:
    """The client reports later problems itself. If the machine answers, the provider isn't asked."""
    firewall = Firewall(is_open=is_open, opens=opens)
    connector, inner, _ = make(firewall)
    assert connector.terminal_argv(ADDRESS, "-t") == ["ssh", "-t", "203.0.113.5"]
    assert (firewall.asked, inner.calls) == (asked, 0)


def test_a_terminal_opens_although_the_firewall_cannot_be_opened() -> None:
    """The client tells the user that the machine doesn't answer."""
    connector, _, _ = make(Firewall(error=KedgeError("the address can't be found out")))
    assert connector.terminal_argv(ADDRESS) == ["ssh", "203.0.113.5"]
