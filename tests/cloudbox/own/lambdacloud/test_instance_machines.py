"""Instances that boot: real machines with systemd, cloud-init and sshd."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.orders import add_key, launch, listed, terminate
from tests.cloudbox.lambdacloud.state import Instance
from tests.cloudbox.machines.lab import AWAIT_CLOUD_INIT, Keys, traces
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.support.waiting import wait_until


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def nothing_left(lambda_box_process: LambdaBox) -> Iterator[None]:
    """All that these tests booted is gone in the end."""
    yield
    lambda_box_process.reset()
    wait_until(lambda: not traces(lambda_box_process.ca_file.parent / "machines"))


def boot(lam: LambdaBox, keys: Keys, **more: object) -> Instance:
    """Launch an instance with a key of the account's, and with user-data of which nothing has run yet."""
    add_key(lam, public_key=keys.public("user"))
    made = launch(lam, user_data=keys.user_data(**more).decode())
    return next(one for one in lam.instances() if one.id == made)


def await_answer(lam: LambdaBox, keys: Keys, instance: Instance) -> None:
    """Wait until cloud-init has done all of the user-data."""
    try:
        wait_until(lambda: keys.ssh(instance.address, "echo up", check=False) == "up")
        keys.ssh(instance.address, AWAIT_CLOUD_INIT)
    except AssertionError as err:
        err.add_note(lam.console(instance))
        raise


def as_ubuntu(keys: Keys, instance: Instance, command: str) -> str:
    """Run a command as the image's own user, on whatever host key answers."""
    options = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes", "-oLogLevel=ERROR"]
    login = ["-oConnectTimeout=3", "-i", str(keys.folder / "user"), f"ubuntu@{instance.address}", command]
    done = subprocess.run(["ssh", "-F", "none", *options, *login], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_the_images_own_sshd_answers_before_user_data_has_run(lambda_box: LambdaBox, keys: Keys) -> None:
    """With a host key that nobody pinned, to the account's key; afterwards with the one of user-data, as ubuntu still.

    fact: lambda-image-host-key-first; fact: lambda-image-user
    """
    lambda_box.settings.early_ssh_seconds = 15
    instance = boot(lambda_box, keys, runcmd=["echo ran > /opt/mark"])
    early: list[str] = []

    def answers() -> bool:
        early.append(as_ubuntu(keys, instance, "sudo test -e /opt/mark && echo late || echo early"))
        return bool(early[-1])

    wait_until(answers)
    assert early[-1] == "early"
    with pytest.raises(AssertionError, match=r"(?i)host key verification failed|identification has changed"):
        keys.ssh(instance.address, "true")
    await_answer(lambda_box, keys, instance)
    assert keys.ssh(instance.address, "cat /opt/mark") == "ran"
    assert as_ubuntu(keys, instance, "sudo id -un; id -un") == "root\nubuntu"
    terminate(lambda_box, instance.id)
    wait_until(lambda: not traces(lambda_box.ca_file.parent / "machines"))
    assert not lambda_box.meter.billing()


def test_an_instance_that_powers_itself_off_looks_as_before_and_bills(lambda_box: LambdaBox, keys: Keys) -> None:
    """Nothing ends it but a termination: it may even look active. A restart boots it. fact: lambda-power-off-bills."""
    instance = boot(lambda_box, keys)
    await_answer(lambda_box, keys, instance)
    keys.ssh(instance.address, "sudo systemctl poweroff", check=False)
    wait_until(lambda: not instance.powered)
    assert listed(lambda_box)[instance.id]["status"] == "active"
    lambda_box.settings.off_status = "unhealthy"
    assert listed(lambda_box)[instance.id]["status"] == "unhealthy"
    assert [bill.id for bill in lambda_box.meter.billing()] == [instance.id]
    lambda_box.client().call("POST", "/api/v1/instance-operations/restart", {"instance_ids": [instance.id]})
    await_answer(lambda_box, keys, instance)
    assert listed(lambda_box)[instance.id]["status"] == "active"


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path, lambda_box: LambdaBox) -> None:
    """The box lives in the tests' own process: SIGKILL of it ends its machines too."""
    program = (
        "import pathlib, signal\n"
        "from tests.cloudbox.lambdacloud.box import start_box\n"
        "from tests.cloudbox.lambdacloud.orders import launch\n"
        f"with start_box(pathlib.Path({str(tmp_path)!r}), machines=True) as lam:\n"
        "    lam.settings.remove_delays()\n"
        "    launch(lam)\n"
        "    print('launched', flush=True)\n"
        "    signal.pause()\n"
    )
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "launched\n"
        wait_until(lambda: any("systemd-nspawn" in trace for trace in traces(tmp_path / "machines")))
        parent.kill()
    wait_until(lambda: not traces(tmp_path / "machines"))
