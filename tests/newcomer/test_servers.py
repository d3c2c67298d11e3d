"""What kedge's set-up installs opens no port of the computer, not after its next boot either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.nspawn.needs import prepare_machines
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.newcomer.desk import Desk, switched_on

INSTALL = "sudo bash /opt/setup/install.sh openssh-server openssh-client rsync tmux"
LISTENS = "ss --listening --tcp --numeric --no-header | grep -v 127.0.0"
ENABLED = "systemctl is-enabled ssh.service ssh.socket rsync.service || true"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A computer with a network of its own, that reaches nothing: apt has its packages in its cache."""
    if reason := prepare_machines():
        pytest.skip(reason)
    setup = f"--bind-ro={REPOSITORY / 'infra' / 'setup'}:/opt/setup"
    with switched_on(tmp_path / "desk", "--private-network", setup) as desk:
        desk.root("""echo 'Acquire::Retries "0";' >/etc/apt/apt.conf.d/90-offline""")
        yield desk


def test_the_setup_installs_sshd_and_opens_no_port(desk: Desk) -> None:
    """Its program is there; neither now nor after a reboot nor after an upgrade of it does anything listen."""
    done = desk.type(INSTALL)
    assert done.returncode == 0, done.stdout
    for _ in range(2):
        assert desk.root("/usr/sbin/sshd -V 2>&1 | grep -o OpenSSH_ ; dpkg -s tmux | grep Status").startswith(
            "OpenSSH_"
        )
        assert desk.root(f"{LISTENS} || true") == ""
        assert desk.root(ENABLED).split() == ["disabled"] * 3
        # As an upgrade does: Debian's scripts look whether it was enabled before.
        desk.root("DEBIAN_FRONTEND=noninteractive apt-get install -qq --reinstall openssh-server")
        desk.reboot()
    assert desk.root("ls /usr/sbin/policy-rc.d /run/systemd/system-preset 2>&1 || true").count("No such file") == 2
    desk.root("systemctl enable --now ssh.service")
    assert ":22" in desk.root(LISTENS), "whoever wants the service enables it, as always"


def test_an_sshd_that_the_user_had_stays_as_it_was(desk: Desk) -> None:
    """Set-up installs other packages beside it, and it listens before, afterwards, and after a reboot."""
    desk.root("DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends openssh-server")
    assert ":22" in desk.root(LISTENS)
    done = desk.type(INSTALL)
    assert done.returncode == 0, done.stdout
    assert desk.root(ENABLED).split() == ["enabled", "disabled", "disabled"]
    assert ":22" in desk.root(LISTENS)
    desk.reboot()
    assert ":22" in desk.root(LISTENS)


def test_an_sshd_that_the_user_removed_does_not_come_back_to_life(desk: Desk) -> None:
    """Debian remembers that it was enabled; what the user wanted last was that it is gone."""
    desk.root("DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends openssh-server")
    desk.root("DEBIAN_FRONTEND=noninteractive apt-get remove -qq openssh-server")
    done = desk.type(INSTALL)
    assert done.returncode == 0, done.stdout
    desk.reboot()
    assert desk.root(f"{LISTENS} || true") == ""
