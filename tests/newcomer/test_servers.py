"""kedge's set-up opens no port of the computer, not after its next boot either."""

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
    """A computer whose own network reaches nothing: apt has its packages in its cache."""
    if reason := prepare_machines():
        pytest.skip(reason)
    setup = f"--bind-ro={REPOSITORY / 'infra' / 'setup'}:/opt/setup"
    with switched_on(tmp_path / "desk", "--private-network", setup) as desk:
        desk.root("""echo 'Acquire::Retries "0";' >/etc/apt/apt.conf.d/90-offline""")
        yield desk


def test_the_setup_installs_sshd_and_opens_no_port(desk: Desk) -> None:
    """The program is there; nothing listens, neither now, nor after a reboot, nor after an upgrade of it."""
    done = desk.type(INSTALL)
    assert done.returncode == 0, done.stdout
    for _ in range(2):
        assert desk.root("/usr/sbin/sshd -V 2>&1 | grep -o OpenSSH_ ; dpkg -s tmux | grep Status").startswith(
            "OpenSSH_"
        )
        assert desk.root(f"{LISTENS} || true") == ""
        assert desk.root(ENABLED).split() == ["disabled"] * 3
        # Like an upgrade: Debian's scripts check whether the service was enabled before.
        desk.root("DEBIAN_FRONTEND=noninteractive apt-get install -qq --reinstall openssh-server")
        desk.reboot()
    assert desk.root("ls /usr/sbin/policy-rc.d /run/systemd/system-preset 2>&1 || true").count("No such file") == 2
    desk.root("systemctl enable --now ssh.service")
    assert ":22" in desk.root(LISTENS), "a user can still enable the service"


def test_an_sshd_that_the_user_had_stays_as_it_was(desk: Desk) -> None:
    """Set-up installs other packages, and sshd listens before, afterwards, and after a reboot."""
    desk.root("DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends openssh-server")
    assert ":22" in desk.root(LISTENS)
    done = desk.type(INSTALL)
    assert done.returncode == 0, done.stdout
    assert desk.root(ENABLED).split() == ["enabled", "disabled", "disabled"]
    assert ":22" in desk.root(LISTENS)
    desk.reboot()
    assert ":22" in desk.root(LISTENS)


def test_an_sshd_that_the_user_removed_is_not_enabled_again(desk: Desk) -> None:
    """Debian remembers that it was enabled; the user's last decision was to remove it."""
    desk.root("DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends openssh-server")
    desk.root("DEBIAN_FRONTEND=noninteractive apt-get remove -qq openssh-server")
    done = desk.type(INSTALL)
    assert done.returncode == 0, done.stdout
    desk.reboot()
    assert desk.root(f"{LISTENS} || true") == ""
